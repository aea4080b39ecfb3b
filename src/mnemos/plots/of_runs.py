"""The figures that runs and the results of a study offer in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mnemos.data.load import load
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.population import partition_samples
from mnemos.plots.curves import curves_figure, measured_name
from mnemos.plots.forgetting_maps import class_figure, forgetting_figure, read_grid, side_by_side_figure
from mnemos.plots.partition import partition_figure
from mnemos.plots.style import Picture
from mnemos.runs.forgetting_matrix import HOW, measured_rounds, not_measured
from mnemos.runs.run import Run


def curves(groups: Mapping[str, Sequence[Run]], name: str | None = None) -> Picture:
    """A line for each group of runs; `name` is the metric, by default the accuracy that was measured."""
    groups = {label: runs for label, runs in groups.items() if runs}
    return curves_figure(groups, measured_name([run for runs in groups.values() for run in runs], name))


def heat_maps(runs: Mapping[str, Run], rounds: Sequence[int], *, classes: bool = False) -> Picture:
    """Heat-maps of forgetting of each run and round; without `rounds`, of the last that all have measured.

    One run has maps of forgetting and of accuracy; several runs have forgetting side by side. With `classes`
    the maps are of what was forgotten of each class.
    """
    known = [set(measured_rounds(run.metrics)) for run in runs.values()]
    common, measured = set.intersection(*known), set.union(*known)
    for round in rounds:
        if round not in measured:
            raise ConfigError(not_measured(round, sorted(measured)), "rounds")
    if not rounds and not common:
        raise ConfigError(f"the runs measured forgetting in no common round; {HOW}", "rounds")
    grid = read_grid(runs, rounds or [max(common)], classes=classes)
    if classes:
        return class_figure(grid)
    return forgetting_figure(grid) if len(runs) == 1 else side_by_side_figure(grid)


def partition(experiment: Experiment, clients: int = 30) -> Picture:
    """Who holds what: a bar for each of at most `clients` clients, stacked by label."""
    dataset = load(experiment.data)
    if dataset.remote:
        raise DataError("data: it is with its owners, and its labels are known to them alone")
    assignment = partition_samples(experiment, dataset)
    return partition_figure(assignment, dataset.train.labels.numpy(), dataset.classes, clients)
