"""ε in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from synthetic import overall, write_run

from mnemos.report.blocks import Table
from mnemos.report.groups import group
from mnemos.report.panel import panels
from mnemos.report.reading import read
from mnemos.runs.run import Run

FACTS = {
    "delta": 1e-5,
    "noise": 1.5,
    "update_noise": 1.5,
    "clip": 0.5,
    "adaptive": False,
    "at": "server",
    "secret": False,
    "sampling": "3 of 12 clients, without replacement",
    "relation": "a client has its own data or any other",
    "budget": None,
    "rounds": 3,
}


def private(
    path: Path, facts: dict[str, Any], epsilons: list[float], clips: list[float], seed: int = 0
) -> Run:
    options = {"name": "gaussian", "adaptive": {} if facts["adaptive"] else None}
    rows = [*overall("epsilon", epsilons), *overall("clip", clips)]
    changes = {"privacy": options, "seed": seed, "rounds": 3}
    run = write_run(path, changes, rows=rows, rounds=len(epsilons))
    (path / "privacy.json").write_text(json.dumps(facts))
    return run


def shown(*runs: Run) -> list[list[str]]:
    blocks = panels["privacy"]().blocks(group([read(run) for run in runs], lambda _note: None))
    return [
        [cell.text for cell in row.cells[1:]]
        for table in blocks
        if isinstance(table, Table)
        for row in table.rows
    ]


def test_epsilon_and_all_that_it_speaks_of(tmp_path: Path) -> None:
    """Of the seed that has gone furthest; a run without privacy has no row."""
    behind = private(tmp_path / "0", FACTS, [1.0, 1.4], [0.5, 0.5])
    ahead = private(tmp_path / "1", FACTS, [1.0, 1.4, 1.75], [0.5, 0.5, 0.5], seed=1)
    plain = write_run(tmp_path / "plain", {"rounds": 3})
    sampling, relation = FACTS["sampling"], FACTS["relation"]
    assert shown(behind, ahead, plain) == [
        ["1.75", "1e-05", "–", "3", "1.5", "0.5", "server", "no", sampling, relation]
    ]
    assert shown(plain) == []


def test_a_bound_that_moves_and_a_budget(tmp_path: Path) -> None:
    facts = {**FACTS, "adaptive": True, "update_noise": 1.732, "budget": 2.0, "secret": True, "at": "clients"}
    (row,) = shown(private(tmp_path / "0", facts, [1.0, 1.4], [0.5, 0.25]))
    assert row[2:8] == ["2", "2", "1.5 (1.73)", "0.5 → 0.25", "clients", "yes"]


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    assert shown(private(tmp_path / "0", FACTS, [], [])) == []
