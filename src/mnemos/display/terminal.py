"""Where commands print: results on standard output, everything about a run's progress on standard error."""

from __future__ import annotations

import sys

from rich.console import Console

console = Console(width=None if sys.stdout.isatty() else 1000)  # in a pipe, nothing is cut off
errors = Console(stderr=True)
