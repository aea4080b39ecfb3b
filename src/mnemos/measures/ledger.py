"""The ledger: what each round's local training and aggregation do to the accuracy on each class and task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from mnemos.errors import ConfigError
from mnemos.measures.continual import On
from mnemos.measures.counting import Groups
from mnemos.measures.forgetting import is_due
from mnemos.measures.measure import Measure, Occasions, Opening, Record, Scores, Watch, measures

SAMPLES, BEFORE, LOCAL, AFTER, WEIGHT = (
    "ledger_samples",
    "ledger_before",
    "ledger_local",
    "ledger_after",
    "ledger_weight",
)


@measures.register("ledger")
class Ledger(Measure):
    """Correct answers by class and task: before a round, of each client's model, and after the round.

    Recorded are numbers of samples, so that what is computed from them is exact. For each class, and for
    each task that is discovered (column `task`), with all classes as possible answers:

    - `ledger_samples`, how many samples there are;
    - `ledger_before`, how many the server's model before the round answers correctly, b;
    - `ledger_local`, how many client k's model does after local training (column `model`), l_k;
    - `ledger_after`, how many the server's model after the round does, a;

    and `ledger_weight`, the number of training samples of client k, n_k. With m = Σ n_k l_k / Σ n_k, the
    round's change a − b is (m − b) in local training and (a − m) in aggregation, whatever weights the
    method itself gives. Under an asynchronous clock b is of the server's model, not of the older one that a
    late client was sent. What acts after the server's step, such as a meta step, counts as aggregation.
    """

    remote: ClassVar[bool] = True
    together: ClassVar[bool] = True
    one_server: ClassVar[bool] = True

    every: int = Field(1, ge=1, description="rounds between measurements; the first and the last are in")
    on: On = Field("validation", description="whose samples: all clients' validation, or the test set's")

    def check(self, occasions: Occasions) -> None:
        """Refuse experiments without samples to measure on."""
        if self.on == "test" and not occasions.test_samples:
            raise ConfigError("there is no test set; on=validation takes clients' validation samples")
        if self.on == "validation" and not len(occasions.flow.assignment.union_held_out()):
            raise ConfigError("no client holds validation data; raise partition.validation, or take on=test")

    def watch(self, opening: Opening) -> Watch | None:
        """A watch in the rounds that are measured."""
        return _Watch(self.on, opening) if is_due(self.every, opening.round, opening.last) else None


class _Watch(Watch):
    """Counts the correct answers of the models of a round, by class."""

    def __init__(self, on: On, opening: Opening) -> None:
        self._on, self._opening = on, opening
        self._held_out = torch.from_numpy(opening.assignment.union_held_out())
        self._sizes, self._before = self._count(opening.model, opening.buffers)
        self._local: dict[int, Tensor] = {}
        self._after: Tensor | None = None

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """Count the correct answers of a client's model."""
        sizes, right = self._count(model, buffers)
        if sizes.equal(self._sizes):  # otherwise an owner didn't answer, and these can't be compared
            self._local[client] = right

    def aggregated(self, model: Tensor, buffers: Tensor) -> None:
        """Count the correct answers of the server's next model."""
        sizes, right = self._count(model, buffers)
        self._after = right if sizes.equal(self._sizes) else None

    def records(self) -> Iterator[Record]:
        """All counts by class and by task; none if the models before and after can't be compared."""
        if self._after is None:
            return
        round, flow = self._opening.round, self._opening.flow
        for client in self._local:
            samples = len(flow.if_asked.samples(client, round))
            yield Record(round, WEIGHT, float(samples), model=client)
        # What follows has the model after the round last, so that its presence means that all is there.
        named: list[tuple[str, int | None, Tensor]] = [(LOCAL, *pair) for pair in self._local.items()]
        named += [(SAMPLES, None, self._sizes), (BEFORE, None, self._before), (AFTER, None, self._after)]
        known = self._sizes.nonzero().flatten().tolist()
        tasks = [(task, flow.tasks[task]) for task in flow.discovered(round).tolist()] if flow.tasks else []
        for name, model, values in named:
            for label in known:
                yield Record(round, name, float(values[label]), model=model, cls=label)
            for task, classes in tasks:
                value = float(values[torch.from_numpy(classes)].sum())
                yield Record(round, name, value, model=model, task=task)

    def _count(self, model: Tensor, buffers: Tensor) -> tuple[Tensor, Tensor]:
        """(how many samples there are of each class, how many of them the model answers correctly)."""
        opening = self._opening
        scores: Scores = (
            opening.test(model, buffers)
            if self._on == "test"
            else opening.evaluate(model, buffers, self._held_out)
        )
        counts = scores.counts(Groups.of_classes(scores.classes))
        return counts.sizes, counts.right[0]
