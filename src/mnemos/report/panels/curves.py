"""The panel of the global model's metrics over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.report.average import mean_curve
from mnemos.report.blocks import Block, Lines, Series, View
from mnemos.report.groups import RunGroup
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
"""The ending of the names of metrics that summarise those of layers; they are shown with the layers."""


@panels.register("curves")
class CurvesPanel(Panel):
    """Every metric of the whole federation that has no panel of its own."""

    title: ClassVar[str] = "Over rounds"
    order: ClassVar[int] = 20

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """Curves, with a view for each metric."""
        known = dict.fromkeys(
            name for group in groups for reading in group.readings for name in reading.names()
        )
        names = [name for name in _FIRST if name in known]
        names += [name for name in known if name not in {*_FIRST, *_ELSEWHERE} and not name.endswith(NETWORK)]
        views = [view for name in names if (view := over_rounds(groups, name)).series]
        if views:
            yield Lines(
                id="curves",
                title="Accuracy and loss",
                text="Measurements of the global model: mean over seeds, in a band of one standard "
                "deviation.",
                note="Where only some seeds of a group have got that far, the mean is over those.",
                x="round",
                views=tuple(views),
            )


def over_rounds(groups: Sequence[RunGroup], name: str, label: str = "", percent: bool | None = None) -> View:
    """A view of a metric of the whole federation, with a curve for each group.

    `percent` says whether to show values as percentages; None for metrics with `accuracy` in their name.
    """
    label = label or name.replace("_", " ")
    series = []
    for group in groups:
        rows = [reading.of(name).finite for reading in group.readings]
        points = mean_curve([(row.round, row.value) for row in rows if len(row)])
        if points is not None:
            series.append(Series(group.label, *points, groups=(group.id,), style=group.id))
    share = "accuracy" in name if percent is None else percent
    return View(label, label, tuple(series), share)
