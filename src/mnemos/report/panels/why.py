"""The panel of the ledger: what each round's training and aggregation did to each class and task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mnemos.measures.ledger import AFTER, BEFORE, LOCAL, SAMPLES, WEIGHT
from mnemos.report.blocks import (
    Block,
    Cell,
    Column,
    Frame,
    HeatMaps,
    Item,
    Map,
    Row,
    Table,
    spread,
    whole,
)
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import RunReading
from mnemos.runs.why.ledger import Accounts, Subject, read_ledger

_ROUNDS = 40
"""The most rounds in the map of all rounds: those in which a class fell most."""
_CLIENTS = 40
"""The most clients in the map of a round."""
_FALLS = 10
"""The number of falls that the table has of each group."""

Known = list[tuple[RunGroup, RunReading, dict[int, Accounts]]]
"""The ledger of each run that has one."""


@panels.register("why")
class WhyPanel(Panel):
    """What rounds did to each class, in local training and in aggregation (measure `ledger`)."""

    title: ClassVar[str] = "Why it forgot"
    order: ClassVar[int] = 47

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """All rounds × classes, a timeline of rounds with their parts and clients, and the worst falls."""
        known = [
            (group, reading, ledger)
            for group in groups
            for reading in group.readings
            if (ledger := _ledger(reading))
        ]
        if known:
            yield from _maps(known)
            yield _table(known)


def _ledger(reading: RunReading) -> dict[int, Accounts]:
    """The ledger of a run, from what was read of it."""
    rows = [
        {"name": name, "round": round, "value": value, **dict(zip(by, ids, strict=True))}
        for name in (SAMPLES, BEFORE, AFTER, LOCAL, WEIGHT)
        for by in (("class",), ("task",), ("class", "model"), ("model", "task"), ("model",))
        for found in [reading.of(name, *by).finite]
        for round, value, *ids in zip(
            found.round.tolist(),
            found.value.tolist(),
            *(found.by[key].tolist() for key in by if len(found)),
            strict=True,
        )
    ]
    return read_ledger(rows)


def _maps(known: Known) -> Iterator[HeatMaps]:
    """Heat-maps of rounds × classes, and in each round of its parts and clients × classes."""
    changes = (
        abs(float(account.change))
        for *_, ledger in known
        for accounts in ledger.values()
        for account in accounts.values()
    )
    # Rounded up to a tenth, for round numbers at the colour bar.
    most = max(0.1, math.ceil(max(changes, default=0.0) * 10 - 1e-6) / 10)
    yield HeatMaps(
        id="why-rounds",
        title="Rounds × classes",
        text="The accuracy on each class (column) that a round (row) has lost: altogether, in local training "
        "(the model before the round − the mean of its clients' models, weighted by samples), and in "
        "aggregation (that mean − the model after the round). The two parts sum to the whole. Red is lost, "
        "blue is gained.",
        note=f"Of a run with more than {_ROUNDS} measured rounds, those in which a class fell most."
        if any(len(ledger) > _ROUNDS for *_, ledger in known)
        else "",
        choice="run",
        maps=(Map("Lost", "drop", "round", "class", "lost", most),),
        items=tuple(
            Item(_name(group, reading), tuple(_by_part(ledger)), (group.id,))
            for group, reading, ledger in known
        ),
        frame="part",
    )
    yield HeatMaps(
        id="why-timeline",
        title="Round by round",
        text="The same for one round at a time, with the loss in each client's own training. 'mnemos why' "
        "says whose update it was that cost the aggregate a class.",
        note=f"Of a round with more than {_CLIENTS} clients, the first ones."
        if any(len(_clients(accounts)) > _CLIENTS for *_, ledger in known for accounts in ledger.values())
        else "",
        choice="run",
        maps=(Map("Lost", "drop", "part or client", "class or task", "lost", 1.0),),
        items=tuple(
            Item(
                _name(group, reading),
                tuple(_of_round(round, accounts) for round, accounts in ledger.items()),
                (group.id,),
            )
            for group, reading, ledger in known
        ),
    )


def _by_part(ledger: dict[int, Accounts]) -> Iterator[Frame]:
    """Frames of rounds × classes: altogether, and of the two parts."""
    classes = sorted(
        {subject for accounts in ledger.values() for subject in accounts if subject.kind == "class"}
    )
    worst = sorted(ledger, key=lambda round: min(account.change for account in ledger[round].values()))
    rounds = tuple(sorted(worst[:_ROUNDS]))
    for label, part in (  # the page shows the last first
        ("in local training", "local"),
        ("in aggregation", "aggregation"),
        ("altogether", "change"),
    ):
        values = np.array(
            [
                [
                    -float(getattr(ledger[round][subject], part)) if subject in ledger[round] else np.nan
                    for subject in classes
                ]
                for round in rounds
            ]
        )
        yield Frame(label, rounds, tuple(subject.number for subject in classes), values)


def _of_round(round: int, accounts: Accounts) -> Frame:
    """The parts of a round and its clients × classes and tasks."""
    subjects = sorted(subject for subject in accounts if subject.kind != "all")
    clients = _clients(accounts)[:_CLIENTS]
    found = [accounts[subject] for subject in subjects]
    parts = [[-float(account.change) for account in found]]
    parts += [
        [-float(account.local) for account in found],
        [-float(account.aggregation) for account in found],
    ]
    parts += [[-float(account.of_client(client)) for account in found] for client in clients]
    rows = ("altogether", "in local training", "in aggregation", *(f"client {client}" for client in clients))
    names = tuple(str(subject) if subject.kind == "task" else str(subject.number) for subject in subjects)
    return Frame(str(round), rows, names, np.array(parts))


def _clients(accounts: Accounts) -> list[int]:
    return sorted(accounts[Subject()].clients)


def _table(known: Known) -> Table:
    """The largest falls of each group's first run."""
    first = {group.id: (group, ledger) for group, _, ledger in reversed(known)}
    return Table(
        id="why-falls",
        title="The largest falls",
        text=f"The {_FALLS} largest falls of a class in a round, of each group's first seed.",
        columns=(
            Column("group"),
            Column("class", "number"),
            Column("round", "number"),
            Column("before", "number"),
            Column("in local training", "number", "the change of accuracy"),
            Column("in aggregation", "number", "the change of accuracy"),
            Column("after", "number"),
        ),
        rows=tuple(row for group, ledger in reversed(first.values()) for row in _rows(group, ledger)),
    )


def _rows(group: RunGroup, ledger: dict[int, Accounts]) -> Iterator[Row]:
    falls = [
        (account.change, round, subject.number, account)
        for round, accounts in ledger.items()
        for subject, account in accounts.items()
        if subject.kind == "class" and account.change < 0
    ]
    for _, round, label, account in sorted(falls, key=lambda fall: fall[:3])[:_FALLS]:
        shares = (account.before / account.samples, float(account.local), float(account.aggregation))
        cells = (
            Cell(group.label, group.label),
            whole(label),
            whole(round),
            *(spread([value]) for value in (*shares, account.after / account.samples)),
        )
        yield Row(cells, (group.id,))


def _name(group: RunGroup, reading: RunReading) -> str:
    return f"{group.label}, seed {reading.seed}"
