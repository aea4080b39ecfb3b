"""Metrics read at once are those read line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mnemos.errors import DataError
from mnemos.runs import store

ROWS = [
    {"round": 1, "name": "train_loss", "value": 2.5, "client": 3},
    {"round": 1, "name": "train_loss", "value": None},
    {"round": 1, "name": "bytes_up", "value": 12},
    {"round": 2, "name": "after_accuracy", "value": 0.25, "client": 3, "model": 7},
    {"round": 2, "name": "before_accuracy", "value": 0.5, "class": 1, "task": 0},
]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "metrics.jsonl"
    path.write_text("".join(lines))
    return path


def line_by_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    with monkeypatch.context() as patch:
        patch.setattr(store, "_read_whole", lambda _path: None)
        return store.read_metrics(path)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_both_ways_agree(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, *(json.dumps(row) + "\n" for row in ROWS[:count]), '{"round": 9, "na')
    frame = store.read_metrics(path)
    pd.testing.assert_frame_equal(frame, line_by_line(path, monkeypatch))
    assert len(frame) == count
    assert store._read_whole(path) is not None


def test_missing_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = store.read_metrics(tmp_path / "metrics.jsonl")
    pd.testing.assert_frame_equal(frame, line_by_line(tmp_path / "metrics.jsonl", monkeypatch))


@pytest.mark.parametrize(
    "damage",
    [
        "{\n",
        "\n",
        "[1]\n",
        '{"round": 1, "name": "a"},{"round": 1, "name": "a"}\n',
        '{"round": "1", "name": "a", "value": 1}\n',
        '{"round": 1, "name": 5, "value": 1}\n',
        '{"round": 1, "name": "a", "value": "high"}\n',
        '{"round": 1, "name": "a", "value": 1, "client": 0.5}\n',
        '{"round": 1, "name": "a", "value": 1, "client": true}\n',
        '{"round": 1, "name": "a", "value": 1, "client": -1}\n',
        '{"round": 1, "name": "a", "value": 1, "class": 2147483648}\n',
        f'{{"round": 1, "name": "a", "value": {"9" * 400}}}\n',
        '{"name": "a", "value": 1}\n',
        '{"round": 1, "name": "\\ud800", "value": 1}\n',
    ],
)
def test_says_which_line_is_damaged(damage: str, tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(ROWS[0]) + "\n", damage, json.dumps(ROWS[1]) + "\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 2 is damaged"):
        store.read_metrics(path)
