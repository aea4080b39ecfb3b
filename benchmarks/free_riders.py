"""How many free riders the screen finds, and how many honest clients it accuses.

    python benchmarks/free_riders.py [--rounds 100] [--data cifar10] [--model lenet] [--alphas 0.1 0.5]

One of ten clients rides free in every round: it sends the model as it came, noise, or a multiple of the
global model's last change. Whoever is accused is put aside, so that later rounds are those of a screened
federation. Printed is a row a setting: riders found and honest clients accused, of all (client, round) pairs.
"""

from __future__ import annotations

import argparse
from contextlib import closing

from mnemos.experiment.experiment import Experiment
from mnemos.faults.fault import Pretence
from mnemos.federation.federation import Federation

RIDERS: dict[str, dict[str, object]] = {
    "nobody": {},
    "unchanged": {"kind": "unchanged"},
    "noise": {"kind": "noise"},
    "noise, a tenth as large": {"kind": "noise", "scale": 0.1},
    "noise, ten times as large": {"kind": "noise", "scale": 10.0},
    "replay": {"kind": "replay"},
    "replay, halved": {"kind": "replay", "scale": 0.5},
    "replay, doubled": {"kind": "replay", "scale": 2.0},
}


def described(args: argparse.Namespace, alpha: float, kind: str) -> Experiment:
    riders = [{"name": "free-riders", "share": 0.1, **RIDERS[kind]}] if RIDERS[kind] else []
    return Experiment.parse(
        {
            "data": args.data,
            "model": args.model,
            "partition": {"name": "dirichlet", "clients": 10, "alpha": alpha},
            "participation": 1.0,
            "local": {"steps": args.steps, "batch": 64, "lr": 0.05},
            "rounds": args.rounds,
            "faults": riders,
            "screens": ["free-riders"],
            "evaluate": {"every": args.rounds, "test_last": 1, "patience": 0},
            "seed": args.seed,
        }
    )


def judged(experiment: Experiment) -> tuple[int, int, int, int, float]:
    """(riders found, riders, honest accused, honest, final test accuracy)."""
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        riders = {
            client
            for fault in experiment.faults
            if isinstance(fault, Pretence)
            for client in fault.clients(federation.assignment.clients, experiment.seed).tolist()
        }
        found = accused = 0
        for _ in range(experiment.rounds):
            outcome = federation.advance(runner)
            named = {r.client for r in outcome.records if r.name.startswith("rejected: free rider")}
            found += len(named & riders)
            accused += len(named - riders)
    assert outcome.test is not None
    rounds = experiment.rounds
    return found, rounds * len(riders), accused, rounds * (10 - len(riders)), outcome.test.accuracy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="local steps a round")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--kinds", nargs="+", choices=list(RIDERS), default=list(RIDERS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| α | free rider | found | honest accused | test accuracy |\n|---|---|---|---|---|")
    for alpha in args.alphas:
        for kind in args.kinds:
            found, riders, accused, honest, accuracy = judged(described(args, alpha, kind))
            share = f"{found} of {riders}" if riders else "–"
            print(f"| {alpha} | {kind} | {share} | {accused} of {honest} | {accuracy:.3f} |", flush=True)


if __name__ == "__main__":
    main()
