"""Different models for different clients, and their ensemble."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from mnemos.common.registry import Options
from mnemos.errors import ConfigError
from mnemos.models.model import Model, check_output, check_samples, models


class CoDistillation(Options):
    """Models learn from each other's predictions on shared unlabelled samples (Sodhani et al., 2020).

    arXiv 2010.02838. The samples are set aside before clients get theirs, and their labels aren't used.

    After a round each model w takes gradient steps on T² KL(p ‖ q), the mean over the samples, with
    q = softmax(f_w / T) and p the mean of the others' softmax(f / T) from before the exchange.
    """

    samples: int = Field(
        200, ge=1, description="how many, drawn from the training samples before clients get theirs"
    )
    lr: float = Field(0.1, gt=0, description="rate of the steps")
    steps: int = Field(5, ge=1, description="how many, over all the samples each")
    every: int = Field(1, ge=1, description="rounds from one exchange to the next")
    temperature: float = Field(1.0, gt=0, description="T: the higher, the softer the predictions")


class Share(Options):
    """One of the models, and the share of the clients that have it."""

    model: Annotated[Model, models]
    """The model."""
    share: float = Field(1.0, gt=0, description="of the clients, beside the others' shares")


@models.register("mixed")
class Mixed(Model):
    """Each client has one of several models; clients with the same model are averaged.

    The federation's model is the ensemble of these models: it predicts the mean of their probabilities.
    """

    shared: ClassVar[bool] = False
    takes_tokens: ClassVar[bool] = True

    of: tuple[Share, ...] = Field(min_length=1, description="the models and their shares of the clients")
    exchange: CoDistillation | None = Field(None, description="how models learn from each other")
    peers: bool = Field(
        False, description="no server and no averaging: every client keeps a model of its own"
    )

    @property
    def serverless(self) -> bool:
        """With `peers: true`."""
        return self.peers

    @property
    def exchange_samples(self) -> int | None:
        """Those of `exchange`."""
        return None if self.exchange is None else self.exchange.samples

    @model_validator(mode="after")
    def _something_to_mix(self) -> Mixed:
        if len(self.of) == 1 and not self.peers:
            raise ValueError("found one model; allowed: two or more, or one with peers: true")
        if any(isinstance(share.model, Mixed) for share in self.of):
            raise ValueError("found mixed models among the models; allowed: all other models")
        return self

    @property
    def mixture(self) -> Mixed:
        """This one."""
        return self

    def build(self, shape: tuple[int, ...], classes: int) -> Ensemble:
        """The ensemble of all models, each with the initial weights that it would have alone."""
        state = torch.get_rng_state()
        branches = []
        for index, share in enumerate(self.of):
            torch.set_rng_state(state)
            try:
                check_samples(share.model, shape)
                branch = share.model.build(shape, classes)
                check_output(branch, shape, classes)
            except ConfigError as error:
                raise error.under(f"of.{index}.model") from error
            branches.append(branch)
        return Ensemble(branches)


class Ensemble(nn.Module):
    """The logarithm of the mean of the branches' probabilities, in place of logits."""

    def __init__(self, branches: Iterable[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """log p̄ [B, classes]."""
        return mean_prediction([branch(x) for branch in self.branches])


def mean_prediction(logits: list[Tensor]) -> Tensor:
    """log (1/n Σ softmax(fᵢ)) of n models' logits [B, classes]."""
    return torch.stack(logits).log_softmax(-1).logsumexp(0) - math.log(len(logits))
