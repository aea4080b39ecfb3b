"""Figures of which labels each client holds; nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from mnemos.data.load import load
from mnemos.federation.population import partition_samples
from mnemos.plots.partition import draw_partition, summarise
from mnemos.studies.reproduce.show import RecipeResults, Show, Shown, file_name, shows
from mnemos.studies.reproduce.table import Sheet


@shows.register("partition")
class PartitionShow(Show):
    """A figure for each cell, with a bar for each client, coloured by label."""

    trains: ClassVar[bool] = False

    clients: int = Field(10, ge=1)
    """The number of clients to draw, evenly spread over all."""

    def show(self, results: RecipeResults, folder: Path) -> Shown:
        """Draw the partition of the first seed."""
        header = ("row", "column", "clients", "labels a client", "with one label", "distance from all")
        lines, numbers, figures = [], [], []
        for outcome in results.outcomes:
            cell = outcome.cell
            experiment = cell.experiment.model_copy(update={"seed": results.seeds[0]})
            dataset = load(experiment.data)
            assignment = partition_samples(experiment, dataset)
            labels = dataset.train.labels.numpy()
            facts = summarise(assignment, labels)
            lines.append(
                (
                    cell.row_name,
                    cell.column,
                    str(facts["clients"]),
                    f"{facts['labels_mean']:.2f}",
                    str(facts["one_label"]),
                    f"{facts['distance_mean']:.3f}",
                )
            )
            numbers.append({"row": cell.row_name, "column": cell.column, **facts})
            path = folder / f"partition-{file_name(cell.row_name, cell.column)}.png"
            title = f"Who holds what: {cell.row_name}, {cell.column}"
            figures.append(draw_partition(assignment, labels, dataset.classes, path, self.clients, title))
        return Shown(Sheet(header, lines, numbers), figures)
