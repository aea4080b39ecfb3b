"""DP-FedAvg: updates of bounded length, and Gaussian noise on their sum.

McMahan et al., 2018, arXiv 1710.06963; bounds that follow the updates' lengths: Andrew et al., 2021,
arXiv 1905.03871.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from mnemos.common import rng
from mnemos.common.devices import double
from mnemos.common.registry import Options
from mnemos.errors import ConfigError
from mnemos.methods.exchange import Aggregate, Server, State, TrainReply, Weight
from mnemos.privacy.accountant import LEAST, MOST
from mnemos.privacy.privacy import Privacy, privacies
from mnemos.vector import Layout, square_sum

SECRET = "MNEMOS_SECRET"  # nosec B105
"""The environment variable with the secret that noise and cohorts are drawn with."""
_FEWEST = 32
"""The fewest characters of a secret: sixteen bytes in hexadecimal digits."""

_TERMS = "privacy.terms"
"""What clients receive: the bound C, and the scale of each client's noise on its update and on its bit."""
_CLIP = "privacy.clip"
_INSIDE = "privacy.inside"
"""What clients upload: ½ if their update was within the bound, and −½ if not."""
_SIGMAS = 8
"""Standard deviations that a client's noise exceeds once in 10¹⁴ times."""


class AdaptiveClipping(Options):
    """C ← C · exp(−η (b̄ − γ)), with b̄ the share of a round's updates within C, plus noise."""

    quantile: float = Field(0.5, gt=0, lt=1, description="γ, the share of updates that are to be within C")
    rate: float = Field(0.2, gt=0, description="η, how fast C follows")
    noise: float | None = Field(
        None,
        gt=0,
        description="σ_b, of the noise on the number of updates within C; null: a twentieth of a round's "
        "clients, as in the paper, or z where that is more",
    )


@privacies.register("gaussian")
class Gaussian(Privacy):
    """Client-level differential privacy: x ← x + 1/m · (Σ Δₖ · min(1, C / ‖Δₖ‖) + N(0, (z C)² I)).

    m is the expected number of clients in a round, and not the actual one. With an adaptive bound, the noise
    on updates has z_Δ = (z⁻² − (2 σ_b)⁻²)^−½ in place of z, so that both releases together cost as much as
    one with z.
    """

    private: ClassVar[bool] = True

    clip: float = Field(1.0, gt=0, description="C, the longest update; an adaptive bound begins there")
    adaptive: AdaptiveClipping | None = Field(
        None, description="let C follow a quantile of the updates' lengths"
    )
    noise: float | None = Field(
        1.0,
        ge=LEAST,
        le=MOST,
        description="z, noise in units of C; null: as little as the budget asks for",
    )
    at: Literal["server", "clients"] = Field(
        "server", description="who adds it: the server to the sum, or every client a share to its update"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ, for which ε is given")
    budget: float | None = Field(None, gt=0, description="ε that the run may not exceed: it ends before")
    secret: bool = Field(
        False, description=f"draw noise and cohorts with the secret of ${SECRET} instead of the seed"
    )

    @model_validator(mode="after")
    def _known(self) -> Gaussian:
        if self.noise is None and self.budget is None:
            raise ValueError("noise: null takes what the budget asks for, and there is no budget")
        return self

    @property
    def keyed(self) -> bool:
        """With `secret: true`."""
        return self.secret

    @property
    def paced(self) -> bool:
        """Whether the noise is chosen for the number of rounds."""
        return self.noise is None

    @property
    def sends(self) -> State:
        """With an adaptive bound, whether the update was within it."""
        return {_INSIDE: torch.zeros(())} if self.adaptive else {}

    def key(self, seed: int) -> rng.Seed:
        """The secret if `secret` is set, otherwise the seed."""
        return _secret() if self.secret else seed

    def protect(
        self, delta: Tensor, received: State, seed: int, round: int, client: int
    ) -> tuple[Tensor, State]:
        """The clipped update, with its share of the noise if clients add it, and what is uploaded beside."""
        bound, scale, bit_scale = received[_TERMS].tolist()
        kept, inside = clipped(delta, bound)
        bit: Tensor | float = torch.where(inside, 0.5, -0.5) if isinstance(inside, Tensor) else inside - 0.5
        if self.at == "clients":
            noise, bit_noise = self.draw(kept, bit, seed, round, client)
            kept, bit = kept + scale * noise, bit + bit_scale * bit_noise
        return kept, ({_INSIDE: torch.as_tensor(bit, device=delta.device)} if self.adaptive else {})

    def draw(self, value: Tensor, bit: Tensor | float, seed: int, *keys: int) -> tuple[Tensor, float]:
        """Standard normal noise for a vector, and for the number beside it.

        With a secret, the noise is also keyed by the value that it protects. The same noise on two different
        sums would reveal their difference; so no two values ever share noise, even if a secret is reused.
        """
        key = self.key(seed)
        if self.secret:
            protected = hashlib.blake2b(
                value.cpu().numpy().tobytes() + repr(float(bit)).encode(), digest_size=32
            )
            key = f"{key}:{protected.hexdigest()}"
        noise = rng.normal(len(value) + 1, key, "privacy", *keys)
        return noise[:-1].to(value.device), float(noise[-1])


def clipped(delta: Tensor, bound: float) -> tuple[Tensor, Tensor | bool]:
    """(Δ · min(1, C / ‖Δ‖), whether Δ was within C); an update that isn't finite becomes 0.

    A longer update becomes shorter than C by a millionth, which is more than rounding can add: the bound
    holds to the last bit, and clipping an update again changes nothing.
    """
    if delta.device.type != "cpu":
        return _clipped_there(delta, bound)
    norm = math.sqrt(square_sum(delta))
    if norm <= bound:
        return delta, True
    if not math.isfinite(norm):
        return torch.zeros_like(delta), False
    return delta * ((1 - 1e-6) * bound / norm), False


def _clipped_there(delta: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """`clipped` without waiting for the delta's device."""
    norm = double(delta).square().sum().sqrt()
    inside = norm <= bound
    factor = torch.where(inside, 1.0, (1 - 1e-6) * bound / norm).to(delta.dtype)
    return torch.where(norm.isfinite(), delta * factor, 0.0), inside


@dataclass(frozen=True)
class Mechanism:
    """The server's side of the Gaussian mechanism."""

    options: Gaussian
    noise: float
    """z, given by the experiment or chosen for its budget."""
    expected: int
    """m, the expected number of clients in a round."""
    seed: int

    def __post_init__(self) -> None:
        if self.options.adaptive and self.noise >= 2 * self.bit_noise:
            raise ConfigError(
                f"found {self.bit_noise:g}; noise on updates can't make up for less than half of z = "
                f"{self.noise:g}",
                "privacy.adaptive.noise",
            )

    @property
    def bit_noise(self) -> float:
        """σ_b, the noise on the number of updates within C."""
        adaptive = self.options.adaptive
        if adaptive is None:
            return 0.0
        return adaptive.noise or max(self.expected / 20, self.noise)

    @property
    def update_noise(self) -> float:
        """z_Δ, the noise on updates."""
        if not self.options.adaptive:
            return self.noise
        return 1 / math.sqrt(self.noise**-2 - (2 * self.bit_noise) ** -2)

    def state(self) -> State:
        """The server's state before the first round: C if it is adaptive."""
        return {_CLIP: torch.tensor(self.options.clip, dtype=torch.float64)} if self.options.adaptive else {}

    def clip(self, state: State) -> float:
        """C of the next round, from the server's state."""
        return float(state[_CLIP]) if self.options.adaptive else self.options.clip

    def share(self, invited: int) -> float:
        """The scale of one client's noise, relative to that of the sum, if `invited` clients add it."""
        return 1 / math.sqrt(max(invited, 1)) if self.options.at == "clients" else 0.0

    def asks(self, state: State, invited: int) -> State:
        """What the server sends to each of `invited` clients beside the model."""
        share, bound = self.share(invited), self.clip(state)
        scales = [share * self.update_noise * bound, share * self.bit_noise]
        return {_TERMS: torch.tensor([bound, *scales], dtype=torch.float64)}

    def fold(self, layout: Layout, server: Server, round: int, invited: int) -> NoisySum:
        """An empty sum for a round to which `invited` clients are invited."""
        return NoisySum(self, layout, server, round, invited)


class NoisySum:
    """The sum of clipped updates with noise, divided by the expected number of clients.

    The noise doesn't depend on which clients reply: if clients add it, the server adds the shares of those
    that were invited and didn't reply. A client that is missing contributes 0.
    """

    def __init__(
        self, mechanism: Mechanism, layout: Layout, server: Server, round: int, invited: int
    ) -> None:
        self._mechanism, self._server, self._round, self._invited = mechanism, server, round, invited
        self.clip = mechanism.clip(server.privacy)
        share = mechanism.share(invited)
        noise = share * mechanism.update_noise * self.clip
        self._longest = self.clip + noise * (math.sqrt(layout.size) + _SIGMAS)
        self._widest = 0.5 + share * mechanism.bit_noise * _SIGMAS
        self._sum, self._inside, self._replies = torch.zeros_like(server.model), 0.0, 0

    def add(self, update: TrainReply, weight: Weight) -> None:
        """Add one update; all have the same weight."""
        # Clipped again, to C plus the largest noise: a client may not have clipped its update.
        delta, _ = clipped(update.delta, self._longest)
        bit = float(update.change.get(_INSIDE, 0.0))
        bit = max(-self._widest, min(self._widest, bit))
        if self._mechanism.options.at == "server":
            bit = math.copysign(0.5, bit)
        self._sum += delta
        self._inside += bit
        self._replies += 1

    def result(self) -> Aggregate:
        """The noisy mean; buffers stay the server's."""
        mechanism = self._mechanism
        scale = math.sqrt(self._missing)
        if scale:
            noise, bit_noise = mechanism.options.draw(self._sum, self._inside, mechanism.seed, self._round)
            self._sum += scale * mechanism.update_noise * self.clip * noise
            self._inside += scale * mechanism.bit_noise * bit_noise
        return Aggregate(self._sum / mechanism.expected, self._server.buffers, {}, mechanism.expected)

    @property
    def _missing(self) -> float:
        """The share of the noise's variance that isn't in the clients' updates yet."""
        if self._mechanism.options.at == "server" or not self._invited:
            return 1.0
        return 1 - self._replies / self._invited

    def state(self) -> State:
        """What changes of `Server.privacy`, after `result`."""
        adaptive = self._mechanism.options.adaptive
        if adaptive is None:
            return {}
        share = self._inside / self._mechanism.expected + 0.5
        clip = self.clip * math.exp(-adaptive.rate * (share - adaptive.quantile))
        return {_CLIP: torch.tensor(clip, dtype=torch.float64)}


def _secret() -> str:
    found = os.environ.get(SECRET, "")
    if len(found) < _FEWEST:
        problem = "isn't set" if not found else f"has {len(found)} characters"
        raise ConfigError(
            f"the environment variable {SECRET} {problem}; it takes at least {_FEWEST} characters, such as "
            "'openssl rand -hex 32' makes",
            "privacy.secret",
        )
    return found
