"""Advice, on the page: read from the file beside the runs, whatever that file holds."""

import json
from pathlib import Path

import pytest
from synthetic import write_run

from mnemos.report.groups import group
from mnemos.report.panels.advice import AdvicePanel
from mnemos.report.reading import read

FINALIST = {
    "name": "loss=wsm", "accuracy": 0.7, "low": 0.6, "high": 0.8, "forgetting": 0.1, "difference": None,
    "difference_low": None, "difference_high": None, "p": None, "verdict": "best", "front": True,
    "seconds": 12.0, "bytes": 4200.0,
}  # fmt: skip
OTHER = {
    **FINALIST, "name": "loss=ce", "difference": -2.0, "difference_low": -2.25, "difference_high": -1.75,
    "p": 0.0008, "verdict": "worse", "front": False,
}  # fmt: skip
ADVICE = {
    "runs": ["a"],
    "sentences": ["Take loss=wsm."],
    "warnings": ["few clients"],
    "description": {"sentences": ["8 clients."]},
    "ranked": [FINALIST, OTHER],
    "ruled_out": [{"name": "lr=9", "reason": "did not converge"}],
}


def blocks(folder: Path, advice: object) -> list:
    run = write_run(folder / "a", rows=[{"round": 1, "name": "train_loss", "value": 1.0}])
    (folder / "advice.json").write_text(advice if isinstance(advice, str) else json.dumps(advice))
    return list(AdvicePanel().blocks(group([read(run)], lambda _note: None)))


def test_what_to_take_and_why(tmp_path):
    text, finalists, ruled_out = blocks(tmp_path, ADVICE)
    assert text.sentences == ("Take loss=wsm.", "8 clients.")
    assert text.note == "Warning: few clients."
    assert [[cell.text for cell in row.cells] for row in finalists.rows] == [
        ["loss=wsm", "70.0 %", "60.0 %", "80.0 %", "10.0 %", "–", "–", "–", "–", "best", "yes",
         "12 s", "4.2 kB"],
        ["loss=ce", "70.0 %", "60.0 %", "80.0 %", "10.0 %", "−2.0", "−2.2", "−1.8", "0.0008", "worse", "",
         "12 s", "4.2 kB"],
    ]  # fmt: skip
    assert finalists.rows[0].cells[1].best
    assert [cell.text for cell in ruled_out.rows[0].cells] == ["lr=9", "did not converge"]


def test_without_finalists_there_is_the_text(tmp_path):
    (text,) = blocks(tmp_path, {**ADVICE, "ranked": [], "ruled_out": []})
    assert text.id == "advice"


@pytest.mark.parametrize(
    "advice",
    [
        "[",
        "[]",
        "{}",
        {"runs": 1},
        {**ADVICE, "runs": ["b"]},
        {**ADVICE, "ranked": [{}]},
        {**ADVICE, "ranked": 3},
    ],
)
def test_what_is_no_advice_about_these_runs_is_left_out(tmp_path, advice):
    assert blocks(tmp_path, advice) == []
