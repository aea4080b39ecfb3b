"""A trained model that is ready to use, and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mnemos.common.rng import generator
from mnemos.data.augment import normalise
from mnemos.errors import ConfigError, DataError
from mnemos.models.mixed import Ensemble
from mnemos.models.model import build_model
from mnemos.models.norm import use_batch_statistics
from mnemos.runs.trained.description import Description
from mnemos.vector import load_model

if TYPE_CHECKING:
    import pandas as pd

Choice = int | Literal["all"] | None
"""Which of several models: one by its number (a peer's: its client's), `all` for the mean of what they
predict, None for the federation's own."""

_CHUNK = 512
"""Samples that are predicted at a time."""


@dataclass(frozen=True)
class Predictions:
    """What a model predicts for some samples: a class and a probability for each."""

    inputs: tuple[str, ...]
    """The files' names, or the samples' numbers."""
    names: tuple[str, ...]
    """The classes' names."""
    probabilities: NDArray[np.float32]
    """Of each class [samples, classes]."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """The likeliest class of each sample, by number."""
        found: NDArray[np.int64] = self.probabilities.argmax(1)
        return found

    @property
    def classes(self) -> list[str]:
        """The likeliest class of each sample, by name."""
        return [self.names[label] for label in self.labels]

    @property
    def confidence(self) -> NDArray[np.float32]:
        """The probability of the likeliest class of each sample."""
        found: NDArray[np.float32] = self.probabilities.max(1)
        return found

    def likeliest(self, sample: int, count: int) -> list[tuple[str, float]]:
        """The `count` likeliest classes of a sample with their probabilities, the likeliest first."""
        order = np.argsort(-self.probabilities[sample], kind="stable")[:count]
        return [(self.names[label], float(self.probabilities[sample, label])) for label in order]

    def table(self) -> pd.DataFrame:
        """A data frame with a row per sample: input, class, probability, and `p(NAME)` of each class."""
        import pandas as pd  # slow to import

        each = {f"p({name})": column for name, column in zip(self.names, self.probabilities.T, strict=True)}
        columns = {"input": self.inputs, "class": self.classes, "probability": self.confidence, **each}
        return pd.DataFrame(columns)

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        shown = [
            f"{name}: {label} ({100 * share:.1f} %)"
            for name, label, share in zip(self.inputs[:10], self.classes, self.confidence, strict=False)
        ]
        more = [f"… and {len(self) - 10} more"] if len(self) > 10 else []
        return "\n".join([*shown, *more])

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><td>{escape(name)}</td><td>{escape(label)}</td><td>{100 * share:.1f} %</td></tr>"
            for name, label, share in zip(self.inputs[:50], self.classes, self.confidence, strict=False)
        ]
        more = f"<p>… and {len(self) - 50} more</p>" if len(self) > 50 else ""
        head = "<tr><th>input</th><th>class</th><th>probability</th></tr>"
        return f"<table>{head}{''.join(rows)}</table>{more}"


@dataclass(frozen=True, repr=False)
class TrainedModel:
    """A model with everything that is needed to use it: `mnemos.load` reads one, `predict` uses it."""

    about: Description
    body: nn.Module
    """The network with its trained weights; `module` is what also reads its outputs."""

    @cached_property
    def module(self) -> nn.Module:
        """An ordinary PyTorch module in evaluation mode, from scaled samples to the classes' logits."""
        return self.about.head.reader(self.body).eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.about.classes

    def predict(self, x: object, *, batch: int = _CHUNK, resize: bool = False) -> Predictions:
        """The classes of samples, with their probabilities.

        `x` is an array or tensor (one sample or a batch, in the units of the training data), a path of an
        image, npy, npz or csv file, a Pillow image, or a list of these. For a model of texts it is a text, a
        path of a txt, csv, jsonl or parquet file, or a list of these. `batch` samples are predicted at a
        time; with `resize`, images of another size are scaled.
        """
        from mnemos.runs.trained.inputs import read_samples  # Pillow is needed for nothing else here

        if batch < 1:
            raise ConfigError(f"found {batch}; allowed: 1 or more", "batch")
        samples = read_samples(x, self.about, resize=resize)
        found = torch.cat([self._probabilities(part) for part in torch.split(samples.x, batch)])
        return Predictions(tuple(samples.names), self.classes, found.numpy())

    @torch.no_grad()
    def _probabilities(self, samples: Tensor) -> Tensor:
        x = normalise(samples, torch.tensor(self.about.mean), torch.tensor(self.about.std))
        if self.about.batch_statistics and len(x) == 1:  # one sample has no statistics: it is doubled
            x = torch.cat([x, x])
        probabilities: Tensor = self.module(x)[: len(samples)].softmax(1)
        return probabilities

    def chosen(self, model: Choice, where: object) -> TrainedModel:
        """One of several models, or all of them as one; errors name `where` the models come from."""
        about, body = self.about, self.body
        if not isinstance(body, Ensemble):
            if model in (None, "all"):
                return self
            raise ConfigError(f"{where}: found the model {model!r}; it has one model alone")
        names: Sequence[int] = about.peers or range(about.branches)
        if model == "all" or (model is None and not about.peers):
            return self
        if model is None:
            raise ConfigError(
                f"{where}: each of {len(names)} clients has a model of its own; choose a client's with "
                f"--model {names[0]} (in Python, model={names[0]}), or the mean of what they predict with "
                "--model all"
            )
        if model not in names:
            of = "a client" if about.peers else "a model"
            raise ConfigError(
                f"{where}: found {model!r}; allowed: {of} from {min(names)} to {max(names)}, or all", "model"
            )
        index = names.index(model)
        return replace(self, about=about.branch(index), body=body.branches[index])

    def __repr__(self) -> str:
        about = self.about
        takes = f"texts of {about.shape[0]} words" if about.text else f"samples {tuple(about.shape)}"
        accuracy = "" if about.accuracy is None else f", {100 * about.accuracy:.1f} % accuracy"
        return f"<TrainedModel {type(about.model).name}: {takes} → {len(about.classes)} classes{accuracy}>"


def load_weights(about: Description, path: Path) -> TrainedModel:
    """The model of a description, with the weights of a safetensors file."""
    outputs = len(about.classes) * about.head.outputs
    try:
        body = build_model(about.model, about.sample_shape, outputs, generator(0, "model"))
    except ConfigError as error:
        raise DataError(f"{path}: its model can't be built: {error}") from None
    load_model(path, body)
    if about.batch_statistics:
        use_batch_statistics(body)
    return TrainedModel(about, body.eval())
