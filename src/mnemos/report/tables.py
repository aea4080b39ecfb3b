"""Writing a report's tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from mnemos.common.files import write_atomically
from mnemos.errors import ConfigError
from mnemos.report.blocks import Block, Cell, Table

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "“": "``",
    "”": "''",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
}
"""Characters that have a meaning in LaTeX, or that its fonts lack."""

_MARKDOWN = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|#~"} | {"\n": " "})


def write_tables(blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Write every table of a report in the three formats; returns the files."""
    forms: dict[str, Callable[[Table], str]] = {".md": markdown, ".csv": as_csv, ".tex": latex}
    written = []
    for block in blocks:
        if isinstance(block, Table):
            for suffix, form in forms.items():
                path = folder / f"{block.id}{suffix}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, form(block).encode())
                except OSError as error:
                    raise ConfigError(f"{path}: the table can't be written ({error.strerror})") from None
                written.append(path)
    return written


def markdown(table: Table) -> str:
    """A table in Markdown, with title and explanation; the best values are bold."""
    lines = [
        f"## {_in_markdown(table.title)}",
        "",
        _in_markdown(_explained(table)),
        "",
        _line([_in_markdown(column.label) for column in table.columns]),
        _line(["---" if column.kind == "text" else "---:" for column in table.columns]),
    ]
    for cells in _rows(table):
        texts = [_in_markdown(cell.text) for cell in cells]
        lines.append(_line([f"**{t}**" if cell.best else t for t, cell in zip(texts, cells, strict=True)]))
    if table.note:
        lines += ["", _in_markdown(table.note)]
    return "\n".join(lines) + "\n"


def as_csv(table: Table) -> str:
    """A table as CSV, with numbers in full precision; standard deviations have columns of their own."""
    rows = _rows(table)
    spread = [
        column.kind == "spread" or any(cells[index].spread is not None for cells in rows)
        for index, column in enumerate(table.columns)
    ]
    heads: list[str] = []
    for column, deviates in zip(table.columns, spread, strict=True):
        heads += [column.label, f"{column.label} (std)"] if deviates else [column.label]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    for cells in rows:
        row: list[object] = []
        for column, cell, deviates in zip(table.columns, cells, spread, strict=True):
            # A text column may be sorted by a number, as a list by its length; the text is what counts.
            row.append(cell.text if column.kind == "text" else "" if cell.value is None else cell.value)
            if deviates:
                row.append("" if cell.spread is None else cell.spread)
        writer.writerow(row)
    return out.getvalue()


def latex(table: Table) -> str:
    """A table for a paper: LaTeX code with booktabs, caption and label.

    Best values are bold where a test tells them apart. Columns on the state of runs are left out.
    """
    kept = [index for index, column in enumerate(table.columns) if not column.state]
    columns = [table.columns[index] for index in kept]
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
        *([f"% {' '.join(table.note.split())}"] if table.note else []),
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{in_latex(f'{table.title}. {_explained(table)}')}}}",
        f"\\label{{tab:{table.id}}}",
        f"\\begin{{tabular}}{{{''.join('l' if column.kind == 'text' else 'r' for column in columns)}}}",
        "\\toprule",
        " & ".join(in_latex(column.label) for column in columns) + r" \\",
        "\\midrule",
    ]
    for row in _rows(table):
        cells = [row[index] for index in kept]
        texts = [in_latex(cell.text) for cell in cells]
        bold = [
            f"\\textbf{{{text}}}" if cell.best and cell.apart else text
            for text, cell in zip(texts, cells, strict=True)
        ]
        lines.append(" & ".join(bold) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]) + "\n"


def _rows(table: Table) -> list[tuple[Cell, ...]]:
    """The rows of the table's first choice."""
    return [row.cells for row in table.rows if row.choice == 0]


def _explained(table: Table) -> str:
    chosen = f" {table.choice.capitalize()}: {table.choices[0]}." if table.choices else ""
    return table.text + chosen


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _in_markdown(text: str) -> str:
    return text.translate(_MARKDOWN)


def in_latex(text: str) -> str:
    """Text in which no character has a meaning in LaTeX."""
    return "".join(_LATEX.get(char, char) for char in " ".join(text.split()))
