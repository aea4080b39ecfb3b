"""What one bad client of ten does to a federation with everything at its default, and without the guard.

    python benchmarks/one_client.py --out one-client.jsonl [--seeds 0 1 2] [--cases fedavg …] [--attacks …]
        [--rounds 40]
    python benchmarks/one_client.py --honest

Each cell (case, attack, guard, seed) is a line of the file, and one that is there isn't computed again: the
script can be ended and started at any time. At the end it prints the table, as means over seeds: accuracy
without the attack, with it, and with it when the guard is off (of the first seed alone); "ended" for a run
that stopped early.

With `--honest` nobody attacks: federations in which honest clients differ as much as they can are run for
long, and the updates are counted that the guard has touched all the same.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation

BASE: dict[str, Any] = {
    "data": "digits",
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 1.0},
    "participation": 1.0,
    "rounds": 40,
    "evaluate": {"every": 40, "test_last": 10, "patience": 0},
    "engine": "vmap",
}
_CNN = {"name": "cnn", "norm": "batch"}
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "scaffold": {"method": "scaffold"},
    "fednova": {"method": "fednova"},
    "batch-norm": {"model": _CNN},
    "fedspace": {
        "method": "fedspace",
        "local": {"optimizer": "adam", "lr": 0.003, "fill": True},
        "rounds": 20,
        "engine": "serial",
    },
}
ATTACKS: dict[str, dict[str, Any]] = {
    "one coordinate of 1e30": {"name": "attack", "kind": "coordinate"},
    "10⁶ Δ": {"name": "attack", "kind": "scaled"},
    "batch-norm means of 1e38": {"name": "attack", "kind": "means", "scale": 1e38},
    "batch-norm means of 900": {"name": "attack", "kind": "means"},
    "batch-norm variances of 900": {"name": "attack", "kind": "variances"},
    "uploads times 900": {"name": "attack", "kind": "beside"},
    "−Δ": {"name": "attack", "kind": "sign-flip"},
    "−9 Δ": {"name": "attack", "kind": "sign-flip", "scale": 9},
    "inner product": {"name": "collusion", "kind": "inner-product"},
    "inner product, times 9": {"name": "collusion", "kind": "inner-product", "scale": 9},
    "a little is enough": {"name": "collusion", "kind": "a-little"},
    "min-max": {"name": "collusion", "kind": "min-max"},
    "min-sum": {"name": "collusion", "kind": "min-sum"},
    "mimic": {"name": "collusion", "kind": "mimic"},
}
NOBODY = "nobody"

_SKEWED = {"name": "dirichlet", "clients": 30, "alpha": 0.1}
_SINGLE = {"name": "dirichlet", "clients": 30, "alpha": 0.01}
_LONG: dict[str, Any] = {
    "data": "digits",
    "partition": _SKEWED,
    "participation": 0.34,
    "rounds": 300,
    "local": {"epochs": 2, "lr": 0.05},
    "evaluate": {"every": 300, "patience": 0},
    "engine": "vmap",
}
HONEST: dict[str, dict[str, Any]] = {
    "α = 0.1": {},
    "α = 0.01": {"partition": _SINGLE},
    "5 per round, α = 0.01": {"partition": _SINGLE, "participation": 0.17},
    "5 per round, rate 0.2": {"participation": 0.17, "local": {"epochs": 1, "lr": 0.2}},
    "2 per round": {"participation": 0.07},
    "WSM, α = 0.1, rate 0.3": {
        "method": {"name": "fedavg", "loss": "wsm"},
        "local": {"epochs": 1, "lr": 0.3},
    },
    "SCAFFOLD, α = 0.01, rate 0.2": {
        "method": "scaffold",
        "partition": _SINGLE,
        "local": {"epochs": 1, "lr": 0.2},
    },
    "FedDyn": {"method": "feddyn"},
    "FedDyn, 5 per round, rate 0.1": {
        "method": "feddyn",
        "participation": 0.17,
        "local": {"epochs": 1, "lr": 0.1},
    },
    "unequal sizes": {"partition": {"name": "quantity", "clients": 30}},
    "FedNova, unequal sizes": {"method": "fednova", "partition": {"name": "quantity", "clients": 30}},
    "power-law sizes": {"partition": {"name": "power-law", "clients": 30}},
    "two labels per client": {"partition": {"name": "shards", "clients": 30}},
    "tasks": {"stream": {"name": "tasks", "tasks": 5}},
    "drift": {"stream": "drift"},
    "Adam": {"local": {"optimizer": "adam", "lr": 0.001}},
    "batch-norm": {"model": _CNN, "rounds": 60},
    "batch-norm, WSM, 5 per round, α = 0.01": {
        "model": _CNN,
        "rounds": 60,
        "partition": _SINGLE,
        "participation": 0.17,
        "method": {"name": "fedavg", "loss": "wsm"},
    },
    "FedAsync": {"clock": "fedasync"},
}

Key = tuple[str, str, bool, int]


def played(key: Key, rounds: int | None) -> dict[str, Any] | None:
    """What one cell comes to; None: there is nothing to attack in this way."""
    case, attack, guard, seed = key
    faults = [] if attack == NOBODY else [{**ATTACKS[attack], "share": 0.1}]
    changes: dict[str, Any] = {"faults": faults, "guard": {"enabled": guard}, "seed": seed}
    changes |= {} if rounds is None else {"rounds": rounds}
    experiment = Experiment.parse({**BASE, **CASES[case], **changes})
    try:
        federation = Federation(experiment)
    except ConfigError:
        return None
    tests, noted = [], Counter[str]()
    with closing(federation), federation.open() as runner:
        while federation.round < experiment.rounds:
            try:
                outcome = federation.advance(runner)
            except MnemosError:
                return {"accuracy": None, "rounds": federation.round}
            tests += [outcome.test.accuracy] if outcome.test else []
            noted.update(
                record.name for record in outcome.records if record.name.startswith(("rejected", "shortened"))
            )
    return {"accuracy": float(np.mean(tests)), "rounds": federation.round, "noted": dict(noted)}


def honest() -> Iterator[str]:
    """How many updates of honest clients were touched, by federation."""
    yield "| federation | updates | shortened | rejected |\n|---|---|---|---|"
    totals = np.zeros(3, int)
    for name, changes in HONEST.items():
        experiment = Experiment.parse({**_LONG, **changes})
        counts = Counter[str]()
        with closing(Federation(experiment)) as federation, federation.open() as runner:
            while federation.round < experiment.rounds:
                records = federation.advance(runner).records
                counts.update(
                    record.name.partition(":")[0] for record in records if record.client is not None
                )
        rejected, shortened = counts["rejected"], counts["shortened"]
        found = np.array([counts["train_loss"] + rejected, shortened, rejected])
        totals += found
        yield f"| {name} | {' | '.join(map(str, found))} |"
    yield f"| all | {' | '.join(map(str, totals))} |"


def known(path: Path) -> dict[Key, dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["case"], row["attack"], row["guard"], row["seed"]): row for row in rows}


def cells(args: argparse.Namespace) -> Iterator[Key]:
    """Those without the guard come last: they show what it is for, and not what is promised."""
    pairs = list(product(args.cases, [NOBODY, *args.attacks]))
    yield from ((case, attack, True, seed) for (case, attack), seed in product(pairs, args.seeds))
    yield from ((case, attack, False, args.seeds[0]) for case, attack in pairs)


def table(found: dict[Key, dict[str, Any]], args: argparse.Namespace) -> Iterator[str]:
    def accuracy(rows: list[dict[str, Any]]) -> str:
        values = [row["accuracy"] for row in rows]
        if any(value is None for value in values):
            return f"ended in round {min(row['rounds'] for row in rows if row['accuracy'] is None) + 1}"
        return f"{100 * np.mean(values):.1f}"

    yield "| case | attack | accuracy | lost | most lost, of seeds | noted | without the guard |"
    yield "|---|---|---|---|---|---|---|"
    for case, attack in product(args.cases, [NOBODY, *args.attacks]):
        rows = [found[case, attack, True, seed] for seed in args.seeds]
        if any(row.get("refused") for row in rows):
            continue
        clean = [found[case, NOBODY, True, seed]["accuracy"] for seed in args.seeds]
        here, off = accuracy(rows), accuracy([found[case, attack, False, args.seeds[0]]])
        lost = most = "–"
        if all(row["accuracy"] is not None for row in rows):
            losses = [100 * (before - row["accuracy"]) for before, row in zip(clean, rows, strict=True)]
            lost, most = f"{np.mean(losses):.1f}", f"{max(losses):.1f}"
        noted = Counter[str]()
        for row in rows:
            noted.update(row.get("noted", {}))
        words = ", ".join(f"{count} {name}" for name, count in noted.items()) or "–"
        yield f"| {case} | {attack} | {here} | {lost} | {most} | {words} | {off} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="lines of JSON, one per cell")
    parser.add_argument("--honest", action="store_true", help="count what the guard does to honest clients")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, help="instead of the case's own; take another file for them")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    args = parser.parse_args()
    if (args.out is None) is not args.honest:
        parser.error("take either --out or --honest")
    torch.set_num_threads(1)
    if args.honest:
        for line in honest():
            print(line, flush=True)
        return
    done = known(args.out)
    for case, attack, guard, seed in cells(args):
        if (case, attack, guard, seed) in done:
            continue
        cell = played((case, attack, guard, seed), args.rounds) or {
            "accuracy": None,
            "rounds": 0,
            "refused": True,
        }
        row = {"case": case, "attack": attack, "guard": guard, "seed": seed, **cell}
        with args.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
    print("\n".join(table(known(args.out), args)))


if __name__ == "__main__":
    main()
