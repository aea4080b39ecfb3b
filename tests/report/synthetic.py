"""Run directories with made-up numbers, written directly: a report needs no training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mnemos.experiment.experiment import load_experiment
from mnemos.report.blocks import Block, Table
from mnemos.report.groups import group
from mnemos.report.panel import panels
from mnemos.report.reading import read
from mnemos.runs.run import Run

MetricRows = Iterable[Mapping[str, Any]]

BASE = {"data": "digits", "partition": {"clients": 12}, "participation": 0.25, "engine": "serial"}


def write_run(
    path: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    rows: MetricRows = (),
    status: str = "finished",
    accuracy: float | None = None,
    rounds: int | None = None,
    seconds: Sequence[float] = (),
    message: str = "",
) -> Run:
    """A run with these metrics and this end."""
    path.mkdir(parents=True)
    experiment = load_experiment(BASE, changes)
    done = experiment.rounds if rounds is None else rounds
    (path / "experiment.yaml").write_text(experiment.to_yaml())
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = ({"round": place, "seconds": value} for place, value in enumerate(seconds, 1))
    (path / "timing.jsonl").write_text("".join(json.dumps(time) + "\n" for time in times))
    ended = {"status": status, "rounds": done, "accuracy": accuracy, "message": message}
    (path / "status.json").write_text(json.dumps(ended))
    (path / "environment.json").write_text(json.dumps({"mnemos": "0.1.0", "python": "3.11.9"}))
    return Run(path)


def overall(name: str, values: Mapping[int, float] | Sequence[float | None]) -> MetricRows:
    """A metric of the whole federation, by round."""
    by_round = values if isinstance(values, Mapping) else dict(enumerate(values, 1))
    return [{"round": number, "name": name, "value": value} for number, value in by_round.items()]


def matrix(
    number: int, before: Sequence[float], after: Sequence[Sequence[float]], clients: Sequence[int]
) -> MetricRows:
    """The forgetting of a round, as a run records it."""
    lost = np.array(before) - np.array(after)
    others = ~np.eye(len(clients), dtype=bool)
    of = [lost[others[:, k], k].mean() for k in range(len(clients)) if len(clients) > 1]
    yield from (
        {"round": number, "name": "before_accuracy", "client": k, "value": value}
        for k, value in zip(clients, before, strict=True)
    )
    yield from (
        {"round": number, "name": "after_accuracy", "client": k, "model": i, "value": value}
        for i, row in zip(clients, after, strict=True)
        for k, value in zip(clients, row, strict=True)
    )
    if of:
        yield {"round": number, "name": "forgetting", "value": float(np.mean(of))}
    yield {"round": number, "name": "own_accuracy", "value": float(np.diag(np.array(after)).mean())}


def full_rows(
    seed: int, rounds: int, every: int, forgetting: int, cohort: int, top: float = 0.8
) -> MetricRows:
    """All that a run with every measure records; accuracy climbs towards `top`."""
    draw = np.random.default_rng(seed)
    for number in range(1, rounds + 1):
        for name, value in (
            ("train_loss", 2.3 * np.exp(-3 * number / rounds) + 0.05 * draw.random()),
            ("bytes_up", 250_000.0),
            ("bytes_down", 500_000.0),
        ):
            yield {"round": number, "name": name, "value": float(value)}
        accuracy = top * (1 - np.exp(-4 * number / rounds)) + 0.02 * draw.standard_normal()
        if number == 1 or number % forgetting == 0:
            clients = np.sort(draw.choice(100, cohort, replace=False)).tolist()
            after = np.clip(accuracy + 0.2 * draw.standard_normal((cohort, cohort)), 0, 1).round(2)
            before = np.clip(accuracy + 0.1 * draw.standard_normal(cohort), 0, 1).round(2)
            yield from matrix(number, before.tolist(), after.tolist(), clients)
        if number % every == 0:
            yield {"round": number, "name": "validation_accuracy", "value": float(accuracy)}
            yield {"round": number, "name": "validation_loss", "value": float(2 * (1 - accuracy))}
    yield {"round": rounds, "name": "test_accuracy", "value": top}


def detailed_rows(seed: int, number: int) -> MetricRows:
    """The measures by class, by client, and personalised, of one round."""
    draw = np.random.default_rng(seed)
    for label in range(10):
        yield {"round": number, "name": "test_accuracy", "class": label, "value": float(draw.random())}
    for client in range(12):
        yield {
            "round": number,
            "name": "validation_accuracy",
            "client": client,
            "value": float(draw.random()),
        }
    for name in (
        "personalised_test_accuracy",
        "plain_test_accuracy",
        "personalised_accuracy",
        "plain_accuracy",
    ):
        for ending in ("", "_worst_tenth"):
            yield {"round": number, "name": f"{name}{ending}", "value": float(draw.random())}


LAYERS = ("conv1.weight", "conv2.weight", "fc.weight")


def layered_rows(seed: int, rounds: int, clients: Sequence[int], every: int = 5) -> MetricRows:
    """Weights of clients in every round, and metrics of layers now and then, of clients' models too."""
    draw = np.random.default_rng(seed)
    for number in range(1, rounds + 1):
        for client in clients:
            for layer in LAYERS:
                share = (1 + 0.1 * draw.standard_normal()) / len(clients)
                yield {"round": number, "name": "weight", "client": client, "layer": layer, "value": share}
        if number % every:
            continue
        for whose in ({}, *({"model": client} for client in clients)):
            for layer in LAYERS[:-1]:
                value = float(draw.uniform(1, 4))
                yield {"round": number, "name": "effective_rank", "layer": layer, "value": value, **whose}
            yield {"round": number, "name": "effective_rank_network", "value": value, **whose}


def many_runs(
    folder: Path,
    runs: int = 200,
    rounds: int = 1000,
    seeds: int = 1,
    forgetting: int = 20,
    different: int | None = None,
) -> None:
    """As many runs as a large sweep has: losses × learning rates × heterogeneity × seeds.

    Of the runs' numbers so many are different: to make up those of all takes longer than to read them.
    """
    made: dict[int, list[Mapping[str, Any]]] = {}
    losses = ("ce", "wsm", "tce", "balanced")
    for place in range(runs):
        seed, variant = place % seeds, place // seeds
        loss, rest = losses[variant % 4], variant // 4
        lr, alpha = (0.003, 0.01, 0.03, 0.1, 0.3)[rest % 5], round(0.05 * (1 + rest // 5), 3)
        top = 0.4 + 0.1 * (variant % 4) + 0.05 * (rest % 5)
        key = place % (different or runs)
        if key not in made:
            made[key] = [*full_rows(place, rounds, 10, forgetting, 10, top)]
        write_run(
            folder / f"digits-fedavg-{loss}-s{seed}-{place:04d}",
            {"method.loss": loss, "local.lr": lr, "partition.alpha": alpha, "seed": seed, "rounds": rounds},
            rows=made[key] if different else made.pop(key),
            accuracy=top,
            seconds=[0.5] * rounds,
        )


def blocks(panel: str, *runs: Run) -> dict[str, Block]:
    """A panel's blocks of some runs, by id."""
    groups = group([read(run) for run in runs], lambda _note: None)
    return {block.id: block for block in panels[panel]().blocks(groups)}


def texts(table: Block) -> list[list[str]]:
    """What a table's cells show."""
    assert isinstance(table, Table)
    return [[cell.text for cell in row.cells] for row in table.rows]
