"""The panels of continual learning: numbers by hand, figures, and the page in a real Chromium."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from synthetic import blocks, overall, texts, write_run

from mnemos.report.blocks import HeatMaps, Lines
from mnemos.report.figures import draw_figures
from mnemos.report.write import write_report
from mnemos.runs.run import Run

Row = Mapping[str, Any]


def evaluations(
    accuracy: Sequence[Sequence[float | None]], at: Sequence[int], every: int = 10
) -> Iterator[Row]:
    """What one client's run records: accuracies [evaluations][tasks], and the task it is at."""
    for task in range(len(accuracy[0])):
        yield {"round": 0, "name": "task_aware_accuracy", "task": task, "value": 0.5}
    for place, row in enumerate(accuracy):
        number = every * (place + 1)
        known = [value for value in row if value is not None]
        for task, value in enumerate(row):
            aware = {"round": number, "name": "task_aware_accuracy", "task": task}
            yield {**aware, "value": 0.6 if value is None else 0.9}
            if value is not None:
                yield {"round": number, "name": "task_accuracy", "task": task, "value": value}
        mean = sum(known) / len(known)
        yield {"round": number, "name": "reached_accuracy", "client": 0, "task": at[place], "value": mean}
        yield from overall("all_classes_accuracy", {number: mean / 2})
        yield from overall("discovered_accuracy", {number: mean})


def drops(number: int, before: Sequence[float], after: Mapping[int, Sequence[float]]) -> Iterator[Row]:
    """What updates did to tasks in a round."""
    for task, value in enumerate(before):
        yield {"round": number, "name": "before_accuracy", "task": task, "value": value}
    for model, row in after.items():
        for task, value in enumerate(row):
            yield {"round": number, "name": "after_accuracy", "model": model, "task": task, "value": value}
    lost = np.array(before) - np.array([*after.values()])
    yield from overall("task_forgetting", {number: float(lost.mean())})


ONE = [[0.9, None], [0.5, 0.8]]
TWO = [[0.7, None], [0.5, 0.6]]


@pytest.fixture
def seeds(tmp_path: Path) -> list[Run]:
    """Two tasks, one after the other; two seeds, and one that did not converge."""
    return [
        write_run(tmp_path / "a", rows=evaluations(ONE, [0, 1])),
        write_run(tmp_path / "b", {"seed": 1}, rows=evaluations(TWO, [0, 1])),
        write_run(tmp_path / "c", {"seed": 2}, rows=evaluations(TWO, [0, 1]), status="diverged"),
    ]


def test_tables_by_hand(seeds: list[Run]) -> None:
    """Average accuracies are 0.65 and 0.55; best, first and diagonal − last 0.4 and 0.2; FWT 0.1 twice.

    Learning areas are (0.9 + 0.8) / 2 and (0.7 + 0.6) / 2, curve areas (0.9 + 0.65) / 2 and (0.7 + 0.55) / 2.
    """
    found = blocks("continual", *seeds)
    lost, gained = "30.0 ± 14.1 %", "−30.0 ± 14.1 %"
    summary = [
        "60.0 ± 7.1 %",
        lost,
        lost,
        lost,
        gained,
        gained,
        "10.0 ± 0.0 %",
        "75.0 ± 14.1 %",
        "70.0 ± 10.6 %",
    ]
    assert texts(found["continual-table"]) == [["fedavg + ce", "60.0 ± 7.1 %", "30.0 ± 3.5 %", *summary, "2"]]
    assert texts(found["continual-clients"]) == [["fedavg + ce", *summary, "1"]]


def test_curves_by_hand(seeds: list[Run]) -> None:
    found = blocks("continual", *seeds)
    lines, tasks = found["continual"], found["continual-tasks"]
    assert isinstance(lines, Lines)
    assert isinstance(tasks, Lines)
    average, _, everything, best, *_ = lines.views
    assert average.series[0].x.tolist() == [10, 20]
    assert average.series[0].mean == pytest.approx([0.8, 0.6])
    assert average.series[0].std == pytest.approx([0.02**0.5, 0.005**0.5])
    assert everything.series[0].mean == pytest.approx([0.4, 0.3])
    assert best.series[0].x.tolist() == [20]
    assert best.series[0].mean == pytest.approx([0.3])
    plain, aware = tasks.views
    assert [series.label for series in plain.series] == ["task 0", "task 1"]
    assert plain.series[1].x.tolist() == [20]
    assert plain.series[1].mean == pytest.approx([0.7])
    assert aware.series[1].x.tolist() == [0, 10, 20]
    assert aware.series[1].mean == pytest.approx([0.5, 0.6, 0.9])


def test_tasks_and_rounds(seeds: list[Run], tmp_path: Path) -> None:
    found = blocks("continual", *seeds)["continual-map"]
    assert isinstance(found, HeatMaps)
    (item,) = found.items
    (frame,) = item.frames
    assert (frame.label, frame.rows, frame.columns) == ("20", (0, 1), (10, 20))
    np.testing.assert_allclose(frame.values, [[0.8, 0.5], [np.nan, 0.7]])
    assert not found.note
    long = write_run(tmp_path / "long", rows=evaluations([[0.5, 0.5]] * 200, [0] * 200))
    found = blocks("continual", long)["continual-map"]
    assert isinstance(found, HeatMaps)
    columns = found.items[0].frames[0].columns
    assert (len(columns), columns[0], columns[-1]) == (60, 10, 2000)
    assert "evaluations are shown, evenly spread" in found.note


def test_who_forgot_what(tmp_path: Path) -> None:
    """Client 4 loses 0.4 and 0.2 of task 0 in two rounds, 0.3 on average, and gains 0.1 of task 1 once."""
    rows = [
        *drops(1, [0.8], {4: [0.4], 9: [0.9]}),
        *drops(5, [0.6, 0.2], {4: [0.4, 0.3], 7: [0.6, 0.0]}),
    ]
    found = blocks("task-forgetting", write_run(tmp_path / "a", rows=rows))
    mean, each, lines = (found[f"task-forgetting{ending}"] for ending in ("-mean", "-maps", ""))
    assert isinstance(mean, HeatMaps)
    assert isinstance(each, HeatMaps)
    assert isinstance(lines, Lines)
    (frame,) = mean.items[0].frames
    assert (frame.rows, frame.columns) == ((4, 7, 9), (0, 1))
    np.testing.assert_allclose(frame.values, [[0.3, -0.1], [0.0, 0.2], [-0.1, np.nan]], atol=1e-12)
    assert mean.maps[0].most == pytest.approx(0.4)
    first, second = each.items[0].frames
    assert (first.label, first.columns, second.label) == ("1", (0,), "5")
    np.testing.assert_allclose(second.values, [[0.2, -0.1], [0.0, 0.2]], atol=1e-12)
    assert lines.views[0].series[0].x.tolist() == [1, 5]
    table = texts(found["task-forgetting-worst"])
    assert table[0] == ["fedavg + ce", "4", "0", "30.0 %", "20.0 %", "40.0 %", "2"]
    assert table[1][1:4] == ["7", "1", "20.0 %"]


def test_of_many_clients_the_worst_are_shown(tmp_path: Path) -> None:
    rows = drops(1, [1.0, 1.0], {client: [client / 100, 1.0] for client in range(100)})
    mean = blocks("task-forgetting", write_run(tmp_path / "a", rows=rows))["task-forgetting-mean"]
    assert isinstance(mean, HeatMaps)
    assert mean.items[0].frames[0].rows == tuple(range(40))


def test_a_round_that_is_being_written(tmp_path: Path) -> None:
    rows = [*drops(1, [0.8], {4: [0.4]}), {"round": 2, "name": "before_accuracy", "task": 0, "value": 0.5}]
    found = blocks("task-forgetting", write_run(tmp_path / "a", rows=rows))["task-forgetting-maps"]
    assert isinstance(found, HeatMaps)
    assert [frame.label for frame in found.items[0].frames] == ["1"]


def test_runs_without_tasks_have_neither(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", rows=overall("test_accuracy", {1: 0.5}))
    assert blocks("continual", run) == blocks("task-forgetting", run) == {}


def test_the_page_the_figures_and_the_tables(
    tmp_path: Path, opened: Callable[..., AbstractContextManager[Page]]
) -> None:
    """Everything is drawn; a drop is the same number in the page as in the run."""
    rows = [*evaluations(ONE, [0, 1]), *drops(5, [0.6, 0.2], {4: [0.4, 0.3], 7: [0.6, 0.0]})]
    write_run(tmp_path / "runs" / "a", rows=rows)
    written = write_report(tmp_path / "runs", tmp_path / "report.html", tables=tmp_path / "tables")
    heads, values = csv.reader((tmp_path / "tables" / "continual-table.csv").read_text().splitlines())
    assert dict(zip(heads, values, strict=True))["BWT"] == "-0.4"
    with opened(written.page) as page:
        for name in ("continual", "continual-tasks", "continual-map", "task-forgetting-mean"):
            plot = page.locator(f"#block-{name} .plot").first
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "true")
        plot.focus()
        page.keyboard.press("ArrowRight")
        expect(plot.locator(".tip")).to_contain_text("0.2")
        page.keyboard.press("ArrowRight")
        expect(plot.locator(".tip")).to_contain_text("−0.1")


def test_the_figures_are_drawn(seeds: list[Run], tmp_path: Path) -> None:
    rows = drops(5, [0.6, 0.2], {4: [0.4, 0.3], 7: [0.6, 0.0]})
    other = write_run(tmp_path / "d", {"method.loss": "wsm"}, rows=rows)
    found = {**blocks("continual", *seeds), **blocks("task-forgetting", other)}
    names = ("continual-map", "task-forgetting-mean", "task-forgetting")
    drawn = draw_figures([found[name] for name in names], tmp_path / "figures")
    pictures = [path for path in drawn if path.suffix != ".tex"]
    assert {path.stem for path in pictures} == set(names)
    assert all(path.stat().st_size > 2_000 for path in pictures)
