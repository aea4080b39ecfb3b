"""The panel of final accuracies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from mnemos.report.average import mean_of
from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, spread, whole
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels
from mnemos.report.panels.significance import told_apart
from mnemos.report.reading import RunReading


@panels.register("summary")
class SummaryPanel(Panel):
    """Final accuracy of every group, mean ± standard deviation over seeds."""

    title: ClassVar[str] = "Summary"
    order: ClassVar[int] = 10

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each group."""
        if not groups:
            return
        several = len({group.data for group in groups}) > 1
        best = best_groups(groups)
        apart = {group.id for group in groups if group.id in best and told_apart(group, groups)}
        rows = [self._row(group, best, apart) for group in groups]
        labels = [
            Column("group"),
            Column("data"),
            Column("final accuracy", "spread"),
            Column("best seed", "number"),
            Column("worst seed", "number"),
            Column("NC", "number", "runs that did not converge"),
            Column("seeds", "number"),
            Column("rounds", "number"),
            Column("so far", "number", "newest accuracy of runs that have not ended, mean", state=True),
            Column("status", state=True),
        ]
        # Columns that would have the same content in all rows are left out.
        left_out = set() if several else {"data"}
        left_out |= set() if any(len(group.readings) > 1 for group in groups) else {"best seed", "worst seed"}
        left_out |= set() if any(row[8].value is not None for row in rows) else {"so far"}
        kept = [index for index, column in enumerate(labels) if column.label not in left_out]
        yield Table(
            id="summary",
            title="Final accuracy",
            text="Final accuracy of each group of runs that differ only in their seed: "
            f"{_what(groups)}, mean ± standard deviation over seeds. The best mean"
            + (" of each data set" if several else "")
            + " is marked.",
            note="NC: not converged. Such runs are counted and left out of the mean; a group that has some "
            "isn't marked as the best while another has none.",
            columns=tuple(labels[index] for index in kept),
            rows=tuple(
                Row(tuple(row[index] for index in kept), (group.id,))
                for group, row in zip(groups, rows, strict=True)
            ),
        )

    def _row(self, group: RunGroup, best: set[int], apart: set[int]) -> tuple[Cell, ...]:
        values = list(group.accuracies.values())
        going = [
            newest(reading) for reading in group.readings if reading.accuracy is None and not reading.diverged
        ]
        so_far = [value for value in going if value is not None]
        done = sorted({reading.rounds for reading in group.readings})
        rounds = str(done[0]) if len(done) == 1 else f"{done[0]} – {done[-1]}"
        asked = group.experiment.rounds
        data = group.experiment.data.title
        return (
            Cell(group.label, group.label),
            Cell(data, data),
            replace(spread(values, diverged=group.diverged, best=group.id in best), apart=group.id in apart),
            percent(max(values, default=None)),
            percent(min(values, default=None)),
            whole(group.diverged),
            whole(len(group.readings)),
            Cell(rounds if done == [asked] else f"{rounds} of {asked}", done[-1]),
            percent(mean_of(so_far) if so_far else None),
            _states(group),
        )


def best_groups(groups: Sequence[RunGroup]) -> set[int]:
    """The ids of the groups with the best mean final accuracy on their data set.

    A group of which some seed diverged counts only if no group on the data set always converged, because its
    mean is over the seeds that happened to converge.
    """
    best: set[int] = set()
    for data in {group.data for group in groups}:
        mine = [group for group in groups if group.data == data and group.accuracies]
        rivals = [group for group in mine if not group.diverged] or mine
        means = {group.id: mean_of([*group.accuracies.values()]) for group in rivals}
        best |= {id for id, mean in means.items() if mean == max(means.values())}
    return best


def newest(reading: RunReading) -> float | None:
    """The newest accuracy of the global model, on the test or validation data; None if there is none."""
    seen = [reading.of(name).finite for name in ("test_accuracy", "validation_accuracy")]
    last = [
        (int(rows.round[-1]), -index, float(rows.value[-1])) for index, rows in enumerate(seen) if len(rows)
    ]
    return max(last)[2] if last else None


def _what(groups: Sequence[RunGroup]) -> str:
    """A description of the final accuracy: on which data, and over which rounds."""
    readings = [reading for group in groups for reading in group.readings]
    known = [reading for reading in readings if reading.accuracy is not None] or readings
    tested = [reading for reading in known if len(reading.of("test_accuracy"))]
    last = sorted({reading.experiment.evaluate.test_last for reading in tested})
    if not tested:
        return "validation accuracy"
    others = "" if len(tested) == len(known) else " (validation accuracy of runs that weren't tested)"
    if last == [1]:
        return f"test accuracy after the last round{others}"
    count = str(last[0]) if len(last) == 1 else f"{last[0]} to {last[-1]}"
    return f"test accuracy, mean of the last {count} rounds{others}"


def _states(group: RunGroup) -> Cell:
    counts = Counter(reading.status.status for reading in group.readings)
    if len(counts) == 1:
        (state,) = counts
        return Cell(state, state)
    text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    return Cell(text, text)


def percent(value: float | None) -> Cell:
    """A cell such as `93.2 %`; a dash for None."""
    return dash() if value is None else Cell(f"{100 * value:.1f} %", value)
