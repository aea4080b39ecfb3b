"""MOON: model-contrastive learning (Li, He, Song, 2021, arXiv 2103.16257)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Batch, Client, Finished, Net, State
from mnemos.methods.method import methods
from mnemos.methods.part import Term, terms
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.vector import Layout

_PREVIOUS = "moon.previous"
_SEEN = "moon.seen"


@terms.register("contrastive")
class Contrastive(Term):
    """Keeps features close to the global model's and away from the client's last model's.

    μ · −log e^{cos(z, z_glob)/τ} / (e^{cos(z, z_glob)/τ} + e^{cos(z, z_prev)/τ}).

    z are the features that go into the classifier, z_glob those of the received model, and z_prev those of
    the client's own model at the end of its last round. In its first round a client has no such model, and
    the received model is used instead (the term is then a constant).
    """

    wants_features: ClassVar[bool] = True

    mu: float = Field(1.0, ge=0, description="weight μ of the term")
    temperature: float = Field(0.5, gt=0, description="τ")

    def client_state(self, layout: Layout) -> State:
        """No model yet."""
        return {_PREVIOUS: layout.zeros(), _SEEN: torch.zeros(())}

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """The contrastive loss of each sample."""
        if not self.mu:
            return 0.0
        previous = torch.where(client.state[_SEEN] > 0, client.state[_PREVIOUS], client.start)
        with torch.no_grad():
            towards, _ = net.at(client.start).features(batch.x)
            away, _ = net.at(previous).features(batch.x)
        near = F.cosine_similarity(features, towards) / self.temperature
        far = F.cosine_similarity(features, away) / self.temperature
        return self.mu * F.softplus(far - near)

    def upload(self, done: Finished) -> tuple[State, State]:
        """The model at the end is kept by the client; nothing is sent."""
        return {}, {_PREVIOUS: done.end, _SEEN: done.end.new_ones(())}


@methods.register("moon")
class Moon(FedAvg):
    """FedAvg whose clients keep features close to the global model's and away from their own last model's."""

    mu: float = Field(1.0, ge=0, description="weight μ of the contrastive term")
    temperature: float = Field(0.5, gt=0, description="its temperature τ")

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The contrastive term."""
        return (Contrastive(mu=self.mu, temperature=self.temperature),)
