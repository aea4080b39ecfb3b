"""Simulated time in reports, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import overall, write_run

from mnemos.report.blocks import Bars, Lines, Table
from mnemos.report.groups import group
from mnemos.report.page import collect
from mnemos.report.panels.clock import ClockPanel
from mnemos.report.reading import read
from mnemos.runs.run import Run

FEDASYNC = {"clock": "fedasync"}


def rows(
    times: Sequence[float], accuracy: Mapping[int, float], late: Sequence[float] = ()
) -> Iterable[Mapping[str, Any]]:
    yield from overall("time", times)
    yield from overall("validation_accuracy", accuracy)
    for number, value in enumerate(late, 1):
        yield {"round": number, "name": "staleness", "client": number % 3, "value": value}


def blocks(*runs: Run) -> list[Any]:
    return list(ClockPanel().blocks(group([read(run) for run in runs], lambda _note: None)))


def test_runs_without_a_clock_have_nothing_to_show(tmp_path: Path) -> None:
    assert blocks(write_run(tmp_path / "a", rows=overall("validation_accuracy", [0.1, 0.2]))) == []


def test_numbers_of_two_seeds(tmp_path: Path) -> None:
    """Times 8 and 12 after 4 rounds; staleness 0, 1, 1, 2 (mean 1) and 0, 0, 0, 12 (mean 3)."""
    one = write_run(tmp_path / "0", FEDASYNC, rows=rows([1, 2, 4, 8], {2: 0.2, 4: 0.6}, [0, 1, 1, 2]))
    two = write_run(
        tmp_path / "1", {**FEDASYNC, "seed": 1}, rows=rows([3, 4, 6, 12], {2: 0.4, 4: 0.8}, [0, 0, 0, 12])
    )
    table, lines, bars = blocks(one, two)
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0].cells[1:]] == ["4", "10", "2.5", "2", "12"]
    # From time 4, when the first has 0.2 + 0.4 · 2/6 and the second 0.4, to 8, when both have 0.6.
    assert isinstance(lines, Lines)
    (view,) = lines.views
    (series,) = view.series
    assert view.percent
    assert (series.x[0], series.x[-1], len(series.x)) == (4, 8, 100)
    assert series.mean[0] == pytest.approx((0.2 + 0.4 / 3 + 0.4) / 2)
    assert series.mean[-1] == pytest.approx(0.6)
    assert series.std is not None
    assert series.std[-1] == pytest.approx(0.0)
    assert isinstance(bars, Bars)
    (histogram,) = bars.views
    assert histogram.categories == (*map(str, range(11)), "> 10")
    assert histogram.stacks[0].values.tolist() == [4 / 8, 2 / 8, 1 / 8, *[0] * 8, 1 / 8]


def test_synchronous_rounds_beside_asynchronous_ones(tmp_path: Path) -> None:
    """One run each: their own points; a synchronous clock records no staleness."""
    one = write_run(tmp_path / "a", FEDASYNC, rows=rows([1, 2], {1: 0.3, 2: 0.5}, [0, 1]))
    two = write_run(tmp_path / "b", {"clock": "synchronous"}, rows=rows([10, 20], {2: 0.7}))
    plain = write_run(tmp_path / "c", {}, rows=overall("validation_accuracy", [0.1, 0.2]))
    table, lines, bars = blocks(one, two, plain)
    assert [[cell.text for cell in row.cells[1:]] for row in table.rows] == [
        ["2", "2", "1", "0.5", "1"],
        ["2", "20", "10", "–", "–"],
    ]
    assert [series.x.tolist() for series in lines.views[0].series] == [[1, 2], [20]]
    assert [series.mean.tolist() for series in lines.views[0].series] == [[0.3, 0.5], [0.7]]
    assert len(bars.views) == 1
    panels = [panel["id"] for panel in collect([one, two, plain])["panels"]]
    assert panels.index("clock") == panels.index("curves") + 1


def test_seeds_that_never_overlap_make_one_point(tmp_path: Path) -> None:
    one = write_run(tmp_path / "0", FEDASYNC, rows=rows([1], {1: 0.3}))
    two = write_run(tmp_path / "1", {**FEDASYNC, "seed": 1}, rows=rows([5], {1: 0.5}))
    series = blocks(one, two)[1].views[0].series[0]
    assert np.isfinite(series.mean).all()
    assert len(series.x) == 1
