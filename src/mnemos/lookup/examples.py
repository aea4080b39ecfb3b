"""A command line for each part that uses it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mnemos.lookup.kinds import KINDS

if TYPE_CHECKING:
    from mnemos.lookup.info import PartInfo

_OF_LAYERS = (
    "condition-number",
    "effective-rank",
    "knowledge-gain",
    "rank",
    "stable-quality",
    "stable-rank",
)
_OWN = {
    "data/csv": "run --data my.csv",
    "data/elsewhere": "federate serve --help",
    "data/folder": "run --data my/images",
    "data/huggingface": "run data.name=huggingface data.repo=uoft-cs/cifar10 data.image=img",
    "data/npz": "run --data my.npz",
    "data/owners": "run data.name=owners 'data.paths=[a.npz, b.npz]' partition=natural",
    "data/parquet": "run --data my.parquet",
    "data/text": "run data.name=text data.path=my.csv --model text",
    "engines/flower": "federate serve --help",
    "faults/absent": "run 'faults=[{name: absent, who: [0, 1]}]'",
    "faults/drop-outs": "run 'faults=[{name: drop-outs, rate: 0.1}]'",
    "measures/continual": "run stream=tasks evaluate.test_every=10 'measures=[continual]'",
    "measures/task-forgetting": "run stream=tasks 'measures=[task-forgetting]'",
    **{f"measures/{name}": f"run --model cnn 'measures=[{name}]'" for name in _OF_LAYERS},
    "models/lenet": "run --data cifar10 --model lenet",
    "models/mixed": "run 'model={name: mixed, of: [{model: mlp}, {model: cnn}]}'",
    "optimizers/library": "run local.optimizer=library local.optimizer.path=torch.optim:RAdam",
    "optimizers/rmsgd": "run --model cnn local.optimizer=rmsgd",
    "partitions/natural": "run --data femnist partition=natural",
    "privacy/gaussian": "run privacy=gaussian method.weighting=uniform selection=poisson",
    "starts/file": "run start=file start.path=encoder.safetensors",
    "terms/representation": "run 'method.terms=[prototypes, representation]'",
    "weightings/blend": "run --model cnn 'method.weighting={effective-rank: 0.5, samples: 0.5}'",
    "weightings/scaled": "run 'method.weighting={name: scaled, of: samples, "
    "factors: [{client: 0, factor: 2}]}'",
}
"""Those that need more than their names."""


def example(part: PartInfo) -> str:
    """A command line with the part; options without a default that we know no value of are left out."""
    words = _OWN.get(f"{part.kind}/{part.name}")
    if words is None:
        words = f"run {KINDS[part.kind].use.replace('NAME', shlex.quote(part.name))}"
    return f"mnemos {words}"
