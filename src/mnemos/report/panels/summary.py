"""What was reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.average import mean_of
from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash, spread, whole
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels
from mnemos.report.reading import Reading


@panels.register("summary")
class Summary(Panel):
    """Final accuracy of every group, mean ± standard deviation over seeds."""

    title: ClassVar[str] = "Summary"
    order: ClassVar[int] = 10

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """A row a group."""
        if not groups:
            return
        several = len({group.data for group in groups}) > 1
        best = best_groups(groups)
        rows = [self._row(group, best) for group in groups]
        labels = [
            Column("group"),
            Column("data"),
            Column("final accuracy", "spread"),
            Column("best seed", "number"),
            Column("worst seed", "number"),
            Column("NC", "number", "runs that did not converge"),
            Column("seeds", "number"),
            Column("rounds", "number"),
            Column("so far", "number", "newest accuracy of runs that have not ended, mean"),
            Column("status"),
        ]
        # Columns that would say the same or nothing in all rows are left out.
        left_out = set() if several else {"data"}
        left_out |= set() if any(len(group.readings) > 1 for group in groups) else {"best seed", "worst seed"}
        left_out |= set() if any(row[8].value is not None for row in rows) else {"so far"}
        kept = [place for place, column in enumerate(labels) if column.label not in left_out]
        yield Table(
            id="summary",
            title="Final accuracy",
            text="Final accuracy of each group of runs that differ in their seed alone: "
            f"{_what(groups)}, mean ± standard deviation over seeds. The best mean"
            + (" of each data set" if several else "")
            + " is marked.",
            note="NC: not converged. Such runs are counted and left out of the mean; a group that has some "
            "isn't marked as the best while another has none.",
            columns=tuple(labels[place] for place in kept),
            rows=tuple(
                Row(tuple(row[place] for place in kept), (group.id,))
                for group, row in zip(groups, rows, strict=True)
            ),
        )

    def _row(self, group: Group, best: set[int]) -> tuple[Cell, ...]:
        values = list(group.accuracies.values())
        going = [newest(one) for one in group.readings if one.accuracy is None and not one.diverged]
        so_far = [value for value in going if value is not None]
        done = sorted({one.rounds for one in group.readings})
        rounds = str(done[0]) if len(done) == 1 else f"{done[0]} – {done[-1]}"
        asked = group.experiment.rounds
        data = type(group.experiment.data).name
        return (
            Cell(group.label, group.label),
            Cell(data, data),
            spread(values, diverged=group.diverged, best=group.id in best),
            percent(max(values, default=None)),
            percent(min(values, default=None)),
            whole(group.diverged),
            whole(len(group.readings)),
            Cell(rounds if done == [asked] else f"{rounds} of {asked}", done[-1]),
            percent(mean_of(so_far) if so_far else None),
            _states(group),
        )


def best_groups(groups: Sequence[Group]) -> set[int]:
    """The groups with the best mean final accuracy of their data set, among those that always converged.

    A mean of the seeds that happened to converge isn't what a reader would get; it is marked only where there
    is nothing else.
    """
    best: set[int] = set()
    for data in {group.data for group in groups}:
        mine = [group for group in groups if group.data == data and group.accuracies]
        rivals = [group for group in mine if not group.diverged] or mine
        means = {group.id: mean_of([*group.accuracies.values()]) for group in rivals}
        best |= {one for one, mean in means.items() if mean == max(means.values())}
    return best


def newest(one: Reading) -> float | None:
    """The newest accuracy of the global model: test, or validation."""
    seen = [one.of(name).finite for name in ("test_accuracy", "validation_accuracy")]
    last = [
        (int(rows.round[-1]), -place, float(rows.value[-1])) for place, rows in enumerate(seen) if len(rows)
    ]
    return max(last)[2] if last else None


def _what(groups: Sequence[Group]) -> str:
    """Which accuracy the final one is."""
    readings = [one for group in groups for one in group.readings]
    known = [one for one in readings if one.accuracy is not None] or readings
    tested = [one for one in known if len(one.of("test_accuracy"))]
    last = sorted({one.experiment.evaluate.test_last for one in tested})
    if not tested:
        return "validation accuracy"
    others = "" if len(tested) == len(known) else " (validation accuracy of runs that weren't tested)"
    if last == [1]:
        return f"test accuracy after the last round{others}"
    number = str(last[0]) if len(last) == 1 else f"{last[0]} to {last[-1]}"
    return f"test accuracy, mean of the last {number} rounds{others}"


def _states(group: Group) -> Cell:
    counts = Counter(one.status.status for one in group.readings)
    if len(counts) == 1:
        (state,) = counts
        return Cell(state, state)
    text = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    return Cell(text, text)


def percent(value: float | None) -> Cell:
    """`93.2 %`, or a dash."""
    return dash() if value is None else Cell(f"{100 * value:.1f} %", value)
