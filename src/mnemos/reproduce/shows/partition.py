"""Who holds what; nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from mnemos.data.load import load
from mnemos.federation import deal
from mnemos.report.partition import draw_partition, summarise
from mnemos.reproduce.show import Results, Show, Shown, file_name, shows
from mnemos.reproduce.table import Sheet


@shows.register("partition")
class Partition(Show):
    """A figure a cell: a bar a client, by label."""

    trains: ClassVar[bool] = False

    clients: int = Field(10, ge=1)
    """How many clients to draw, evenly spread over all."""

    def show(self, results: Results, folder: Path) -> Shown:
        """One seed's partition, the first."""
        header = ("row", "column", "clients", "labels a client", "with one label", "distance from all")
        lines, numbers, figures = [], [], []
        for one in results.outcomes:
            cell = one.cell
            experiment = cell.experiment.model_copy(update={"seed": results.seeds[0]})
            dataset = load(experiment.data)
            assignment = deal(experiment, dataset)
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
