"""The command line: one file a command."""

from mnemos.cli.app import main

__all__ = ["main"]
