"""The panel of the ledger: its numbers by hand, rounds that are being written, and a real page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, expect
from synthetic import blocks, overall, texts, write_run

from mnemos.report.blocks import HeatMaps
from mnemos.report.write import write_report

Rows = Iterator[dict[str, Any]]


def ledger(
    round: int, sizes: list[int], before: list[int], after: list[int], local: dict[int, list[int]]
) -> Rows:
    """The records of a round whose clients have one training sample each."""
    for model in local:
        yield {"round": round, "name": "ledger_weight", "model": model, "value": 1.0}
    for model, right in local.items():
        for label, value in enumerate(right):
            row = {"round": round, "name": "ledger_local", "model": model, "class": label}
            yield {**row, "value": float(value)}
    for name, values in (("samples", sizes), ("before", before), ("after", after)):
        for label, value in enumerate(values):
            yield {"round": round, "name": f"ledger_{name}", "class": label, "value": float(value)}


ROWS = [
    *ledger(1, [10, 4], [2, 4], [8, 3], {5: [10, 4], 6: [2, 0]}),
    *ledger(2, [10, 4], [8, 3], [3, 3], {6: [2, 4]}),
]
"""Round 1, class 0: 2, mean (10 + 2)/2 = 6, 8: +0.4 and +0.2. Class 1: 4, mean 2, 3: −0.5 and +0.25.
Round 2, class 0: 8, 2, 3: −0.6 and +0.1; class 1: 3, 4, 3: +0.25 and −0.25."""


def test_by_hand(tmp_path: Path) -> None:
    found = blocks("why", write_run(tmp_path / "a", rows=ROWS))
    rounds, timeline = found["why-rounds"], found["why-timeline"]
    assert isinstance(rounds, HeatMaps)
    assert isinstance(timeline, HeatMaps)
    local, aggregation, whole = rounds.items[0].frames
    assert (whole.rows, whole.columns) == ((1, 2), (0, 1))
    np.testing.assert_allclose(whole.values, [[-0.6, 0.25], [0.5, 0]], atol=1e-12)
    np.testing.assert_allclose(local.values, [[-0.4, 0.5], [0.6, -0.25]], atol=1e-12)
    np.testing.assert_allclose(aggregation.values, [[-0.2, -0.25], [-0.1, 0.25]], atol=1e-12)
    first, second = timeline.items[0].frames
    assert (first.label, second.label) == ("1", "2")
    assert first.rows == ("altogether", "in local training", "in aggregation", "client 5", "client 6")
    np.testing.assert_allclose(first.values[3:], [[-0.8, 0], [0, 1]], atol=1e-12)
    table = texts(found["why-falls"])
    assert [row[1:3] for row in table] == [["0", "2"], ["1", "1"]]
    assert table[0][3] == "80.0 %"


def test_a_round_that_is_being_written_and_damaged_lines(tmp_path: Path) -> None:
    rows = [*ROWS, *list(ledger(3, [10, 4], [3, 3], [3, 3], {6: [2, 4]}))[:-1]]
    rows.append({"round": 1, "name": "ledger_after", "value": 3.0})
    found = blocks("why", write_run(tmp_path / "a", rows=rows))["why-timeline"]
    assert isinstance(found, HeatMaps)
    assert [frame.label for frame in found.items[0].frames] == ["1", "2"]


def test_runs_without_a_ledger_have_none(tmp_path: Path) -> None:
    assert blocks("why", write_run(tmp_path / "a", rows=overall("test_accuracy", {1: 0.5}))) == {}


WRITTEN = """
window.written = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  window.written.push(text);
  return fill.call(this, text, ...more);
};
"""
"""Notes every text that is drawn."""


def test_the_page(tmp_path: Path, opened: Callable[..., AbstractContextManager[Page]]) -> None:
    """Both maps are drawn with whole labels, and their sliders go through all parts and rounds."""
    write_run(tmp_path / "runs" / "a", rows=ROWS)
    written = write_report(tmp_path / "runs", tmp_path / "report.html")
    with opened(written.page, WRITTEN) as page:
        for name in ("why-rounds", "why-timeline"):
            plot = page.locator(f"#block-{name} .plot").first
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "true")
        slider = page.locator("#block-why-timeline input[type=range]")
        expect(slider).to_have_attribute("max", "1")
        assert {"altogether", "in local training", "in aggregation", "client 6"} <= set(
            page.evaluate("window.written")
        )
        slider.press("ArrowLeft")
        expect(page.locator("#block-why-timeline output")).to_have_text("1 (1 of 2)")
        parts = page.locator("#block-why-rounds input[type=range]")
        named = page.locator("#block-why-rounds output")
        for name in ("altogether (3 of 3)", "in aggregation (2 of 3)", "in local training (1 of 3)"):
            expect(named).to_have_text(name)
            parts.press("ArrowLeft")
