"""What the recipes of the claims cost: processor time of what is finished, and estimates of the rest.

An estimate is the number of samples a run trains on, times what a sample costs its model, which `measure`
finds out from a few steps on random images. It is processor time of one core, so a busy machine hardly
changes it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from claim_runs import FOLDER, Line, cells_of, recipe_of
from claim_table import NOTHING, markdown
from mnemos.common.files import write_atomically
from mnemos.data.partitions.whole import Whole
from mnemos.experiment.experiment import Experiment
from mnemos.methods.presets.centralised import Centralised

SPEEDS = FOLDER / "speeds.json"
"""Processor seconds a trained sample costs, by `kind`."""
_TRAIN = {"fashion-mnist": 60_000, "femnist": 53_000}
_CIFAR, _TEST, _FORWARD = 50_000, 10_000, 1 / 3
"""Images to train on, unless said above; images to test on; what it costs to look at one and not to learn."""
_LONG_ENOUGH = 2.0
_HEADER = (
    "recipe",
    "runs",
    "finished",
    "core hours so far",
    "of all, estimated",
    "paper's setting, estimated",
)


def kind(experiment: Experiment) -> str:
    """Experiments of one kind have the same cost of a sample: model, width, size of images and of batches."""
    model = experiment.model
    grey = type(experiment.data).name in _TRAIN
    side = "1×28×28" if grey else "3×32×32"
    width = f" of width {model.width:g}" if hasattr(model, "width") else ""
    return f"{type(model).name}{width}, {side}, batches of {experiment.local.batch}"


def samples(experiment: Experiment) -> float:
    """Samples a run trains on; one that is only evaluated counts as a third."""
    partition, local, when = experiment.partition, experiment.local, experiment.evaluate
    method = experiment.method
    held = _TRAIN.get(type(experiment.data).name, _CIFAR)
    learners = max(1, math.floor(experiment.participation * partition.clients + 1e-9))
    if isinstance(method, Centralised) and method.budget == "client":
        learners = 1
    own = held if isinstance(partition, Whole) else held / partition.clients
    epoch = math.ceil(own * (1 - partition.validation) / local.batch)
    trained = experiment.rounds * learners * (local.steps or local.epochs * epoch) * local.batch
    rounds = range(1, experiment.rounds + 1)
    tests = sum(when.tests(number, experiment.rounds) for number in rounds)
    validations = sum(when.validates(number, experiment.rounds) for number in rounds)
    tested = _TEST * tests + held * partition.validation * validations
    return trained * method.head.outputs + _FORWARD * tested


def measure(experiment: Experiment) -> float:
    """Processor seconds that a sample costs in a step of training, on one core."""
    shape = (1, 28, 28) if type(experiment.data).name in _TRAIN else (3, 32, 32)
    torch.set_num_threads(1)
    model = experiment.model.build(shape, 10)
    batch = torch.randn(experiment.local.batch, *shape)
    labels = torch.arange(len(batch)) % 10

    def step() -> None:
        F.cross_entropy(model(batch), labels).backward()  # type: ignore[no-untyped-call]

    step()
    begin, passed, steps = time.process_time(), 0.0, 0
    while not steps or passed < _LONG_ENOUGH:
        step()
        steps += 1
        passed = time.process_time() - begin
    return passed / (steps * len(batch))


def measure_all(recipes: Iterable[str], path: Path = SPEEDS) -> dict[str, float]:
    """Each kind of experiment once, in the small settings and in the papers'; written down."""
    found: dict[str, float] = {}
    for name in recipes:
        for cell in (*cells_of(name), *recipe_of(name).of(1.0)):
            key = kind(cell.experiment)
            if key not in found:
                found[key] = float(f"{measure(cell.experiment):.3g}")
    write_atomically(path, (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())
    return found


def read_speeds(path: Path = SPEEDS) -> dict[str, float]:
    """What has been measured."""
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return known


def costs(recipes: Iterable[str], lines: Sequence[Line], speeds: Mapping[str, float]) -> str:
    """A line a recipe: its runs, the processor time of those that are finished, and what all will take."""
    rows = []
    for name in recipes:
        recipe, cells = recipe_of(name), cells_of(name)
        names = {f"{name}: {cell.name}" for cell in cells}
        known = [line["seconds"] for line in lines if names & {*line["cells"]}]
        small, full = (
            {cell.experiment.hash(): cell.experiment for cell in size} for size in (cells, recipe.of(1.0))
        )
        seeds = len(recipe.seeds)
        rows.append(
            (
                f"`{name}`",
                str(len(small) * seeds),
                str(len(known)),
                f"{sum(known) / 3600:.1f}",
                _duration(seeds, small.values(), speeds),
                _duration(seeds, full.values(), speeds),
            )
        )
    return markdown(_HEADER, rows)


def _duration(seeds: int, experiments: Iterable[Experiment], speeds: Mapping[str, float]) -> str:
    each = [samples(one) * speeds.get(kind(one), math.nan) for one in experiments]
    hours = seeds * sum(each) / 3600
    if math.isnan(hours):
        return NOTHING
    return f"{hours:.1f} hours" if hours < 100 else f"{hours / 24:.0f} days"
