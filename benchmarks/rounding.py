"""How far apart rounding takes clients: vmap beside serial, and serial beside itself from a nudged model.

    python benchmarks/rounding.py [--clients 4] [--steps 1 5 20] [--seed 0]

The same clients make the same steps on CIFAR-10, on the same batches: on `serial`, on `vmap`, and twice more
on `serial` from an initial model of which every number is nudged up or down at random, by a millionth of
itself and by one unit in its last place. Printed is the distance of a client's result from that of `serial`,
as a share of the distance that its model has moved: median and largest of the clients.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mnemos.common import rng
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply
from mnemos.vector import Layout

MODELS: dict[str, Any] = {
    "MLP": "mlp",
    "LeNet": "lenet",
    "ResNet-10, group-norm": {"name": "resnet10", "width": 0.125, "norm": "group"},
    "ResNet-10, batch-norm": {"name": "resnet10", "width": 0.125, "norm": "batch"},
}

Nudge = Callable[[Tensor], Tensor]


def _millionth(model: Tensor) -> Tensor:
    return model * (1 + 1e-6 * _signs(model))


def _last_place(model: Tensor) -> Tensor:
    return torch.nextafter(model, _signs(model) * torch.inf)


def _signs(model: Tensor) -> Tensor:
    drawn = torch.rand(len(model), generator=rng.generator(0, "rounding"))
    return torch.where(drawn < 0.5, -1.0, 1.0)


WAYS: dict[str, tuple[str, Nudge | None]] = {
    "`vmap`": ("vmap", None),
    "a millionth": ("serial", _millionth),
    "the last place": ("serial", _last_place),
}
"""What is compared with `serial`: the engine, and what is done to the initial model."""


def trained(experiment: Experiment, nudge: Nudge | None) -> tuple[Tensor, Tensor]:
    """Every client's change of the model, and its model, after a round [clients, parameters]."""
    changes: list[Tensor] = []

    def note(update: TrainReply, _layout: Layout) -> None:
        changes.append(update.delta.double())

    federation = Federation(experiment, checks=(note,))
    if nudge is not None:
        federation.server = replace(federation.server, model=nudge(federation.server.model))
    start = federation.server.model.double()
    with closing(federation), federation.open() as runner:
        federation.advance(runner)
    moved = torch.stack(changes)
    return moved, start + moved


def rows(args: argparse.Namespace) -> Iterator[str]:
    yield f"| model | steps | {' | '.join(WAYS)} |"
    yield f"|---|---|{'---|' * len(WAYS)}"
    for name, model in MODELS.items():
        for steps in args.steps:
            base = Experiment.parse(
                {
                    "data": "cifar10",
                    "partition": {"name": "iid", "clients": args.clients, "validation": 0},
                    "participation": 1.0,
                    "model": model,
                    "local": {"steps": steps, "batch": 16, "lr": 0.05},
                    "rounds": 1,
                    "evaluate": {"every": 2, "test_last": 0, "patience": 0},
                    "engine": "serial",
                    "seed": args.seed,
                }
            )
            moved, ends = trained(base, None)
            cells = []
            for engine, nudge in WAYS.values():
                _, others = trained(base.override({"engine": engine}), nudge)
                shares = 100 * (others - ends).norm(dim=1) / moved.norm(dim=1)
                cells.append(f"{float(shares.median()):.2g} %, {float(shares.max()):.2g} %")
            yield f"| {name} | {steps} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--seed", type=int, default=0)
    for line in rows(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
