"""Several runs side by side in one process, whose cohorts are trained together.

Each run is a thread, but only one thread works at a time: it hands the turn on when it comes to the training
of a cohort. When all have come to it, the cohorts of alike runs are trained as the rows of one matrix, and
the runs go on, in order. So small models need fewer and larger tensor operations, and nothing that runs share
has to be guarded.

A cohort joins others only if that leaves its bits as they are: its gradients are in closed form, all clients
of all cohorts have batches of the same sizes (so that none is filled up), and the runs' plans differ in
numbers that are applied cohort by cohort: the seed, the learning rate, the weight decay. The first time, each
is also trained alone, and if a bit differs on this machine, cohorts of that kind go on alone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from itertools import accumulate
from typing import TYPE_CHECKING

from torch import Tensor

from mnemos.client.messages import Plan, TrainRequest
from mnemos.client.step import train
from mnemos.client.trainer import intra_op
from mnemos.client.workload import workload
from mnemos.data.dataset import Dataset
from mnemos.engines.rows import Rows
from mnemos.methods.replies import TrainReplies

if TYPE_CHECKING:
    from mnemos.engines.vmap import VmapRunner

_company: ContextVar[Company | None] = ContextVar("company", default=None)


def company() -> Company | None:
    """The runs that the calling thread's run goes on beside; None if it is alone."""
    return _company.get()


class _Member:
    """A run of a company: its thread's turn, and the cohort that it waits for."""

    def __init__(self) -> None:
        self.turn = threading.Semaphore(0)
        self.runner: VmapRunner | None = None
        self.cohort: list[TrainRequest] = []
        self.replies = TrainReplies([])
        self.error: Exception | None = None

    def train_alone(self) -> None:
        """Train the cohort as if there were no others; an error is kept for the run."""
        assert self.runner is not None
        try:
            self.replies = TrainReplies.joined([*self.runner.train_alone(self.cohort)])
        except Exception as error:
            self.error = error


class Company:
    """Runs that go on side by side in this process."""

    def __init__(self) -> None:
        self._ready: deque[_Member] = deque()
        """Those whose turn will come, in order."""
        self._waiting: list[_Member] = []
        """Those that wait for the training of their cohorts."""
        self._own = threading.local()
        self._stopped = False
        self._same: dict[Hashable, bool] = {}
        """Of each kind of cohorts that were trained as one: whether that has left their bits as they were."""
        self.launches = 0
        """How often cohorts of several runs were trained as one."""

    def go(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Carry out the tasks, each a run, side by side.

        If this thread is interrupted, a KeyboardInterrupt is raised in each task before it trains its next
        cohort, so never while a round is being saved, and in this thread when all have ended.
        """
        members = [_Member() for _ in tasks]
        self._ready.extend(members)
        threads = [
            threading.Thread(target=self._take_part, args=pair, daemon=True)
            for pair in zip(members, tasks, strict=True)
        ]
        try:
            for thread in threads:
                thread.start()
            self._hand_on()
            _join(threads)
        except KeyboardInterrupt:
            self._stopped = True
            _join(threads)
            raise

    def train(self, runner: VmapRunner, cohort: list[TrainRequest]) -> TrainReplies:
        """The replies of a cohort of the calling thread's run; the others have their turns meanwhile."""
        me: _Member = self._own.member
        me.runner, me.cohort, me.replies, me.error = runner, cohort, TrainReplies([]), None
        self._waiting.append(me)
        self._hand_on()
        me.turn.acquire()
        replies, me.cohort, me.replies = me.replies, [], TrainReplies([])
        if self._stopped:
            raise KeyboardInterrupt
        if me.error is not None:
            raise me.error
        return replies

    def _take_part(self, me: _Member, task: Callable[[], None]) -> None:
        """A run's thread."""
        self._own.member = me
        _company.set(self)
        me.turn.acquire()
        try:
            if not self._stopped:
                task()
        except KeyboardInterrupt:
            pass  # raised by `train`; `go` raises it in the thread that was interrupted
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        """End the calling thread's turn; if all wait to be trained, they are, before the next begins."""
        if not self._ready and self._waiting:
            waiting, self._waiting = self._waiting, []
            if not self._stopped:
                self._launch(waiting)
            self._ready.extend(waiting)
        if self._ready:
            self._ready.popleft().turn.release()

    def _launch(self, waiting: Sequence[_Member]) -> None:
        """Train the cohorts of all that wait."""
        alike: dict[Hashable, list[_Member]] = {}
        for member in waiting:
            assert member.runner is not None
            kind = _kind(member.runner, member.cohort)
            alike.setdefault(id(member) if kind is None else kind, []).append(member)
        for kind, members in alike.items():
            for chunk in _chunks(members):
                if len(chunk) > 1 and self._same.get(kind, True):
                    self._train(kind, chunk)
                else:
                    for member in chunk:
                        member.train_alone()

    def _train(self, kind: Hashable, members: Sequence[_Member]) -> None:
        """Train the cohorts of one kind as one; the first time also each alone, to compare the bits."""
        try:
            found = _joint(members)
        except Exception:  # which concerns one of them, as a rule: so each finds out for itself
            for member in members:
                member.train_alone()
            return
        self.launches += 1
        if kind in self._same:
            for member, replies in zip(members, found, strict=True):
                member.replies = replies
            return
        for member in members:
            member.train_alone()
        self._same[kind] = all(map(_equal, found, (member.replies for member in members)))


def _joint(members: Sequence[_Member]) -> list[TrainReplies]:
    """The replies of each member's cohort, trained as the rows of one matrix."""
    runner = members[0].runner
    assert runner is not None
    with intra_op(runner.plan.arithmetic.intra_op):
        cohorts = [_aligned(member.cohort, runner.row_step) for member in members]
        replies = train(runner.joint([request for cohort in cohorts for request in cohort]))
    begins = accumulate(map(len, cohorts), initial=0)
    pairs = zip(begins, members, strict=False)
    # Copies: products with a part of a matrix round differently, by where in memory it begins.
    return [replies[begin : begin + len(member.cohort)].copied() for begin, member in pairs]


def _equal(ours: TrainReplies, theirs: TrainReplies) -> bool:
    """Whether replies are the same to the bit; empty ones, of a cohort that failed, are not."""
    if not theirs:
        return False
    own, other = ours.columns, theirs.columns
    return own.delta.equal(other.delta) and [*own.losses] == [*other.losses]


class JointRows(Rows):
    """The clients of several runs, whose plans differ in numbers; the rows of a run are side by side."""

    def optimise(self, gradient: Tensor, rates: Sequence[float]) -> None:
        """One step of every row, run by run.

        A run's rows have the same rate, which a step takes as a number. It would round differently with a
        column of rates.
        """
        for part, plan in _parts(self._requests):
            local, state = plan.local, {name: values[part] for name, values in self.optimizer.items()}
            lr = rates[part.start]
            local.optimizer.step(self.parameters[part], gradient[part], state, lr, local.weight_decay)


def kind_of(plan: Plan, dataset: Dataset) -> Hashable | None:
    """What runs whose gradients are in closed form have in common if their clients can be rows of one matrix.

    None: a cohort of this plan trains alone. A method that corrects gradients does, because the vector that
    all clients of a run have received would have to be a row for each, and products with it would round
    differently.
    """
    method, local = plan.method, plan.local
    corrects = method.uses("correct") or method.uses("gradient_point")
    if corrects or not local.optimizer.elementwise or local.optimizer.counts_epochs:
        return None
    without = local.model_copy(update={"lr": 1.0, "weight_decay": 0.0})
    return plan.model_copy(update={"local": without, "seed": 0}).model_dump_json(), id(dataset)


def _parts(requests: Sequence[TrainRequest]) -> Iterator[tuple[slice, Plan]]:
    """The rows of each run, and its plan."""
    begin = 0
    for end in range(1, len(requests) + 1):
        if end == len(requests) or requests[end].plan is not requests[begin].plan:
            yield slice(begin, end), requests[begin].plan
            begin = end


def _kind(runner: VmapRunner, cohort: Sequence[TrainRequest]) -> Hashable | None:
    """What cohorts have in common that can be trained as one; None: this one trains alone."""
    if runner.kind is None or any(request.noise or request.trigger for request in cohort):
        return None
    sizes = {_sizes(request) for request in cohort}
    return (runner.kind, *sizes) if len(sizes) == 1 else None


def _aligned(cohort: list[TrainRequest], step: int) -> list[TrainRequest]:
    """The cohort with as many more clients as make their number a multiple of `step`."""
    return [*cohort, *cohort[-1:] * (-len(cohort) % step)]


def _sizes(request: TrainRequest) -> tuple[object, ...]:
    """What the sizes of a client's batches depend on, beside its run's plan."""
    total = None if request.steps is None else workload(request, batch_norm=False).total
    return len(request.samples), total


def _chunks(members: Sequence[_Member]) -> Iterator[list[_Member]]:
    """As many whole cohorts at a time as a chunk may have clients, but at least one."""
    runner = members[0].runner
    assert runner is not None
    most = runner.fitting(members[0].cohort[0]) if len(members) > 1 else 0
    chunk: list[_Member] = []
    clients = 0
    for member in members:
        if chunk and clients + len(member.cohort) > most:
            yield chunk
            chunk, clients = [], 0
        chunk.append(member)
        clients += len(member.cohort)
    yield chunk


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        if thread.ident is not None:
            thread.join()
