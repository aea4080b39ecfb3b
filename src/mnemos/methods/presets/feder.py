"""FedER: aggregation by learning metrics (Fu, thesis, University of Toronto, 2022).

Layers in which a client has learnt a richer mapping count for more. The thesis' code was never published;
this follows its algorithms 3 and 4.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.methods.exchange import Cohort, Weight
from mnemos.methods.fit import Fit
from mnemos.methods.method import methods
from mnemos.methods.part import Weighting, weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.models.model import Model
from mnemos.optim.local import Local
from mnemos.ranks.layers import QUANTITIES, Name, network_value
from mnemos.ranks.spectra import Spectra, ranked
from mnemos.vector import Layout, Slot


class LayerMetric(Weighting):
    """α_l^k = m_l^k / Σ_j m_l^j for each ranked layer l, with m a metric of client k's weights.

    m is the mean of the metric on the layer's two sides, floored, as a layer that is still noise has rank 0.
    Other tensors, and buffers, take the α of the ranked layer before them; those before the first, and in the
    initial form all of them, are averaged plainly. The α of a layer sum to one, unless the floor is the
    thesis' (`floor_in: denominator`), in which the numerator keeps the raw metric: then clients without rank
    have no weight, and the layer shrinks by what is missing, down to zero if all have rank 0. (Batch-norm's
    statistics don't.)
    """

    takes_models: ClassVar[bool] = True

    form: Literal["improved", "initial"] = Field(
        "improved", description="algorithm 4; or 3: no floor, and a plain mean of tensors without a metric"
    )
    floor: float = Field(1e-3, gt=0, description="least metric of a layer in the improved form")
    floor_in: Literal["both", "denominator"] = Field(
        "both", description="where the floor applies; 'denominator' is the thesis' letter"
    )
    noisy: bool = Field(False, description="take the metric before EVBMF, of signal and noise together")
    linear: bool = Field(False, description="rank linear layers too, not only convolutions")

    @property
    @abstractmethod
    def metric(self) -> Name:
        """The metric's name in `mnemos.ranks`."""

    @property
    def by_upload(self) -> bool:
        """Its weight depends on its model."""
        return True

    def fitting(self, model: Model) -> Mapping[str, Fit]:
        """Linear layers, for a model that has no convolutions."""
        return _linear_layers(self.name, model)

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """There must be something to rank."""
        _check_ranked(self.name, layout, self.linear)

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """A weight for each layer, which also holds for the tensors that follow it."""
        spectra = Spectra(cohort.models, cohort.layout, self.linear)
        metrics = spectra.of(QUANTITIES[self.metric], self.noisy).mean(-1)
        parameters = self._columns(cohort.layout.parameters, cohort.layout)
        buffers = self._columns(cohort.layout.buffers, cohort.layout)
        # Statistics must not shrink as weights may, so their weights always sum to one.
        for weights, means in zip(
            _table(self.shares(metrics, self.floor_in)), _table(self.shares(metrics, "both")), strict=True
        ):
            yield Weight(
                _spread(weights, *parameters).to(cohort.start.device),
                _spread(means, *buffers).to(cohort.start.device),
            )

    def shares(self, metrics: Tensor, floor_in: Literal["both", "denominator"]) -> Tensor:
        """α [K, layers], from metrics [K, layers]."""
        if self.form == "initial":
            total = metrics.sum(0)
            return torch.where(total > 0, metrics / total, 1 / len(metrics))
        floored = metrics.clamp_min(self.floor)
        return (floored if floor_in == "both" else metrics) / floored.sum(0)

    @property
    def falls_short(self) -> bool:
        """With the thesis' floor, the α don't sum to one, so Σ αᵏ Wᵏ is less than a mean."""
        return self.form == "improved" and self.floor_in == "denominator"

    def _columns(self, slots: tuple[Slot, ...], layout: Layout) -> tuple[Tensor, Tensor]:
        """For each tensor, its column in the table of `_table`, and its number of entries."""
        layers = [slot.name for slot in ranked(layout, self.linear)]
        column, by_name, by_owner = 0, {}, {}
        for slot in layout.parameters:
            if slot.name in layers:
                column = 1 + layers.index(slot.name)
                by_name[slot.name] = column
            else:
                by_name[slot.name] = column if self.form == "improved" else 0
            by_owner[_owner(slot)] = by_name[slot.name]
        found = [by_name.get(slot.name, by_owner.get(_owner(slot), 0)) for slot in slots]
        return torch.tensor(found, dtype=torch.long), torch.tensor(
            [slot.size for slot in slots], dtype=torch.long
        )


def _linear_layers(name: str, model: Model) -> Mapping[str, Fit]:
    why = f"{name} uses the ranks of convolutions, and {model.name} has none"
    return {} if model.convolutions else {"method.weighting.linear": Fit(True, why)}


def _check_ranked(name: str, layout: Layout, linear: bool) -> None:
    if not ranked(layout, linear):
        hint = "" if linear else "; with linear: true, linear layers are ranked too"
        raise ConfigError(
            f"{name} uses the ranks of convolutions, and the model has none{hint}", "method.weighting"
        )


def _table(shares: Tensor) -> Tensor:
    """K α [K, 1 + layers]; the first column, for tensors without a metric, is the plain mean."""
    return torch.cat([torch.ones(len(shares), 1), (len(shares) * shares).float()], 1)


def _owner(slot: Slot) -> str:
    """The name of a tensor's module, by which batch-norm's statistics get the weight of its parameters."""
    return slot.name.rpartition(".")[0]


def _spread(row: Tensor, columns: Tensor, sizes: Tensor) -> Tensor:
    """A weight for each parameter, from a client's row of the table."""
    return torch.repeat_interleave(row[columns], sizes)


@weightings.register("effective-rank")
class EffectiveRank(LayerMetric):
    """By the effective rank: the Shannon entropy of a layer's normalised singular values."""

    exponential: bool = Field(False, description="Roy and Vetterli's e^H instead of the thesis' H")

    @property
    def metric(self) -> Name:
        """The entropy, or its exponential."""
        return "effective-rank-exp" if self.exponential else "effective-rank"


@weightings.register("stable-rank")
class StableRank(LayerMetric):
    """By the stable rank: Σ d / (d₁ L) as RMSGD has it (the thesis' appendix A), or Σ d² / d₁²."""

    definition: Literal["rmsgd", "textbook"] = Field("rmsgd", description="which of the two")

    @property
    def metric(self) -> Name:
        """RMSGD's, or the textbooks'."""
        return "knowledge-gain" if self.definition == "rmsgd" else "stable-rank"


@weightings.register("network-rank")
class NetworkRank(Weighting):
    """By one number for a client's whole model, made of its layers' effective ranks.

    α_k = m_k / Σ_j m_j with one number for a whole model: m = √(Σ H² / d), floored.

    H are the effective ranks of all layers' sides, and d is how many there are: equation 2.10 before its
    logarithm, which can be negative (`log` takes it). The thesis uses it if models have different layers.
    """

    takes_models: ClassVar[bool] = True

    log: bool = Field(False, description="take the logarithm, as the equation does")
    floor: float = Field(1e-3, gt=0, description="least number of a model")
    noisy: bool = Field(False, description="of singular values before EVBMF, of signal and noise together")
    linear: bool = Field(False, description="of linear layers too, not only of convolutions")

    @property
    def by_upload(self) -> bool:
        """Its weight depends on its model."""
        return True

    def fitting(self, model: Model) -> Mapping[str, Fit]:
        """Linear layers, for a model that has no convolutions."""
        return _linear_layers(self.name, model)

    def check(self, layout: Layout, local: Local, classes: int) -> None:
        """There must be something to rank."""
        _check_ranked(self.name, layout, self.linear)

    def weigh_cohort(self, cohort: Cohort) -> Iterator[Weight]:
        """One weight for each client."""
        spectra = Spectra(cohort.models, cohort.layout, self.linear)
        values = spectra.of(QUANTITIES["effective-rank"], self.noisy)
        logs = network_value(values, cohort.layout, "l2", self.linear)
        metrics = (logs if self.log else logs.exp()).clamp_min(self.floor)
        # In single precision, in which equal clients have weights of exactly 1.
        for weight in (len(metrics) * metrics / metrics.sum()).float().tolist():
            yield Weight.of(weight)


@methods.register("feder")
class FedEr(FedAvg):
    """FedAvg in which each layer of a client is weighted by its effective rank."""

    weighting: Annotated[Weighting, weightings] = EffectiveRank()
