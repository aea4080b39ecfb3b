"""The owners of a federation, on the page."""

import json
from pathlib import Path

from synthetic import write_run

from mnemos.report.groups import group
from mnemos.report.panels.owners import OwnersPanel
from mnemos.report.reading import read
from mnemos.runs.run import Run


def rows(run: Run) -> list[list[str]]:
    blocks = OwnersPanel().blocks(group([read(run)], lambda _note: None))
    return [[cell.text for cell in row.cells[1:]] for block in blocks for row in block.rows]


def test_each_owner_has_a_row(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rows=[{"round": 1, "name": "train_loss", "value": 1.0}])
    assert rows(run) == []
    south = {"state": "gone", "why": "its connection is lost", "since": "today", "answered": 2, "dropped": 1}
    owners = {"south": south, "north": {"state": "here", "answered": 3}, "odd": 1}
    run.file("owners.json").write_text(json.dumps({"owners": owners}))
    assert rows(run) == [
        ["north", "here", "", "3", "0", "0", ""],
        ["south", "gone", "today", "2", "1", "0", "its connection is lost"],
    ]
    run.file("owners.json").write_text("[")
    assert rows(run) == []
