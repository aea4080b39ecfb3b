"""The picture of tasks by client and round, its numbers, the panel, and the page in a browser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from synthetic import overall, write_run

from mnemos.data.load import load
from mnemos.data.stream import Flow
from mnemos.experiment.experiment import Experiment
from mnemos.federation.assembly import flow_of
from mnemos.plots.timeline import draw_timeline, shades, summarise_tasks, task_names
from mnemos.report.blocks import Strips, Text
from mnemos.report.groups import group
from mnemos.report.panel import panels
from mnemos.report.reading import read
from mnemos.report.write import write_report
from mnemos.runs.run import Run

ALIGNED = {"stream": {"name": "aligned", "tasks": 5}, "rounds": 10}
OWN = {"stream": {"name": "tasks", "tasks": 5}, "rounds": 20}


def flow(changes: dict[str, Any], clients: int = 12) -> Flow:
    experiment = Experiment.parse(
        {"participation": 0.25, "partition": {"name": "iid", "clients": clients}, **changes}
    )
    return flow_of(experiment, load(experiment.data))


def blocks(*runs: Run, **options: Any) -> list[Any]:
    return list(panels["timeline"](**options).blocks(group([read(run) for run in runs], lambda _note: None)))


def test_numbers_by_hand() -> None:
    """Two rounds a task, all clients at the same one; the last is trained on in round 9."""
    facts = summarise_tasks(flow(ALIGNED))
    assert {name: facts[name] for name in ("clients", "rounds", "tasks", "classes_min", "classes_max")} == {
        "clients": 12, "rounds": 10, "tasks": 5, "classes_min": 2, "classes_max": 2
    }  # fmt: skip
    assert (facts["at_once"], facts["all_discovered"], facts["finished"]) == (1, 9, 1)
    assert facts["without_samples"] == 0


def test_names_of_tasks() -> None:
    digits = [str(digit) for digit in range(10)]
    assert task_names(flow(ALIGNED), digits)[:2] == ["0: 0, 1", "1: 2, 3"]
    two = flow({"stream": {"name": "aligned", "tasks": 2}, "rounds": 4})
    assert task_names(two, digits) == ["0: classes 0–4", "1: classes 5–9"]
    mixed = flow({"stream": {"name": "aligned", "tasks": 2, "shuffle_classes": True}, "rounds": 4})
    assert task_names(mixed, digits) == ["0: 5 classes", "1: 5 classes"]


def test_colours_are_all_different() -> None:
    assert [len(set(shades(count))) for count in (2, 10, 11, 20, 50)] == [2, 10, 11, 20, 50]


@pytest.mark.parametrize(("changes", "clients"), [(ALIGNED, 12), (OWN, 100)])
def test_a_figure_is_drawn(tmp_path: Path, changes: dict[str, Any], clients: int) -> None:
    path = draw_timeline(flow(changes, clients), [str(digit) for digit in range(10)], tmp_path / "a.png", 20)
    colours = Image.open(path).convert("RGB").getcolors(1 << 24) or []
    assert set(shades(5)) <= {"#{:02x}{:02x}{:02x}".format(*colour) for _, colour in colours}


# The panel


def test_strips_of_a_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), {**OWN, "seed": seed}) for seed in (0, 1)]
    other = write_run(tmp_path / "wsm", {**OWN, "method.loss": "wsm"})
    (strips,) = blocks(*runs, other, clients=5)
    assert isinstance(strips, Strips)
    first, second = strips.views
    assert (first.groups, second.groups) == ((0, 1), (0,))  # the loss has no part in it
    assert [strip.name for strip in first.strips] == ["0", "2", "5", "8", "11"]
    experiment = runs[0].experiment
    table = flow_of(experiment, load(experiment.data)).timeline()
    for strip in first.strips:
        row = np.repeat(strip.kinds, np.diff(strip.ends, prepend=0))
        assert row.tolist() == table[int(strip.name)].tolist()
    assert first.label.startswith("digits, tasks (tasks 5, order own, ")  # `first` isn't set
    assert "None" not in first.label
    assert first.kinds == ("0: 0, 1", "1: 2, 3", "2: 4, 5", "3: 6, 7", "4: 8, 9")


def test_runs_without_tasks_have_no_timeline(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, {"stream": name}) for name in ("static", "drift")]
    assert blocks(*runs) == []


def test_what_is_left_out_or_not_here_is_told(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), {**ALIGNED, "seed": seed}) for seed in range(3)]
    (strips,) = blocks(*runs, most=2)
    assert strips.note == "1 more schedules are left out."
    (text,) = blocks(write_run(tmp_path / "a", {**ALIGNED, "data": "cifar10"}))
    assert isinstance(text, Text)
    assert "can't be shown" in text.sentences[0]


def test_the_page_draws_tasks_and_says_which(
    opened: Callable[..., AbstractContextManager[Page]], tmp_path: Path
) -> None:
    for seed in (0, 1):
        rows = overall("validation_accuracy", [0.1 * n for n in range(1, 10)])
        write_run(tmp_path / "runs" / str(seed), {**ALIGNED, "seed": seed}, rows=rows, accuracy=0.5)
    page_file = write_report(tmp_path / "runs", tmp_path / "report.html").page
    with opened(page_file) as page:
        plot = page.locator("#block-timeline .plot")
        plot.scroll_into_view_if_needed()
        expect(plot).to_have_attribute("data-drawn", "true")
        assert page.locator("#block-timeline .stacks li").all_text_contents()[1] == "1: 2, 3"
        assert page.locator("#block-timeline select option").count() == 2
        plot.focus()
        plot.press("ArrowRight")
        plot.press("ArrowRight")
        plot.press("ArrowDown")
        tip = page.locator("#block-timeline .tip")
        expect(tip).to_have_text("client 11: 2, 3rounds 3 to 4")
        colours = plot.locator("canvas").first.evaluate(
            """(canvas) => new Set(new Uint32Array(
                canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
        )
        assert colours > 5
