"""Carries out a notebook in the current folder, and compares what it prints with what is stored in it.

`python notebook.py NOTEBOOK --update` stores what it prints and draws.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from page import drawing, same
from PIL import Image

Cell = dict[str, Any]


def carry_out(path: Path, *, update: bool = False) -> list[str]:
    """What of a notebook isn't as it says."""
    notebook = nbformat.read(path, as_version=4)
    stored = [_shown(cell) for cell in notebook.cells]
    os.environ["MNEMOS_QUIET"] = "1"  # progress has times in it, which are never the same
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": "."}}).execute()
    wrong = []
    for number, (cell, before) in enumerate(zip(notebook.cells, stored, strict=True)):
        after = _shown(cell)
        if len(before) != len(after) or not all(map(same, before, after)):
            wrong.append(f"cell {number}: stored is\n{before}\nbut it gave\n{after}")
    if update:
        for cell in notebook.cells:
            _lighten(cell)
        nbformat.write(notebook, path)
    return wrong


def _shown(cell: Cell) -> list[str]:
    """The text of a cell's outputs; of a figure, that there is one."""
    return [
        "a figure" if "image/png" in output.get("data", {}) else _text(output)
        for output in cell.get("outputs", [])
    ]


def _text(output: dict[str, Any]) -> str:
    return output["text"] if "text" in output else output["data"]["text/plain"]


def _lighten(cell: Cell) -> None:
    """Keep of a cell what is the same on every machine."""
    cell["metadata"] = {}
    if cell["cell_type"] != "code":
        return
    cell["execution_count"] = None
    for output in cell["outputs"]:
        output.pop("metadata", None)
        if "image/png" in output.get("data", {}):
            figure = drawing(Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"]))))
            output["data"] = {"image/png": base64.b64encode(figure).decode()}
        if output["output_type"] in {"display_data", "execute_result"}:
            output["metadata"] = {}
        if "execution_count" in output:
            output["execution_count"] = None


if __name__ == "__main__":
    found = carry_out(Path(sys.argv[1]), update="--update" in sys.argv)
    sys.exit("\n".join(found) if found and "--update" not in sys.argv else 0)
