"""The guard, on by default: it keeps one bad client from ending a run or ruining its model.

It compares each update with those of its round and of earlier rounds, by quantities in which honest clients
are alike: the length of updates, the distance of batch-norm statistics from the server's in units of their
own spread, and the size of each tensor uploaded beside the model. An update that an honest client could have
sent passes unchanged, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from mnemos.client.trainer import intra_op
from mnemos.common.registry import Options
from mnemos.methods.exchange import Server, State, TrainReply
from mnemos.methods.replies import Columns, TrainReplies
from mnemos.screens.statistics import Distance
from mnemos.vector import Layout

MEMORY = "guard."
"""Prefix of the names under which the server's state keeps what the guard remembers."""

FEWEST = 3
"""How many values are needed to tell which one of them is unusual."""
_FEW = 5
"""With fewer values than this in a round, those of earlier rounds are used as well."""
_RECENT = 10
"""How many clients' values of earlier rounds are remembered."""
_ABSURD = 1000.0
"""Relative length above which an update is rejected, not shortened: no honest client comes near it."""
_LONG = 2.0
"""Relative length above which an update is shortened if it works against all others."""
_HARMLESS = 1e-4
"""Lengths are also measured in this share of the model's length: a shorter update is harmless."""
_DECAY = 0.99
"""The usual value is at least this times that of the round before. Otherwise a client with something new to
learn would look unusual among clients that have converged and send small updates."""

_LENIENT = 10.0
"""Factor on the bounds in a round with too few values of its own: honest clients differ more between rounds
than within one."""

_PARAMETER = 0.1
"""The least size that a model's parameters are assumed to have: a model may start from zeros."""
_UNHEARD_OF = 1e12
"""Statistics more than this many of their spreads from the server's, and uploads with numbers of this size,
are rejected even where there is nothing to compare them with."""

_LENGTH = "norm"
_TINY = 1e-300


class Guard(Options):
    """Bounds on what a client sends, relative to the usual values of its round and of earlier rounds.

    The usual length is the median of the round's ‖Δ‖, or 0.99 times the usual length of the round before,
    whichever is larger; the usual length per local step likewise. A client's relative length is the
    smallest of its quotients by these two and by 10⁻⁴ of the model's length. An update

    - of relative length above 1000 is rejected;
    - above `most`, it is shortened to `most`;
    - above 2, it is shortened to 1 if it works against the others: if its relative length times the share of
      the others' sum S that it undoes, −⟨Δ, S⟩ / ‖S‖², is above 1.

    An update is rejected if its batch-norm statistics are more than `most` times as far from the server's as
    is usual, and by more than their own spread; or if a tensor uploaded beside the model is more than `most`²
    times as large as is usual. (Honest clients differ more there, above all in squares of gradients.) In a
    round of fewer than three clients, which are compared with earlier rounds, these bounds are ten times as
    wide.

    As long as there are fewer than three values to compare, an update is also rejected if it is more than
    1000 times as long as the model (as one with parameters of 0.1, if its own are smaller), or if statistics
    or uploads have numbers that no data have, above 10¹².
    """

    enabled: bool = Field(True, description="false: nothing keeps one client from ending or ruining a run")
    most: float = Field(10.0, ge=2, le=1000, description="how many times the usual an honest client may be")


class Verdict(NamedTuple):
    """The guard's decision on a round's updates, by client."""

    rejected: dict[int, str]
    """Why the update is rejected."""
    shortened: dict[int, float]
    """The factor, below 1, by which the update is multiplied."""


class _Compared(NamedTuple):
    """One value per update, divided by the usual value."""

    ratios: Tensor
    enough: bool
    """Whether there were enough values to compare, those of earlier rounds included."""
    leniency: float
    """Factor on the bounds: 1 if the round itself had enough values, otherwise `_LENIENT`."""
    incredible: Tensor
    """Which values are too large for any data; only set where there are too few others to compare with."""


class BoundsCheck:
    """Applies the guard to the updates of the clients of one model."""

    def __init__(self, guard: Guard, layout: Layout, *, statistics: bool, continued: bool) -> None:
        """`statistics`: clients send buffers; `continued`: a client's buffers start from the server's."""
        self._guard = guard
        self._distance = Distance(layout, counters=continued) if statistics and layout.buffers else None

    def judge(self, updates: Sequence[TrainReply], server: Server, memory: State) -> Verdict:
        """The verdict on one or more updates of the right form; adds their values to the memory."""
        with intra_op(1):  # sums must not depend on the number of threads
            sent = TrainReplies.of(updates).columns
            steps, deltas = torch.tensor(sent.steps, dtype=torch.float64), sent.delta
            lengths = _norms(deltas)
            senders = torch.tensor(sent.clients, dtype=torch.float64)
            own = _norms(server.model[None])
            credible = _ABSURD * own.clamp_min(_PARAMETER * math.sqrt(len(server.model)))
            length = _compare(_LENGTH, lengths, senders, memory, credible)
            per_step = _compare(f"{_LENGTH} per step", lengths / steps, senders, memory, credible / steps)
            harmless = _HARMLESS * own.clamp_min(_TINY)
            ratios = torch.stack([length.ratios, per_step.ratios, lengths / harmless]).amin(0)
            reasons = {
                _LENGTH: (ratios > _ABSURD) | length.incredible,
                **self._beside(sent, senders, steps, server, memory),
            }
            bad = torch.stack([*reasons.values()]).any(dim=0)
            factors = torch.ones_like(ratios)
            if length.enough:
                factors = torch.where(ratios > self._guard.most, self._guard.most / ratios, factors)
            long = ratios > _LONG
            if bool(long.any()):  # as a rule none is
                against = long & (_undone(deltas, factors, ~bad) * ratios * factors > 1)
                factors = torch.where(against, 1 / ratios, factors)
        clients = sent.clients
        rejected: dict[int, str] = {}
        for reason, found in reasons.items():
            for client in _picked(clients, found):
                rejected.setdefault(client, reason)
        kept = dict(zip(clients, factors.tolist(), strict=True))
        return Verdict(rejected, {client: kept[client] for client in _picked(clients, (factors < 1) & ~bad)})

    def _beside(
        self, updates: Columns, senders: Tensor, steps: Tensor, server: Server, memory: State
    ) -> dict[str, Tensor]:
        """Which updates have buffers or tensors beside the model that are out of bounds, by reason [K]."""
        reasons, most = {}, self._guard.most
        for name, sent in updates.change.items():
            if sent.is_floating_point():
                sizes = _norms(sent)
                found = _compare(name, sizes, senders, memory, sizes.new_tensor(_UNHEARD_OF))
                reasons[name] = (found.ratios > most**2 * found.leniency) | found.incredible
        if self._distance is not None:
            distances = self._distance([*updates.buffers], steps, server.buffers)
            for kind, distance in distances.items():
                # No decay: the first rounds' large distances would make any distance usual for long.
                credible = distance.new_tensor(_UNHEARD_OF)
                found = _compare(kind, distance, senders, memory, credible, decay=0.0)
                unusual = (found.ratios > most * found.leniency) & (distance > found.leniency)
                reasons[kind] = unusual | found.incredible
        return reasons


def remembering(server: Server, memory: State) -> Server:
    """The server with the guard's part of a memory, which is kept even if a round fails."""
    own = {name: value for name, value in memory.items() if name.startswith(MEMORY)}
    return replace(server, screens={**server.screens, **own})


def shorten(update: TrainReply, factor: float) -> TrainReply:
    """The update with its change of the model multiplied by a factor."""
    return replace(update, delta=update.delta * factor)


def _undone(deltas: Tensor, factors: Tensor, good: Tensor) -> Tensor:
    """The share of the others' sum that each update undoes [K]; zeros if few updates are good.

    −⟨Δ, S⟩ / ‖S‖², with S the sum of the other good updates, times their factors.
    """
    if int(good.sum()) < _FEW:
        return torch.zeros_like(factors)
    factors = factors * good
    if bool((factors < 1).any()):
        deltas = deltas * factors.to(deltas)[:, None]
    total = deltas.sum(0)
    along, squares = (deltas @ total).cpu().double(), _norms(deltas).square()
    return (squares - along) / (_norms(total[None]).square() - 2 * along + squares).clamp_min(_TINY)


def _compare(
    name: str, values: Tensor, clients: Tensor, memory: State, credible: Tensor, decay: float = _DECAY
) -> _Compared:
    """Values [K] of clients [K], divided by the usual value; remembers that and each client's last value.

    Zeros are ignored, as they have no effect. Rejected values are remembered, too: if most clients change,
    what was unusual becomes usual. Each client has one value there, its last, so that a client that is asked
    often doesn't decide alone. As long as there are few values, none counts as larger than `credible`.
    """
    last, usual = f"{MEMORY}last.{name}", f"{MEMORY}usual.{name}"
    nonzero = values > 0
    known = memory.get(last, values.new_zeros(0, 2))
    known = known[~torch.isin(known[:, 0], clients[nonzero])]
    incredible = (values > credible) & (len(known) + int(nonzero.sum()) < FEWEST)
    values = torch.where(incredible, credible, values)
    present = values[nonzero]
    both = torch.cat([known, torch.stack([clients[nonzero], present], dim=1)])
    pool = present if len(present) >= _FEW else both[:, 1]
    memory[last] = both[-_RECENT:].clone()
    leniency = 1.0 if len(present) >= FEWEST else _LENIENT
    if len(pool) < 2:
        return _Compared(torch.zeros_like(values), False, leniency, incredible)
    median = pool.median()  # the lower one of an even number
    if usual in memory:
        median = torch.maximum(median, decay * memory[usual])
    if len(pool) >= FEWEST:
        memory[usual] = median
    few = len(present) < FEWEST
    usual_of_each = median.maximum(_others(values)) if few else median.expand(len(values))
    return _Compared(values / usual_of_each, len(pool) >= FEWEST, leniency, incredible)


def _others(values: Tensor) -> Tensor:
    """The largest of the others' values [K]: in a small round, a value is usual if two clients have it."""
    zero = values.new_zeros(1)
    return torch.stack([torch.cat([zero, values[:k], values[k + 1 :]]).max() for k in range(len(values))])


def _norms(rows: Tensor) -> Tensor:
    """The norm of each row [K, …] on the CPU, in double precision, in which no finite float32 overflows."""
    norms: Tensor = torch.linalg.vector_norm(rows.reshape(len(rows), -1), dim=1, dtype=torch.float64)
    return norms.cpu()


def _picked(clients: Sequence[int], chosen: Tensor) -> list[int]:
    return [clients[index] for index in chosen.nonzero().flatten().tolist()]
