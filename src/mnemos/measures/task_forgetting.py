"""Forgetting of tasks: how much accuracy on each task every client's local training loses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mnemos.data.partition import Floats
from mnemos.errors import ConfigError
from mnemos.measures.continual import On, TaskAnswers, needs_tasks
from mnemos.measures.forgetting import is_due
from mnemos.measures.measure import Measure, Occasions, Opening, Record, Scores, Watch, measures


@measures.register("task-forgetting")
class TaskForgetting(Measure):
    """How much accuracy on each discovered task is lost in each client's local training.

    D_ij = a_j(w_{t−1}) − a_j(w_t^i): the accuracy on discovered task j that client i's training loses.

    a_j is the accuracy on the task's samples if the classes of all tasks discovered up to round t may be
    predicted, w_{t−1} the model that the round's clients receive, and w_t^i client i's model after training.
    Client i's present task is t_i. Recorded are

    - `before_accuracy` of the received model, for each task: a_j(w_{t−1});
    - `after_accuracy` of client i's model (column `model`), for each task: a_j(w_t^i);
    - `task_forgetting_caused` by client i's model (columns `model`, and `task` for t_i): the mean of D_ij
      over the tasks j ≠ t_i;
    - `task_forgetting` of each task: the mean of D_ij over the clients with t_i ≠ j; without a task: the
      mean of that over tasks.
    """

    remote: ClassVar[bool] = True
    in_step: ClassVar[bool] = True

    every: int = Field(10, ge=1, description="rounds between measurements; the first and the last are in")
    on: On = Field("test", description="whose samples: the test set's, or the round's clients' validation")

    def check(self, occasions: Occasions) -> None:
        """Refuse a stream without tasks, and experiments without samples to measure on."""
        needs_tasks(occasions)
        if self.on == "test" and not occasions.test_samples:
            raise ConfigError("there is no test set; on=validation takes clients' validation samples")
        if self.on == "validation" and not occasions.validations:
            raise ConfigError("no client holds validation data; raise partition.validation, or take on=test")

    def watch(self, opening: Opening) -> Watch | None:
        """A watch in the rounds that are measured."""
        return _Watch(self.on, opening) if is_due(self.every, opening.round, opening.last) else None


class _Watch(Watch):
    """Evaluates the received model and each client's model on all discovered tasks."""

    def __init__(self, on: On, opening: Opening) -> None:
        self._opening, self._on = opening, on
        held = [opening.assignment.held_out(client) for client in opening.cohort.tolist()]
        self._held_out = torch.from_numpy(np.concatenate([opening.assignment.order[:0], *held]))
        self._tasks = opening.flow.discovered(opening.round)
        self._models: list[int] = []
        self._after: list[Floats] = []
        self._idle = on == "validation" and not len(self._held_out)
        if not self._idle:
            self._before, self._samples = self._score(opening.model, opening.buffers)

    def see(self, client: int, model: Tensor, buffers: Tensor) -> None:
        """Evaluate a client's model on all discovered tasks."""
        if self._idle:
            return
        after, samples = self._score(model, buffers)
        if samples == self._samples:  # otherwise an owner didn't answer, and these can't be compared
            self._models.append(client)
            self._after.append(after)

    def records(self) -> Iterator[Record]:
        """Accuracies before and after training, and the means of their differences."""
        if not self._models:
            return
        round, flow = self._opening.round, self._opening.flow
        known = np.isfinite(self._before)  # NaN for tasks without a sample
        tasks, before, after = self._tasks[known], self._before[known], np.stack(self._after)[:, known]
        for task, value in zip(tasks.tolist(), before.tolist(), strict=True):
            yield Record(round, "before_accuracy", value, task=task)
        for model, row in zip(self._models, after.tolist(), strict=True):
            for task, value in zip(tasks.tolist(), row, strict=True):
                yield Record(round, "after_accuracy", value, model=model, task=task)
        present = [flow.if_asked.task(model, round) for model in self._models]
        others = np.not_equal.outer(np.array(present), tasks)
        lost = np.ma.array(before - after, mask=~others)
        for model, task, row in zip(self._models, present, lost, strict=True):
            if row.count():
                yield Record(round, "task_forgetting_caused", float(row.mean()), model=model, task=task)
        of_tasks = lost.mean(axis=0)
        for task, value in zip(tasks.tolist(), of_tasks, strict=True):
            if value is not np.ma.masked:
                yield Record(round, "task_forgetting", float(value), task=task)
        if of_tasks.count():
            yield Record(round, "task_forgetting", float(of_tasks.mean()))

    def _score(self, model: Tensor, buffers: Tensor) -> tuple[Floats, int]:
        """Accuracy on each discovered task, NaN for one without samples; and the number of all samples."""
        opening = self._opening
        scores: Scores = (
            opening.test(model, buffers)
            if self._on == "test"
            else opening.evaluate(model, buffers, self._held_out)
        )
        answers = TaskAnswers(scores, opening.flow.tasks, self._tasks)
        right, sizes = answers.right[self._tasks], answers.sizes[self._tasks]
        return np.where(sizes > 0, right / np.maximum(sizes, 1), np.nan), answers.samples
