"""The panel of personalised inference: the global model, corrected for the labels that a client expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, spread
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels

_KINDS = (
    ("_test_accuracy", "test"),
    ("_accuracy", "own validation"),
)


@panels.register("personalised")
class PersonalisedPanel(Panel):
    """Personalised inference beside plain inference (measure `personalised`)."""

    title: ClassVar[str] = "Personalised"
    order: ClassVar[int] = 70

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table of both, as means over clients and over the worst tenth, for test and validation data."""
        recorded = {name for group in groups for reading in group.readings for name in reading.names()}
        columns = [(name, label) for name, label in _columns() if name in recorded]
        if not any(name.startswith("personalised") for name, _ in columns):
            return
        yield Table(
            id="personalised",
            title="Personalised inference",
            text="Client k predicts argmax_c (f_c + log β_kc), β_kc being the share of class c in its "
            "training samples (arXiv 2304.05260, appendix A.4), compared with the plain argmax_c f_c: "
            "means over "
            "clients, and of the tenth of the clients with the lowest values. The last measured round, mean "
            "± standard deviation over seeds.",
            note="Test: on test samples distributed like the client's own. Own validation: on the samples "
            "the client has held out.",
            columns=(Column("group"), *(Column(label, "number") for _, label in columns)),
            rows=tuple(row for group in groups for row in _row(group, [name for name, _ in columns])),
        )


def _columns() -> Iterator[tuple[str, str]]:
    """The name of each metric that can be shown, and its label."""
    for ending, data in _KINDS:
        for part, words in (("", ""), ("_worst_tenth", ", worst tenth")):
            for how in ("personalised", "plain"):
                yield f"{how}{ending}{part}", f"{how}, {data}{words}"


def _row(group: RunGroup, names: Sequence[str]) -> Iterator[Row]:
    """The row of a group: the last value of each metric, over seeds; none if no seed has any."""
    values = [
        [
            float(rows.value[-1])
            for reading in group.readings
            if not reading.diverged and len(rows := reading.of(name).finite)
        ]
        for name in names
    ]
    if any(values):
        cells = (spread(seen) if seen else dash() for seen in values)
        yield Row((Cell(group.label, group.label), *cells), (group.id,))
