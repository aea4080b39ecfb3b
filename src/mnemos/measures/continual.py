"""The model's accuracy on each task of a stream, while clients move from one task to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from mnemos.data.partition import Ints
from mnemos.errors import ConfigError
from mnemos.measures.counting import Groups
from mnemos.measures.measure import Measure, Moment, Occasions, Record, Scores, measures

On = Literal["test", "validation"]


@measures.register("continual")
class Continual(Measure):
    """The global model's accuracy on each task, on all discovered tasks, and on each client's tasks so far.

    A task is a set of classes. It is discovered when a selected client has trained on it. The model predicts
    the class of the largest logit among some of its outputs:

    - `task_accuracy` of each discovered task: its samples, the outputs of all discovered tasks' classes;
    - `discovered_accuracy`: the samples and the outputs of all discovered tasks' classes;
    - `all_classes_accuracy`: all samples, the outputs of all discovered tasks' classes, so that a sample of
      another class counts as wrong;
    - `reached_accuracy` of each client (columns `client`, and `task` for its present task): the samples of
      the tasks it has reached so far, the outputs of all discovered tasks' classes;
    - `task_aware_accuracy` of each task, discovered or not: its samples and the outputs of its own classes,
      as if the model were told the task of each sample. It is also recorded for the untrained model, as
      round 0.

    Average accuracy, forgetting and transfer are computed from these (`mnemos.runs.task_course`).
    """

    remote: ClassVar[bool] = True
    from_the_start: ClassVar[bool] = True

    on: On = Field("test", description="whose samples: the test set's, or clients' validation samples")

    def check(self, occasions: Occasions) -> None:
        """Refuse a stream without tasks, and fewer than two evaluations."""
        needs_tasks(occasions)
        if self.on == "test" and occasions.tests < 2:
            raise ConfigError(
                f"it compares evaluations on the test set, and there would be {occasions.tests}; "
                "evaluate.test_every=10 asks for one in every tenth round, on=validation for other samples"
            )
        if self.on == "validation" and occasions.validations < 2:
            raise ConfigError(
                f"it compares evaluations on validation data, and there would be {occasions.validations}; "
                "raise partition.validation, or lower evaluate.every"
            )

    def records(self, moment: Moment) -> Iterator[Record]:
        """All accuracies; of the untrained model, those that need no discovered task."""
        scores = moment.test if self.on == "test" else moment.validation
        if scores is None:
            return
        round, flow = moment.round, moment.flow
        discovered = flow.discovered(round)
        answers = TaskAnswers(scores, flow.tasks, discovered)
        for task, value in answers.shares(answers.aware):
            yield Record(round, "task_aware_accuracy", value, task=task)
        if not (len(discovered) and answers.samples):
            return
        right = answers.right
        for task, value in answers.shares(right):
            if task in discovered:
                yield Record(round, "task_accuracy", value, task=task)
        for client in range(flow.assignment.clients):
            reached = flow.reached(client, round)
            if (size := answers.sizes[reached].sum()) > 0:
                value = float(right[reached].sum() / size)
                yield Record(round, "reached_accuracy", value, client=client, task=flow.task(client, round))
        # These come last, so that their presence means that an evaluation is complete.
        yield Record(round, "all_classes_accuracy", float(right.sum() / answers.samples))
        if (size := answers.sizes[discovered].sum()) > 0:
            yield Record(round, "discovered_accuracy", float(right[discovered].sum() / size))


def needs_tasks(occasions: Occasions) -> None:
    """Refuse a stream without tasks."""
    if not occasions.flow.tasks:
        raise ConfigError("it is about tasks, and the stream has none; stream=tasks has")


class TaskAnswers:
    """How many samples of each task a model predicts correctly."""

    def __init__(self, scores: Scores, tasks: Sequence[Ints], among: Sequence[int] | Ints) -> None:
        """`tasks` are the classes of each task, and `among` the tasks whose classes may be predicted."""
        task_of = torch.full((scores.classes,), -1)
        for task, classes in enumerate(tasks):
            task_of[torch.from_numpy(classes)] = task
        own = task_of == torch.arange(len(tasks))[:, None]
        allowed = torch.isin(task_of, torch.as_tensor(among))[None]
        counts = scores.counts(Groups(task_of, (own, allowed)))
        self.samples = counts.samples
        """The number of all samples, including those of no task."""
        self.sizes: Ints = counts.sizes.numpy()
        """The number of samples of each task."""
        self.aware: Ints = counts.right[0].numpy()
        """The number of correct ones of each task if only classes of a sample's own task are predicted."""
        self.right: Ints = counts.right[1].numpy()
        """The number of correct ones of each task if classes of the tasks `among` are predicted."""

    def shares(self, right: Ints) -> Iterator[tuple[int, float]]:
        """Each task that has samples, with the share of them that is correct."""
        for task in np.flatnonzero(self.sizes).tolist():
            yield task, float(right[task] / self.sizes[task])
