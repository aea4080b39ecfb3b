"""What learning metrics cost: all layers of a cohort at once, beside the straightforward way.

    python benchmarks/ranks.py [--clients 10] [--steps 8] [--repeats 3]

The straightforward way goes through clients, layers and unfoldings one by one, with a full singular value
decomposition of each and SciPy's bounded minimiser for the noise's variance, as published code does. Both
find the same metrics (effective rank, stable rank, knowledge gain, condition number) of a ResNet-18 with
random data, of weights with some signal in their noise. The round is that of the same clients, as many
steps of 64 images each (8: an epoch of 500 samples). All run in turn, in one process; printed are medians and
ratios.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from engine import Random
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.ranks.layers import QUANTITIES, Name
from mnemos.ranks.spectra import Spectra, ranked
from mnemos.vector import Kind, Layout

METRICS: tuple[Name, ...] = ("effective-rank", "stable-rank", "knowledge-gain", "condition-number")


def straightforward(models: Tensor, layout: Layout) -> Tensor:
    """The metrics of each client, layer and unfolding, one after the other."""
    rows = []
    for model in models:
        for slot in ranked(layout):
            weight = model[slot.start : slot.stop].view(slot.shape)
            for matrix in (weight.transpose(0, 1).flatten(1), weight.flatten(1)):
                _, values, _ = torch.linalg.svd(matrix, full_matrices=False)
                kept = _evbmf(values.double().numpy(), *sorted(matrix.shape))
                rows.append([float(QUANTITIES[name](kept, matrix.shape[0])) for name in METRICS])
    return torch.tensor(rows)


def _evbmf(values: np.ndarray, rows: int, columns: int) -> Tensor:
    alpha = rows / columns
    lowest = 2.5129 * math.sqrt(alpha)
    limit = (1 + lowest) * (1 + alpha / lowest)
    squares = values**2
    rest = squares[min(math.ceil(rows / (1 + alpha)) - 1, rows - 1) :]
    bounds = max(rest[0] / (columns * limit), rest.mean() / columns), squares.mean() / columns

    def energy(variance: float) -> float:
        x = squares / (columns * variance)
        noise, signal = x[x <= limit], x[x > limit]
        tau = (signal - 1 - alpha + np.sqrt((signal - 1 - alpha) ** 2 - 4 * alpha)) / 2
        kept = signal - tau + np.log((tau + 1) / signal) + alpha * np.log(tau / alpha + 1)
        return float((noise - np.log(noise)).sum() + kept.sum())

    variance = minimize_scalar(energy, bounds=bounds, method="bounded").x
    kept = squares > columns * variance * limit
    ratio = variance / squares[kept]
    linear = 1 - (rows + columns) * ratio
    shrunk = np.zeros_like(values)
    shrunk[kept] = values[kept] / 2 * (linear + np.sqrt(linear**2 - 4 * rows * columns * ratio**2))
    return torch.from_numpy(shrunk)


def together(models: Tensor, layout: Layout) -> Tensor:
    """The same, of all clients at once."""
    spectra = Spectra(models, layout)
    return torch.stack([spectra.of(QUANTITIES[name]) for name in METRICS], -1).view(-1, len(METRICS))


def trained(start: Tensor, layout: Layout, clients: int) -> Tensor:
    """Models with a signal of some rank over the noise of their start."""
    generator = torch.Generator().manual_seed(0)
    models = start.repeat(clients, 1)
    for slot in layout.parameters:
        if slot.kind is Kind.CONV:
            for model in models:
                weight = model[slot.start : slot.stop].view(slot.shape[0], -1)
                rank = max(1, slot.shape[0] // 16)
                left = torch.randn(slot.shape[0], rank, generator=generator)
                right = torch.randn(rank, weight.shape[1], generator=generator)
                weight += weight.std() * (left @ right) / math.sqrt(rank)
    return models


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8, help="local steps of the round it is compared with")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    experiment = Experiment.parse(
        {
            "data": Random(count=64 * args.clients, shape=(3, 32, 32)),
            "partition": {"name": "iid", "clients": args.clients, "validation": 0},
            "model": "resnet18",
            "local": {"steps": args.steps, "batch": 64},
            "participation": 1.0,
            "rounds": 1000,
            "evaluate": {"every": 1000, "test_last": 0},
            "engine": "threads",
        }
    )
    times: dict[str, list[float]] = {"straightforward": [], "together": [], "round": []}
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        layout = federation.layout
        models = trained(federation.server.model, layout, args.clients)
        together(models[:1], layout)
        for _ in range(args.repeats):
            times["together"].append(seconds(lambda: together(models, layout)))
            times["straightforward"].append(seconds(lambda: straightforward(models, layout)))
            times["round"].append(seconds(lambda: federation.advance(runner)))
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:16} {median:8.2f} s")
    print(f"together / straightforward {medians['together'] / medians['straightforward']:.3f}")
    print(f"together / round           {medians['together'] / medians['round']:.3f}")


if __name__ == "__main__":
    main()
