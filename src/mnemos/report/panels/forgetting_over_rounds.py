"""The panel of mean forgetting over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.blocks import Block, Cell, Column, Lines, Row, Table, spread
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.curves import over_rounds


@panels.register("forgetting")
class MeanForgettingPanel(Panel):
    """The mean of F_k over clients, and clients' accuracy on their own data, by round."""

    title: ClassVar[str] = "Forgetting over rounds"
    order: ClassVar[int] = 40

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Curves of both, and their last values as a table."""
        views = [
            over_rounds(groups, "forgetting", "mean forgetting F", percent=False),
            over_rounds(groups, "own_accuracy", "accuracy on a client's own data"),
        ]
        views = [view for view in views if view.series]
        if not views:
            return
        yield Lines(
            id="forgetting",
            title="Average forgetting",
            text="Mean over the round's clients k of Fₖ, itself the mean of Fₖᵢ over the models i ≠ k "
            "(arXiv 2304.05260, equation 6); and the mean over k of client k's own model on its own data. "
            "Mean over seeds in a band of one standard deviation.",
            x="round",
            views=tuple(views),
        )
        yield Table(
            id="forgetting-last",
            title="Forgetting at the end",
            text="The same in the last round that all seeds of a group have measured, mean ± standard "
            "deviation over seeds.",
            columns=(
                Column("group"),
                Column("round", "number"),
                Column("mean F", "spread"),
                Column("accuracy on own data", "spread"),
                Column("seeds", "number"),
            ),
            rows=tuple(row for group in groups for row in _row(group)),
        )


def _row(group: RunGroup) -> Iterator[Row]:
    """The row of a group; none if its seeds have measured forgetting in no common round."""
    forgot, own = (
        [
            dict(zip(rows.round.tolist(), rows.value.tolist(), strict=True))
            for reading in group.readings
            if len(rows := reading.of(name).finite) and not reading.diverged
        ]
        for name in ("forgetting", "own_accuracy")
    )
    measured = forgot or own
    common = set.intersection(*(set(rounds) for rounds in measured)) if measured else set()
    if not common:
        return
    last = max(common)
    cells = (
        Cell(group.label, group.label),
        Cell(str(last), last),
        spread([values[last] for values in forgot if last in values], percent=False),
        spread([values[last] for values in own if last in values]),
        Cell(str(len(measured)), len(measured)),
    )
    yield Row(cells, (group.id,))
