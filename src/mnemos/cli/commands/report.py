"""`mnemos report`: write runs as one HTML page, and its figures and tables as files for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemos.cli.options import RUNS, Json, RunPaths, check_file, check_folder
from mnemos.cli.output import print_json
from mnemos.display.words import plural
from mnemos.report.write import write_report


def report(
    paths: RunPaths = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Folder for every figure, as PNG and PDF.")] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Folder for every table, as Markdown, CSV and LaTeX.")
    ] = None,
    width: Annotated[
        str, typer.Option(help="Width of the figures: 1 or 2 columns of a page, or such as 8.5cm or 3.3in.")
    ] = "",
    title: Annotated[str, typer.Option(help="Title of the page.")] = "",
    as_json: Json = False,
) -> None:
    """Write a report on runs: one HTML file that opens from disk and needs no network.

    Runs that differ only in their seed are one group; tables and curves show its mean and spread.
    """
    check_file(out, (".html", ".htm"), "out")
    for name, folder in (("figures", figures), ("tables", tables)):
        if folder is not None:
            check_folder(folder, name)
    written = write_report(paths or [RUNS], out, figures=figures, tables=tables, width=width, title=title)
    for note in written.notes:
        typer.echo(note, err=True)
    if as_json:
        print_json(
            {
                "status": "finished",
                "report": str(written.page),
                "bytes": written.size,
                "runs": written.runs,
                "groups": written.groups,
                "left_out": written.notes,
                "figures": [str(path) for path in written.figures],
                "tables": [str(path) for path in written.tables],
            }
        )
        return
    runs, groups = plural(written.runs, "run"), plural(written.groups, "group")
    typer.echo(f"report:  {written.page} ({_size(written.size)}; {runs} in {groups})")
    if written.figures:
        typer.echo(f"figures: {figures} ({len(written.figures)} files)")
    if written.tables:
        typer.echo(f"tables:  {tables} ({len(written.tables)} files)")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
