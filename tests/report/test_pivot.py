"""The table of methods by settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run

from mnemos.report.blocks import Table
from mnemos.report.groups import RunGroup, group
from mnemos.report.panels.pivot import PivotPanel
from mnemos.report.reading import read
from mnemos.runs.run import Run


def groups_of(folder: Path, cells: dict[tuple[str, float], float]) -> list[RunGroup]:
    """A run for each loss, α and seed; the second seed is one point better than the first."""
    found = []
    for (loss, alpha), accuracy in cells.items():
        for seed in (0, 1):
            path = folder / f"{loss}-{alpha}-{seed}"
            changes = {"method.loss": loss, "partition.alpha": alpha, "seed": seed}
            write_run(path, changes, status="finished", accuracy=accuracy + 0.01 * seed)
            found.append(path)
    return group([read(Run(path)) for path in found], lambda note: pytest.fail(note))


def test_methods_by_settings(tmp_path: Path) -> None:
    """WSM at α = 0.1: accuracies 0.70 and 0.71, so 70.5 ± 0.7 %; it is the best of its column."""
    cells = {("ce", 0.1): 0.5, ("wsm", 0.1): 0.7, ("ce", 1.0): 0.9, ("wsm", 1.0): 0.8}
    (table,) = PivotPanel().blocks(groups_of(tmp_path, cells))
    assert isinstance(table, Table)
    assert [column.label for column in table.columns] == [
        "method",
        "partition.alpha=0.1",
        "partition.alpha=1",
    ]
    texts = [[cell.text for cell in row.cells] for row in table.rows]
    assert [row[0] for row in texts] == ["fedavg + ce", "fedavg + wsm"]
    assert texts[1][1] == "70.5 ± 0.7 %"
    assert [[cell.best for cell in row.cells[1:]] for row in table.rows] == [[False, True], [True, False]]


@pytest.mark.parametrize(
    "cells",
    [
        {("ce", 0.1): 0.5, ("wsm", 0.1): 0.7},  # one setting
        {("ce", 0.1): 0.5, ("ce", 1.0): 0.7},  # one method
    ],
)
def test_no_table_without_both(tmp_path: Path, cells: dict[tuple[str, float], float]) -> None:
    assert list(PivotPanel().blocks(groups_of(tmp_path, cells))) == []
