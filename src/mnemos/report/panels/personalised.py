"""The global model corrected for the labels a client expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, spread
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels

_KINDS = (
    ("_test_accuracy", "test"),
    ("_accuracy", "own validation"),
)


@panels.register("personalised")
class Personalised(Panel):
    """Personalised inference beside the plain one (measure `personalised`)."""

    title: ClassVar[str] = "Personalised"
    order: ClassVar[int] = 70

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """Both, as means over clients and of the worst tenth, for test and validation data."""
        columns = [
            (f"{how}{ending}{part}", f"{how}, {where}{', worst tenth' if part else ''}")
            for ending, where in _KINDS
            for part in ("", "_worst_tenth")
            for how in ("personalised", "plain")
        ]
        here = {name for group in groups for one in group.readings for name in one.names()}
        columns = [(name, label) for name, label in columns if name in here]
        if not any(name.startswith("personalised") for name, _ in columns):
            return
        yield Table(
            id="personalised",
            title="Personalised inference",
            text="Client k predicts argmax_c (f_c + log β_kc), β_kc being the share of class c in its "
            "training samples (arXiv 2304.05260, appendix A.4), beside the plain argmax_c f_c: means over "
            "clients, and of the tenth of the clients with the lowest values. The last measured round, mean "
            "± standard deviation over seeds.",
            note="Test: on test samples distributed like the client's own. Own validation: on the samples "
            "the client has held out.",
            columns=(Column("group"), *(Column(label, "number") for _, label in columns)),
            rows=tuple(row for group in groups for row in _row(group, [name for name, _ in columns])),
        )


def _row(group: Group, names: Sequence[str]) -> Iterator[Row]:
    values = [
        [
            float(rows.value[-1])
            for one in group.readings
            if not one.diverged and len(rows := one.of(name).finite)
        ]
        for name in names
    ]
    if any(values):
        cells = (spread(seen) if seen else dash() for seen in values)
        yield Row((Cell(group.label, group.label), *cells), (group.id,))
