"""Writing a report of any set of runs: a page, figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mnemos.common.files import write_atomically
from mnemos.errors import ConfigError, DataError
from mnemos.report.page.collect import as_data, gather
from mnemos.report.page.render import render
from mnemos.report.reading import runs_of
from mnemos.report.tables import write_tables


@dataclass(frozen=True)
class Report:
    """The files of a report, and what it covers."""

    page: Path
    runs: int
    groups: int
    notes: list[str]
    """What was left out, and why."""
    figures: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of the page."""
        return self.page.stat().st_size


def write_report(
    paths: str | Path | Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    figures: str | Path | None = None,
    tables: str | Path | None = None,
    width: str = "",
    title: str = "",
) -> Report:
    """Write the report of runs, and of all runs in folders, as one HTML file.

    With `figures`, every figure is written into that folder as PNG and PDF, with captions in LaTeX; with
    `tables`, every table as Markdown, CSV and LaTeX. `width` is the figures': `8.5cm`, `3.3in`, or `1` or `2`
    columns of a page; by default it depends on the figure. A run that can't be read is left out, with a note.
    """
    wide = _inches(width) if width else None
    given = [paths] if isinstance(paths, str | Path) else paths
    runs = runs_of([Path(path) for path in given])
    found = gather(runs, title)
    if not found.groups:
        why = found.notes[0].removeprefix("left out: ")
        raise DataError(f"none of {len(runs)} runs can be read; the first: {why}" if len(runs) > 1 else why)
    page = Path(out)
    html = render(as_data(found)).encode(errors="replace")  # a path may have bytes that are no text
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, html)
    except OSError as error:
        raise ConfigError(f"{page}: the report can't be written ({error.strerror})") from None
    written = Report(page, sum(len(group.readings) for group in found.groups), len(found.groups), found.notes)
    if figures is not None:
        # Imported here, because matplotlib takes long to import and nothing else needs it.
        from mnemos.report.figures import draw_figures, not_drawn

        written.notes.extend(not_drawn(found.blocks))
        written.figures.extend(draw_figures(found.blocks, Path(figures), wide))
    if tables is not None:
        written.tables.extend(write_tables(found.blocks, Path(tables)))
    return written


def _inches(width: str) -> float:
    from mnemos.report.paper import inches  # with matplotlib, which takes long to import

    return inches(width)
