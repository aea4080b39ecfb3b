"""Which page of the documents describes which part: read from the table of docs/methods/README.md."""

from __future__ import annotations

import re
from pathlib import Path

from mnemos.lookup.kinds import kind_of

CARDS = "docs/methods"
"""The folder of the cards, in a working copy."""
_NAMES = re.compile(r"`([a-z0-9-]+)`")
_LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)\s*\|\s*$")


def cards() -> dict[str, str]:
    """The paths of cards, from the top of the working copy, by `kind/name`; empty without documents."""
    table = Path(__file__).parents[3] / CARDS / "README.md"
    if not table.exists():
        return {}
    found: dict[str, str] = {}
    for row in table.read_text(encoding="utf-8").splitlines():
        cells = row.split("|")
        link = _LINK.search(row)
        if len(cells) < 4 or link is None:
            continue
        path = (Path(CARDS) / link[1]).as_posix().replace("methods/../", "")
        for kind in filter(None, map(kind_of, _kinds(cells[2]))):
            for name in _NAMES.findall(cells[1]):
                found[f"{kind.name}/{name}"] = path
    return found


def _kinds(cell: str) -> list[str]:
    """The kinds that a cell names: `server step, buffers` has two."""
    return [word.strip().removesuffix(" before a rule") for word in cell.split(",")]
