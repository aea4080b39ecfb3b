"""The command line: one file a command in `commands`, and here what they share."""

from mnemos.cli.app import main

__all__ = ["main"]
