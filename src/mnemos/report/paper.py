"""Figures for a paper: as wide as a column, and with captions in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import matplotlib
from matplotlib.figure import Figure
from matplotlib.text import Text

from mnemos.errors import ConfigError
from mnemos.report.tables import in_latex

_UNITS = {"cm": 1 / 2.54, "mm": 1 / 25.4, "in": 1.0, "pt": 1 / 72.27}
_COLUMNS = {"1": 3.25, "2": 6.75}
"""Inches of one and of two columns of a usual page with two columns."""
_NARROWEST, _WIDEST = 1.0, 40.0
_FONT = 8.0
"""Points of text in a figure that is drawn for a column."""

_width: ContextVar[float | None] = ContextVar("width", default=None)


def inches(word: str) -> float:
    """The width that a word such as `8.5cm`, `3.3in` or `1` (a column; `2`: both) means, in inches."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(cm|mm|in|pt)", word.strip())
    width = _COLUMNS.get(word.strip()) or (float(match[1]) * _UNITS[match[2]] if match else 0.0)
    if not _NARROWEST <= width <= _WIDEST:
        raise ConfigError(
            f"found '{word}'; allowed: 1 or 2 (columns), or 2.54cm to 100cm, such as 8.5cm, 85mm or 3.3in",
            "width",
        )
    return width


@contextmanager
def as_wide_as(width: float | None) -> Iterator[None]:
    """Inside, figures of curves and bars are this many inches wide, with small print; None: as usual."""
    before = _width.set(width)
    try:
        with matplotlib.rc_context({"font.size": _FONT} if width is not None else {}):
            yield
    finally:
        _width.reset(before)


def sized(width: float, height: float) -> tuple[float, float]:
    """The size of a figure that usually has this one, at the width that is asked for."""
    wanted = _width.get()
    if wanted is None:
        return width, height
    return wanted, max(height * wanted / width, min(height, 2.0))  # a low figure has no room for its axes


def shrunk(figure: Figure) -> Figure:
    """A figure with places of its own for everything, scaled with its text to the width that is asked for."""
    wanted = _width.get()
    if wanted is not None:
        share = wanted / figure.get_figwidth()
        figure.set_size_inches(wanted, figure.get_figheight() * share)
        for text in figure.findobj(Text):
            text.set_fontsize(float(text.get_fontsize()) * share)
    return figure


def captions(figures: Sequence[tuple[str, str, str]], width: float | None) -> str:
    """LaTeX that includes figures: (file without its ending, title, explanation) of each."""
    wide = "\\linewidth" if width is None else f"{width:.3g}in"
    lines = ["% needs \\usepackage{graphicx} and \\usepackage[T1]{fontenc}"]
    for name, title, text in figures:
        lines += [
            "",
            "\\begin{figure}",
            "\\centering",
            f"\\includegraphics[width={wide}]{{{name}.pdf}}",
            f"\\caption{{{in_latex(f'{title}. {text}')}}}",
            f"\\label{{fig:{name}}}",
            "\\end{figure}",
        ]
    return "\n".join(lines) + "\n"
