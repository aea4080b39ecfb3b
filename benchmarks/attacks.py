"""What attacks do to a federation, by the server's rule.

    python benchmarks/attacks.py --out attacks.jsonl [--seeds 0] [--rounds 30] [--kinds …] [--rules …]

100 clients of which 25 train in a round, and a share of whom sends something bad. Updates are screened as
always, and by norm; a round takes 20 usable ones. Each cell is a line of the file, and one that is there
isn't computed again: the script can be ended and started at any time. At the end the tables are printed.

It fails if a run ends before its last round, or if an update reaches the aggregate that is not finite, has
another shape, or was made in another round. Only the cells without the screen by norm may diverge.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from mnemos.errors import DivergedError
from mnemos.experiment import Experiment
from mnemos.faults.attacks import Attack, Kind
from mnemos.federation import Federation
from mnemos.methods.exchange import Update
from mnemos.vector import Layout

RULES = ("mean", "median", "trimmed-mean", "geometric-median", "krum", "multi-krum", "norm-bounded")
KINDS: tuple[str, ...] = get_args(Kind)
UNSCREENED = "scaled, without the screen"
SHARES = (5, 10, 20)
CLIENTS, FEWEST = 100, 20

Cell = dict[str, Any]


def described(rule: str, kind: str, percent: int, seed: int, rounds: int) -> Experiment:
    attack = {"name": "attack", "kind": "scaled" if kind == UNSCREENED else kind, "share": percent / 100}
    return Experiment.parse(
        {
            "data": "fashion-mnist",
            "model": {"name": "mlp", "hidden": [32]},
            "partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": 1.0},
            "participation": 0.25,
            "method": {"name": "fedavg", "weighting": "uniform", "rule": rule},
            "local": {"steps": 5, "batch": 32, "lr": 0.1},
            "rounds": rounds,
            "faults": [attack] if percent else [],
            "screens": [] if kind == UNSCREENED else ["norms"],
            "min_clients": 1 if kind == UNSCREENED else FEWEST,
            "retries": 20,
            "evaluate": {"every": rounds, "test_last": 5, "patience": 0},
            "engine": "vmap",
            "seed": seed,
        }
    )


def played(experiment: Experiment) -> Cell:
    """What becomes of an experiment: accuracy, who was rejected, how many attempts at a round were lost."""
    tests, rejected, honest, lost, reasons = [], 0, 0, 0, set()
    bad = {
        client
        for fault in experiment.faults
        if isinstance(fault, Attack)
        for client in fault.tamperers(CLIENTS, experiment.seed).tolist()
    }

    def check(update: Update, layout: Layout) -> None:
        assert update.delta.shape == (layout.size,)
        assert bool(torch.isfinite(update.delta).all())
        assert update.round == federation.round + 1

    with closing(Federation(experiment, checks=(check,))) as federation, federation.open() as runner:
        while federation.round < experiment.rounds:
            try:
                outcome = federation.advance(runner)
            except DivergedError:
                if experiment.screens:
                    raise
                return {"accuracy": None, "ended": federation.round + 1}
            found = [record for record in outcome.records if record.name.startswith("rejected")]
            rejected += sum(record.client in bad for record in found)
            honest += sum(record.client not in bad for record in found)
            reasons |= {record.name for record in found}
            lost += sum(record.name == "repeated" for record in outcome.records)
            tests += [outcome.test.accuracy] if outcome.test else []
    return {
        "accuracy": float(np.mean(tests)),
        "rejected": rejected,
        "honest_rejected": honest,
        "reasons": sorted(reasons),
        "lost": lost,
    }


def cells(args: argparse.Namespace) -> Iterator[tuple[str, str, int, int]]:
    """(rule, kind, share in percent, seed), the clean ones first."""
    yield from ((rule, "", 0, seed) for seed, rule in product(args.seeds, args.rules))
    for seed, percent, kind, rule in product(args.seeds, SHARES, args.kinds, args.rules):
        yield rule, kind, percent, seed


def known(path: Path) -> dict[tuple[str, str, int, int], Cell]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["rule"], row["kind"], row["percent"], row["seed"]): row for row in rows}


def tables(found: dict[tuple[str, str, int, int], Cell], args: argparse.Namespace) -> Iterator[str]:
    """Accuracy by attack and rule, and what was rejected and lost: means over seeds."""

    def mean(rule: str, kind: str, percent: int, what: str) -> float | None:
        values = [found[rule, kind, percent, seed].get(what) for seed in args.seeds]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    def accuracy(rule: str, kind: str, percent: int) -> str:
        value = mean(rule, kind, percent, "accuracy")
        return "NC" if value is None else f"{100 * value:.1f}"

    yield f"| attack | bad | {' | '.join(args.rules)} |\n|{'---|' * (len(args.rules) + 2)}"
    yield f"| nobody | 0 | {' | '.join(accuracy(rule, '', 0) for rule in args.rules)} |"
    for kind, percent in product(args.kinds, SHARES):
        row = " | ".join(accuracy(rule, kind, percent) for rule in args.rules)
        yield f"| {kind} | {percent} % | {row} |"
    yield "\n| attack | bad | bad updates rejected | honest ones | rounds lost |\n|---|---|---|---|---|"
    for kind, percent in [("", 0), *product([k for k in args.kinds if k != UNSCREENED], SHARES)]:
        spans = []
        for what in ("rejected", "honest_rejected", "lost"):
            values = [found[rule, kind, percent, seed][what] for rule in args.rules for seed in args.seeds]
            low, high = min(values), max(values)
            spans.append(str(low) if low == high else f"{low} to {high}")
        yield f"| {kind or 'nobody'} | {percent} % | {' | '.join(spans)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="lines of JSON, one a cell")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, UNSCREENED], default=[*KINDS, UNSCREENED])
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = known(args.out)
    for rule, kind, percent, seed in cells(args):
        if (rule, kind, percent, seed) in done:
            continue
        cell = played(described(rule, kind, percent, seed, args.rounds))
        row = {"rule": rule, "kind": kind, "percent": percent, "seed": seed, **cell}
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    print("\n".join(tables(known(args.out), args)))


if __name__ == "__main__":
    main()
