"""Does `mnemos why` find a planted culprit? Ten small federations, each with one client that costs class 7.

    python benchmarks/culprit.py [--out FOLDER] [--seeds-from 100] [--from-the-start] [--stay-out] [SETTING] …

Client 0 of ten is the culprit. In `flips` it has the label 2 on all its samples of class 7. In `greedy` it
holds nothing of class 7 and 20 times the samples of an average client, so it makes 20 times the local steps;
clients have equal weights. In `reversed` it is a client with the fault `attack`, kind `label-flip`, which
reverses the order of all labels; that may cost class 7 or not, as it calls 2 what is 7, and 7 what is 2, so
these five are not of the ten. The digits are dealt out with Dirichlet proportions. The culprit joins in round
11 of 20, when the class has been learnt, and the question is about the rounds from then on; with
`--from-the-start` it is there from the first round, and the question is about all rounds. A setting is a
success if the culprit is ranked first for class 7. With `--stay-out` the rounds that are asked about are also
played once without each client, and clients are ranked by the mean accuracy that this wins.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import mnemos
from mnemos.data.partition import Ints
from mnemos.faults.attacks import Attack
from mnemos.runs.why.answer import Suspect

CLASS, WRONG, CLIENTS, TIMES, JOINS = 7, 2, 10, 20, 11
BASE: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [32]},
    "local": {"epochs": 2, "batch": 16, "lr": 0.1},
    "participation": 0.5,
    "rounds": 20,
    "evaluate": {"every": 20},
    "measures": [{"name": "ledger", "on": "test"}],
    "engine": "serial",
}
UNIFORM = {"weighting": "uniform"}
_FLIPS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "seed-1": {"seed": 1, "alpha": 0.3},
    "scaffold": {"method": "scaffold", "seed": 2},
    "fednova": {"method": "fednova", "seed": 3},
    "wsm": {"method": {"name": "fedavg", "loss": "wsm"}, "seed": 4},
}
TEN: dict[str, dict[str, Any]] = {
    **{f"flips-{name}": changes for name, changes in _FLIPS.items()},
    "greedy-fedavg": {"method": {"name": "fedavg", **UNIFORM}},
    "greedy-seed-1": {"method": {"name": "fedavg", **UNIFORM}, "seed": 1, "alpha": 0.3},
    "greedy-scaffold": {"method": {"name": "scaffold", **UNIFORM}, "seed": 2},
    "greedy-fedprox": {"method": {"name": "fedprox", **UNIFORM}, "seed": 3},
    "greedy-fedavgm": {"method": {"name": "fedavgm", **UNIFORM}, "seed": 4},
}
"""By name; the part before the first dash is the kind of culprit. `alpha` is the Dirichlet parameter."""
SETTINGS = {**TEN, **{f"reversed-{name}": changes for name, changes in _FLIPS.items()}}


class Found(NamedTuple):
    """How high the culprit is ranked for class 7, 1 being first; None: it isn't among the ranked clients."""

    culprit: int
    shapley: int | None
    leave_one_out: int | None
    slope: int | None
    stay_out: int | None
    text: str


def experiment(name: str, folder: Path, joins: int, more: int = 0) -> tuple[dict[str, Any], int]:
    """The experiment of a setting, and its culprit, which is away before round `joins`.

    `more` is added to the setting's seed.
    """
    changes = dict(SETTINGS[name])
    alpha, seed = changes.pop("alpha", 1.0), changes.get("seed", 0) + more
    changes["seed"] = seed
    described, culprit, faults = {**BASE, **changes}, 0, []
    if not name.startswith("reversed"):
        path = folder / f"{name}.npz"
        write_digits(path, alpha, seed, greedy=name.startswith("greedy"))
        described |= {"data": {"name": "npz", "path": str(path)}, "partition": {"name": "natural"}}
    else:
        described |= {"partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": alpha}}
        fault = Attack(kind="label-flip", share=1 / CLIENTS)
        (culprit,) = fault.clients(CLIENTS, seed).tolist()
        faults.append(fault.dump())
    if joins > 1:
        faults.append({"name": "absent", "who": [culprit], "last": joins - 1})
    return {**described, "faults": faults}, culprit


def write_digits(path: Path, alpha: float, seed: int, *, greedy: bool) -> None:
    """The digits, dealt out to ten clients, with client 0 as the culprit: `greedy`, or with flipped labels.

    Class 7 is dealt out evenly, so that a client with flipped labels has some to flip.
    """
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    owners: Ints = np.zeros(len(y), np.int64)
    for label in range(10):
        own, first = rng.permutation(np.flatnonzero(y == label)), int(greedy and label == CLASS)
        count = CLIENTS - first
        shares = np.full(count, 1 / count) if label == CLASS else rng.dirichlet([alpha] * count)
        cuts = (np.cumsum(shares)[:-1] * len(own)).astype(int)
        for client, part in enumerate(np.split(own, cuts), first):
            owners[part] = client
    tested = rng.random(len(y)) < 0.2
    images, given = x.reshape(-1, 8, 8).astype(np.uint8), y.copy()
    owners[tested] = -1
    mine, others = np.flatnonzero(owners == 0), np.flatnonzero(owners > 0)
    if greedy:
        mine = np.resize(mine, round(TIMES * len(others) / (CLIENTS - 1)))
    else:
        given[mine[y[mine] == CLASS]] = WRONG
    all_of = np.concatenate([others, mine])
    mnemos.write_npz(
        path, (images[all_of], given[all_of]), (images[tested], y[tested]), owners=owners[all_of]
    )


def find(name: str, folder: Path, joins: int, more: int = 0, *, stay_out: bool = False) -> Found:
    """Make the run of a setting, ask why class 7 was lost, and look up the culprit."""
    described, culprit = experiment(name, folder, joins, more)
    run = mnemos.run(described, out=folder / "runs", observer=False)
    clients = tuple(range(CLIENTS)) if stay_out else ()
    answer = run.why(mnemos.Question(cls=CLASS, rounds=(joins, BASE["rounds"]), stay_out=clients))
    suspects = answer.suspects
    by_one = sorted(suspects, key=lambda one: one.leave_one_out, reverse=True)
    by_slope = sorted(suspects, key=lambda one: one.slope or 0.0, reverse=True)
    first, one, slope = (_rank(order, culprit) for order in (suspects, by_one, by_slope))
    away = [found.client for found in answer.stayed_out]
    by_absence = away.index(culprit) + 1 if culprit in away else None
    return Found(culprit, first, one, slope, by_absence, answer.text)


def _rank(order: Sequence[Suspect], culprit: int) -> int | None:
    clients = [one.client for one in order]
    return clients.index(culprit) + 1 if culprit in clients else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "settings",
        nargs="*",
        help=f"of {', '.join(SETTINGS)}; the ten without the reversed when none is named",
    )
    parser.add_argument("--out", type=Path, help="folder for data and runs; else a temporary one")
    parser.add_argument("--seeds-from", type=int, default=0, help="added to the seed of each setting")
    parser.add_argument("--from-the-start", action="store_true", help="the culprit is there from round 1")
    parser.add_argument("--stay-out", action="store_true", help="play the rounds without each client, too")
    arguments = parser.parse_args()
    joins = 1 if arguments.from_the_start else JOINS
    with tempfile.TemporaryDirectory() as temporary:
        names = arguments.settings or list(TEN)
        found = {}
        for name in names:
            folder, more = arguments.out or Path(temporary), arguments.seeds_from
            one = found[name] = find(name, folder, joins, more, stay_out=arguments.stay_out)
            absence = f", staying out {one.stay_out}" if arguments.stay_out else ""
            print(
                f"{name:16s} client {one.culprit}: rank {one.shapley} "
                f"(leave-one-out {one.leave_one_out}, slope {one.slope}{absence})  {one.text}",
                flush=True,
            )
    first = sum(one.shapley == 1 for one in found.values())
    print(f"ranked first: {first} of {len(found)}")


if __name__ == "__main__":
    main()
