"""Reading the ledger: what each round did to each class and task, in exact fractions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from mnemos.measures.ledger import AFTER, BEFORE, LOCAL, SAMPLES, WEIGHT

_NAMES = {AFTER, BEFORE, LOCAL, SAMPLES, WEIGHT}

Kind = Literal["class", "task", "all"]


class Subject(NamedTuple):
    """What is accounted for: the samples of a class, of a task, or all samples."""

    kind: Kind = "all"
    number: int = 0
    """The class or the task; 0 for all samples."""

    def __str__(self) -> str:
        return "all classes" if self.kind == "all" else f"{self.kind} {self.number}"


@dataclass(frozen=True)
class Account:
    """What a round did to the accuracy on some samples, from numbers of correct answers."""

    samples: int
    """The number of samples."""
    before: int
    """How many the server's model before the round answered correctly."""
    after: int
    """How many the server's model after the round answers correctly."""
    clients: Mapping[int, int] = field(default_factory=dict)
    """How many each client's model answers correctly after its local training."""
    weights: Mapping[int, int] = field(default_factory=dict)
    """The number of training samples of each of these clients."""

    @property
    def mean(self) -> Fraction:
        """The weighted mean of the clients' correct answers; `before` if no client trained."""
        total = sum(self.weights[client] for client in self.clients)
        if not total:
            return Fraction(self.before)
        return Fraction(sum(self.weights[client] * right for client, right in self.clients.items()), total)

    @property
    def local(self) -> Fraction:
        """The change of accuracy in local training: mean of the clients' models − the model before."""
        return (self.mean - self.before) / self.samples

    @property
    def aggregation(self) -> Fraction:
        """The change of accuracy in aggregation: the model after the round − mean of the clients' models."""
        return (self.after - self.mean) / self.samples

    @property
    def change(self) -> Fraction:
        """The change of accuracy in the round: exactly `local` + `aggregation`."""
        return Fraction(self.after - self.before, self.samples)

    def of_client(self, client: int) -> Fraction:
        """The change of accuracy in one client's local training."""
        return Fraction(self.clients[client] - self.before, self.samples)


Accounts = dict[Subject, Account]
"""The accounts of a round."""


Counts = dict[Subject, dict[tuple[str, int | None], int]]
"""The recorded numbers of a round, by subject, name and client's model."""


def read_ledger(records: Iterable[Mapping[str, Any]]) -> dict[int, Accounts]:
    """The accounts of each round whose ledger is complete, from a run's records, in order of the rounds."""
    counts: dict[int, Counts] = {}
    weights: dict[int, dict[int, int]] = {}
    for row in records:
        name, value = row["name"], row.get("value")
        if name not in _NAMES or value is None:
            continue
        label, task, model = row.get("class"), row.get("task"), row.get("model")
        if name == WEIGHT and model is not None:
            weights.setdefault(row["round"], {})[model] = int(value)
        elif label is not None or task is not None:
            subject = Subject("class", label) if label is not None else Subject("task", task or 0)
            counts.setdefault(row["round"], {}).setdefault(subject, {})[name, model] = int(value)
    found = {round: _accounts(counts[round], weights.get(round, {})) for round in sorted(counts)}
    return {round: accounts for round, accounts in found.items() if accounts}


def _accounts(counts: Counts, weights: dict[int, int]) -> Accounts:
    """The accounts of a round's subjects, and of all its samples: sums over classes; none if incomplete."""
    accounts = {}
    for subject, found in counts.items():
        try:
            samples, before, after = (found[name, None] for name in (SAMPLES, BEFORE, AFTER))
            clients = {client: found[LOCAL, client] for client in weights}
        except KeyError:
            return {}  # the round is being written, or a line is damaged
        if samples <= 0:
            return {}
        accounts[subject] = Account(samples, before, after, clients, weights)
    classes = [account for subject, account in accounts.items() if subject.kind == "class"]
    if not classes:
        return {}
    accounts[Subject()] = Account(
        sum(account.samples for account in classes),
        sum(account.before for account in classes),
        sum(account.after for account in classes),
        {client: sum(account.clients[client] for account in classes) for client in weights},
        weights,
    )
    return accounts
