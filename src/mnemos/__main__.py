"""`python -m mnemos`."""

from mnemos.cli import main

main()
