"""Learning metrics of the model, from the singular values of its layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.measures.measure import Measure, Moment, Occasions, Opening, Record, Watch, measures
from mnemos.ranks.layers import QUANTITIES, Aggregation, Name, network_value
from mnemos.ranks.spectra import Spectra, ranked
from mnemos.vector import Layout


class Ranks(Measure):
    """A metric of each convolution (column `layer`, the mean of its two sides) and of the whole network.

    It is measured after EVBMF has removed the noise, or with `noisy` before; names then end in `_noisy`. The
    network's metric, whose name ends in `_network`, aggregates all layers' sides as `network` says.
    """

    remote: ClassVar[bool] = True
    metric: ClassVar[Name]

    every: int = Field(0, ge=0, description="rounds between measurements; 0: at each evaluation")
    clients: bool = Field(False, description="measure each client's trained model too (column `model`)")
    noisy: bool = Field(False, description="before EVBMF, of signal and noise together")
    linear: bool = Field(False, description="linear layers too")
    network: Aggregation = Field("l2", description="how the network's number is made of its layers'")

    @model_validator(mode="after")
    def _clients_need_rounds(self) -> Ranks:
        if self.clients and not self.every:
            raise ValueError("clients: true measures in the rounds of 'every', which is 0")
        return self

    def check(self, occasions: Occasions) -> None:
        """Refuse a model without a layer to measure."""
        if not ranked(occasions.layout, self.linear):
            more = "" if self.linear else "; linear=true takes linear layers too"
            raise ConfigError(f"the model has no layer to measure{more}")

    @property
    def watches(self) -> bool:
        """Only where `clients` is set; the global model can be measured without."""
        return self.clients

    @property
    def quantity(self) -> Name:
        """The name of the metric in `mnemos.ranks`."""
        return self.metric

    def due(self, round: int, last: int) -> bool:
        """Every n-th round, and the last."""
        return self.every > 0 and (round % self.every == 0 or round == last)

    def records(self, moment: Moment) -> Iterator[Record]:
        """The metrics of the global model's layers, and of the network."""
        evaluated = moment.validation is not None or moment.test is not None
        if self.due(moment.round, moment.last) or (not self.every and evaluated):
            yield from self.measure(moment.spectra(self.linear), moment.layout, moment.round, [None])

    def watch(self, opening: Opening) -> Watch | None:
        """A watch on the clients' models in the rounds that are measured, if `clients` is set."""
        return _Watch(self, opening) if self.clients and self.due(opening.round, opening.last) else None

    def measure(
        self, spectra: Spectra, layout: Layout, round: int, models: list[int | None]
    ) -> Iterator[Record]:
        """The records of several models; `models` are their clients, or None for the global model."""
        if not spectra.layers:
            return
        values = spectra.of(QUANTITIES[self.quantity], self.noisy)
        name = self.quantity.replace("-", "_") + ("_noisy" if self.noisy else "")
        networks = network_value(values, layout, self.network, self.linear).tolist()
        for model, row, network in zip(models, values.mean(-1).tolist(), networks, strict=True):
            for slot, value in zip(spectra.layers, row, strict=True):
                yield Record(round, name, value, model=model, layer=slot.name)
            yield Record(round, f"{name}_network", network, model=model)


class _Watch(Watch):
    """Keeps the clients' models until the end of the round, and measures them together."""

    def __init__(self, measure: Ranks, opening: Opening) -> None:
        self._measure, self._round, self._layout = measure, opening.round, opening.layout
        self._models: dict[int, Tensor] = {}

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """Keep a model until the round's last client."""
        self._models[client] = model

    def records(self) -> Iterator[Record]:
        """The metrics of all clients' layers."""
        if self._models:
            spectra = Spectra(torch.stack(list(self._models.values())), self._layout, self._measure.linear)
            yield from self._measure.measure(spectra, self._layout, self._round, list(self._models))


@measures.register("effective-rank")
class EffectiveRankMeasure(Ranks):
    """The effective rank of each layer: the entropy of its singular values.

    H = −Σ p ln p, p = σ / Σ σ: the entropy of a layer's singular values (`exponential`: e^H).
    """

    metric: ClassVar[Name] = "effective-rank"

    exponential: bool = Field(False, description="Roy and Vetterli's e^H instead of FedER's H")

    @property
    def quantity(self) -> Name:
        """The name of the entropy, or of its exponential."""
        return "effective-rank-exp" if self.exponential else self.metric


@measures.register("stable-rank")
class StableRankMeasure(Ranks):
    """The stable rank of each layer.

    Σ σ² / σ₁².
    """

    metric: ClassVar[Name] = "stable-rank"


@measures.register("knowledge-gain")
class KnowledgeGain(Ranks):
    """The knowledge gain of each layer: its singular values' sum relative to the largest.

    Σ σ / (σ₁ L), L the channels of a side: what RMSGD and AdaS call stable rank.
    """

    metric: ClassVar[Name] = "knowledge-gain"


@measures.register("condition-number")
class ConditionNumber(Ranks):
    """The condition number of each layer.

    σ₁ divided by the smallest singular value that EVBMF keeps.
    """

    metric: ClassVar[Name] = "condition-number"


@measures.register("stable-quality")
class StableQuality(Ranks):
    """The stable quality of each layer: an angle of knowledge gain and condition number.

    arctan2(knowledge gain, 1 − 1 / condition number).
    """

    metric: ClassVar[Name] = "stable-quality"


@measures.register("rank")
class Rank(Ranks):
    """The number of singular values that EVBMF keeps."""

    metric: ClassVar[Name] = "rank"
