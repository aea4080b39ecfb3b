"""The answer to why a class or a task was lost: as text, as tables, as a figure, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import hypot
from typing import TYPE_CHECKING, Any

from mnemos.runs.why.ledger import Account, Subject
from mnemos.runs.why.stay_out import StayedOut
from mnemos.runs.why.who import Share

if TYPE_CHECKING:
    import pandas as pd

    from mnemos.plots.style import Picture


@dataclass(frozen=True)
class Suspect:
    """A client's share in the loss, in all rounds that were looked at closely."""

    client: int
    rounds: int
    """In how many of these rounds its update counted."""
    held: int
    """How many training samples of the class or task it had in the last of them."""
    cost: float
    """The accuracy that its updates have cost: the sum of its Shapley values, or else by leave-one-out."""
    error: float | None
    """The standard error of `cost`; None without Shapley values."""
    leave_one_out: float
    """The accuracy that its updates have cost by leave-one-out, summed over the rounds."""
    slope: float | None
    """The sum of ⟨∇L, Δ⟩; None if clients have several kinds of models."""


@dataclass(frozen=True)
class Answer:
    """Which rounds and clients have cost a class, a task or all classes their accuracy."""

    run: str
    subject: Subject
    accounts: Mapping[int, Account]
    """What each round did, by round."""
    shares: Mapping[int, Sequence[Share]] = field(default_factory=dict)
    """Of the rounds that were looked at closely, each client's share, the costliest first."""
    note: str = ""
    """What could not be answered, and why; empty as a rule."""
    client: int | None = None
    """The client that was asked about."""
    stayed_out: tuple[StayedOut, ...] = ()
    """The rounds without each client that the question names, those that have cost most first."""

    @property
    def falls(self) -> list[int]:
        """The rounds in which accuracy was lost, the worst first; of equal ones, the earlier first."""
        return [round for round in self.worst if self.accounts[round].change < 0]

    @property
    def worst(self) -> list[int]:
        """All rounds, from the largest fall to the largest gain; of equal ones, the earlier first."""
        return sorted(self.accounts, key=lambda round: (self.accounts[round].change, round))

    @property
    def suspects(self) -> list[Suspect]:
        """The clients of the rounds that were looked at closely, the costliest first."""
        by_client: dict[int, list[Share]] = {}
        for found in self.shares.values():
            for share in found:
                by_client.setdefault(share.client, []).append(share)
        ranked = sorted(
            by_client,
            key=lambda client: tuple(
                map(sum, zip(*(share.cost for share in by_client[client]), strict=True))
            ),
            reverse=True,
        )
        return [_suspect(client, by_client[client]) for client in ranked]

    @property
    def text(self) -> str:
        """The answer in a few sentences."""
        from mnemos.runs.why.words import in_words

        return in_words(self)

    def __str__(self) -> str:
        return self.text

    def rounds_table(self) -> pd.DataFrame:
        """A row per round: accuracy before and after, and its change in local training and aggregation."""
        import pandas as pd

        rows = [
            {
                "round": round,
                "before": account.before / account.samples,
                "local": float(account.local),
                "aggregation": float(account.aggregation),
                "change": float(account.change),
                "after": account.after / account.samples,
            }
            for round, account in self.accounts.items()
        ]
        return pd.DataFrame(rows).set_index("round")

    def clients_table(self) -> pd.DataFrame:
        """A row per client of the rounds that were looked at closely, the costliest first."""
        import pandas as pd

        names = list(Suspect.__dataclass_fields__)
        return pd.DataFrame([asdict(suspect) for suspect in self.suspects], columns=names).set_index("client")

    def plot(self) -> Picture:
        """Accuracy over the rounds, each round's change in its two parts, and what each client has cost."""
        from mnemos.plots.why import why_figure  # slow to import

        return why_figure(self)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "run": self.run,
            "subject": str(self.subject),
            "text": self.text,
            "rounds": [
                {"samples": self.accounts[row["round"]].samples, **row}
                for row in self.rounds_table().reset_index().to_dict("records")
            ],
            "falls": self.falls,
            "clients": [asdict(suspect) for suspect in self.suspects],
            "shares": [asdict(share) for found in self.shares.values() for share in found],
            "stayed_out": [
                {
                    "client": one.client,
                    "last": one.last,
                    "after": float(one.after),
                    "cost": float(one.cost),
                    "mean_cost": float(one.mean_cost),
                    "right": dict(one.right),
                    "ended": one.ended,
                }
                for one in self.stayed_out
            ],
            "note": self.note,
        }


def _suspect(client: int, shares: Sequence[Share]) -> Suspect:
    last = max(shares, key=lambda share: share.round)
    return Suspect(
        client,
        len(shares),
        last.held,
        sum(share.cost[0] for share in shares),
        _known(hypot, (share.error for share in shares)),
        sum(share.leave_one_out for share in shares),
        _known(lambda *values: sum(values), (share.slope for share in shares)),
    )


def _known(together: Any, values: Iterable[float | None]) -> float | None:
    """The values together, unless one isn't known."""
    found = list(values)
    return None if None in found else float(together(*found))
