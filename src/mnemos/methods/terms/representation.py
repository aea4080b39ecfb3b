"""A loss for features that are the same at all clients and times (FedSpace; Shenaj et al., 2023)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mnemos.methods.exchange import Batch, Client, Net, State
from mnemos.methods.head import classifier
from mnemos.methods.part import Term, terms
from mnemos.methods.terms.prototypes import has_some, memory
from mnemos.vector import Layout

_PICK = "representation.pick"
_NOISE = "representation.noise"
_NOTHING = -1e30


def contrast(
    vectors: Tensor, labels: Tensor, real: Tensor, anchors: Tensor, temperature: float, form: str
) -> Tensor:
    """A contrastive loss of vectors [N, d], which is small if those of a class are close to each other only.

    With s_ij the cosine of vectors i and j by the temperature, N_c vectors of class c and N in all,

        slides:    L = −1/N Σ_c 1/(N_c (N_c − 1)) Σ_{i≠j} (s_ij − log(e^{s_ij} + n_i))
        released:  L = −1/N Σ_c 1/(N_c − 1) Σ_{i≠j} (s_ij − log(1 + Σ_{l∈c, l≠i} e^{s_il} + n_i))

    with n_i = Σ_{k∉c} e^{s_ik}, over the ordered pairs i, j of class c and the classes whose vectors
    are marked in `anchors` [N]. Vectors that aren't `real` [N] are left out.
    """
    unit = F.normalize(vectors, dim=1)
    scores = unit @ unit.T / temperature
    same = labels[:, None] == labels
    there = real[:, None] * real > 0
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    others = torch.where(~same & there, scores, _NOTHING).logsumexp(1, keepdim=True)
    count = (same * real).sum(1, keepdim=True)
    if form == "slides":
        total, pairs = torch.logaddexp(scores, others), count * (count - 1)
    else:
        # In the released code, the similarity of a vector to itself is 0.
        own = torch.where(itself, 0.0, torch.where(same & there, scores, _NOTHING))
        total, pairs = torch.logaddexp(own.logsumexp(1, keepdim=True), others), count - 1
    use = same & there & ~itself & anchors[:, None]
    losses = torch.where(use, total - scores, 0.0) / pairs.clamp_min(1)
    return losses.sum() / real.sum()


@terms.register("representation")
class Representation(Term):
    """Pulls features of a class together, and features of different classes apart.

    λ · a contrastive loss of a batch's features and of as many drawn around prototypes of all classes.

    Features of the same class are pulled together and others pushed apart; `contrast` has its two forms. The
    loss is over the classes of the client's present task. The prototypes are those of the term `prototypes`.
    """

    wants_features: ClassVar[bool] = True
    needs: ClassVar[str | None] = "prototypes"

    weight: float = Field(0.01, gt=0, description="λ")
    temperature: float = Field(1.0, gt=0, description="τ, by which cosines are divided")
    form: Literal["slides", "released"] = Field("slides", description="which of the published forms")

    def draw(self, count: int, layout: Layout, generator: torch.Generator) -> State:
        """Random numbers for the classes and for the noise of `count` features."""
        size = classifier(layout)[0].shape[1]
        return {
            _PICK: torch.rand(count, generator=generator),
            _NOISE: torch.randn(count, size, generator=generator),
        }

    def losses(self, net: Net, batch: Batch, features: Tensor, client: Client) -> Tensor | float:
        """The same number for each sample."""
        count = len(batch.labels) // self._head.outputs  # the first samples are those that aren't turned
        labels = batch.labels[:count] // self._head.outputs
        known = memory(client)
        pseudo, classes = known.pseudo(known.known, batch.drawn[_PICK], batch.drawn[_NOISE])
        real = torch.ones_like(features[:count, 0]) if batch.mask is None else batch.mask[:count]
        some = has_some(known.known).to(real.dtype).expand(len(classes))
        every = torch.cat([labels, classes])
        return self.weight * contrast(
            torch.cat([features[:count], pseudo]),
            every,
            torch.cat([real, some]),
            client.present[every] > 0,
            self.temperature,
            self.form,
        )
