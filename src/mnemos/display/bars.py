"""Progress bars of one line each, which fit the width of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from mnemos.display import terminal
from mnemos.display.words import duration

_WIDEST, _NARROWEST = 30, 8
"""Cells that a bar takes."""
_SHORTEST = 12
"""Cells that a shortened label keeps."""
_GAP = "  "


@dataclass(frozen=True)
class Line:
    """What a progress bar's line says."""

    label: str
    share: float | None
    """How much is done, from 0 to 1; None: unknown, and no bar is drawn."""
    count: str
    """`12/1000`; empty if nothing is counted."""
    notes: Sequence[str]
    """The most important first: where the line is too long, the last are left out."""
    end: str
    """The time left, or gone by."""

    def fit(self, width: int) -> Text:
        """The line in at most `width` cells.

        Where there is too little room, the bar gets shorter, then the label is cut, then notes are left out,
        then the label. The count and the time stay as long as anything does.
        """
        label, notes, bar = self.label, [*self.notes], 0 if self.share is None else _WIDEST

        def over() -> int:
            parts = [" " * bar, label, self.count, *notes, self.end]
            return cell_len(_GAP.join(filter(None, parts))) - width

        if bar and over() > 0:
            bar = max(_NARROWEST, bar - over())
        if over() > 0:
            label = shortened(label, max(_SHORTEST, cell_len(label) - over()))
        while notes and over() > 0 and (len(notes) > 1 or not label):
            notes.pop()
        if over() > 0:
            label = ""
        while notes and over() > 0:
            notes.pop()
        text = Text(no_wrap=True, overflow="crop")
        for part, style in [
            (label, ""),
            (self._bar(bar), None),
            (self.count, "green"),
            *((note, "") for note in notes),
            (self.end, "cyan"),
        ]:
            if part:
                text.append(_GAP if text else "")
                text.append_text(part) if isinstance(part, Text) else text.append(part, style)
        text.truncate(width)
        return text

    def _bar(self, cells: int) -> Text | str:
        """The bar: what is done in colour, and the rest."""
        if not cells or self.share is None:
            return ""
        done = round(2 * cells * min(max(self.share, 0.0), 1.0))  # in half cells
        bar = Text("━" * (done // 2) + "╸" * (done % 2), "magenta")
        return bar.append("━" * (cells - len(bar)), "bright_black")


def shortened(text: str, cells: int) -> str:
    """The text, or what of it fits into `cells` with an ellipsis at its end."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


class _LineColumn(ProgressColumn):
    """A task's whole line, as wide as the terminal allows."""

    def render(self, task: Task) -> Text:
        """The line of a task, whose notes are in its field `notes`."""
        left, elapsed = task.time_remaining, task.elapsed
        if left is None or task.total is None or task.stop_time is not None:
            end = "" if elapsed is None or elapsed < 1 else duration(elapsed)
        else:
            end = f"{duration(left)} left"
        count = f"{int(task.completed)}/{int(task.total)}" if task.total is not None else ""
        share = task.percentage / 100 if task.total is not None else None
        width = terminal.errors.width - 1  # a full line would make some terminals begin another one
        return Line(task.description, share, count, task.fields["notes"], end).fit(width)


def bars() -> Progress:
    """Progress bars on standard error; each task has the field `notes`, a list of a few words each."""
    return Progress(_LineColumn(), console=terminal.errors, speed_estimate_period=120)
