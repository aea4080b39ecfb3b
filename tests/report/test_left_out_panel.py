"""Who was left out, in reports: against numbers counted by hand."""

from pathlib import Path
from typing import Any

from synthetic import write_run

from mnemos.report.groups import group
from mnemos.report.page import collect
from mnemos.report.panels.left_out import LeftOutPanel
from mnemos.report.reading import read
from mnemos.runs.left_out import left_out
from mnemos.runs.run import Run

NAN = "rejected: not finite"


def records(*of_clients: tuple[int, str, int], repeated: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    rows = [{"round": number, "name": name, "client": who, "value": 1.0} for number, name, who in of_clients]
    return rows + [{"round": number, "name": "repeated", "value": 0.0} for number in repeated]


def table(*runs: Run) -> list[list[str]]:
    blocks = list(LeftOutPanel().blocks(group([read(run) for run in runs], lambda _note: None)))
    return [[cell.text for cell in row.cells[1:]] for block in blocks for row in block.rows]


def test_runs_that_left_nobody_out_have_nothing_to_show(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rows=records((1, "train_loss", 3)))
    assert table(run) == []
    assert left_out(run.records).reasons == {}


def test_means_over_two_seeds(tmp_path: Path) -> None:
    """Three of one client in two rounds, and none: 1.5 in one round of half a client."""
    one = write_run(
        tmp_path / "0",
        rows=records((1, NAN, 3), (1, NAN, 3), (2, NAN, 3), (2, "dropped", 4), repeated=(1, 1)),
    )
    two = write_run(tmp_path / "1", {"seed": 1}, rows=records((1, "dropped", 4), (5, "dropped", 6)))
    assert table(one, two) == [
        ["dropped", "1.5", "1.5", "1.5"],
        [NAN, "1.5", "1", "0.5"],
        ["round repeated", "1", "0.5", "–"],
    ]
    found = left_out(one.records)
    assert (found.reasons, found.rounds, found.repeated) == ({NAN: 3, "dropped": 1}, 2, 2)
    assert collect([one, two])
