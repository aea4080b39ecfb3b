"""What was measured of the global model, over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.average import mean_curve
from mnemos.report.blocks import Block, Lines, Series, View
from mnemos.report.groups import Group
from mnemos.report.panel import Panel, panels

_FIRST = ("validation_accuracy", "test_accuracy", "train_loss", "validation_loss", "test_loss")
_ELSEWHERE = {
    "bytes_up",
    "bytes_down",
    "time",
    "forgetting",
    "own_accuracy",
    "discovered_accuracy",
    "all_classes_accuracy",
    "task_forgetting",
}
"""Metrics that have a panel of their own."""
NETWORK = "_network"
"""How the names of metrics end that are made of layers'; they are shown beside these."""


@panels.register("curves")
class Curves(Panel):
    """Every metric of the whole federation, one at a time."""

    title: ClassVar[str] = "Over rounds"
    order: ClassVar[int] = 20

    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """One view a metric."""
        known = dict.fromkeys(name for group in groups for one in group.readings for name in one.names())
        names = [name for name in _FIRST if name in known]
        names += [name for name in known if name not in {*_FIRST, *_ELSEWHERE} and not name.endswith(NETWORK)]
        views = [view for name in names if (view := over_rounds(groups, name)).series]
        if views:
            yield Lines(
                id="curves",
                title="Accuracy and loss",
                text="Mean over seeds of what was measured of the global model, in a band of one standard "
                "deviation.",
                note="Where some seeds of a group have gone further than others, the mean is of those.",
                x="round",
                views=tuple(views),
            )


def over_rounds(groups: Sequence[Group], name: str, label: str = "", percent: bool | None = None) -> View:
    """A metric of the whole federation, one curve a group."""
    label = label or name.replace("_", " ")
    series = []
    for group in groups:
        rows = [one.of(name).finite for one in group.readings]
        points = mean_curve([(row.round, row.value) for row in rows if len(row)])
        if points is not None:
            series.append(Series(group.label, *points, groups=(group.id,), style=group.id))
    share = "accuracy" in name if percent is None else percent
    return View(label, label, tuple(series), share)
