"""A cohort on the machines of a Ray cluster, or on processes of this one."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from mnemos.cores import cores
from mnemos.data.dataset import Dataset
from mnemos.engines.connection import Connection
from mnemos.engines.crew import PATIENCE, Crew, Member
from mnemos.engines.engine import Engine, Lost, Runner, Work, blame, engines
from mnemos.engines.remote import as_text, own_of, shared_of, update_of
from mnemos.errors import PausedError
from mnemos.message import Plan, Task
from mnemos.methods.exchange import Update

_EACH = 2
"""Tasks that a worker has at a time: one under way and one that waits, so that it needn't."""


@engines.register("ray")
class Ray(Engine):
    """Long-lived workers in a Ray cluster, each a process with one replica and one tensor thread."""

    any_plan: ClassVar[bool] = True

    workers: int = Field(0, ge=0, le=100_000, description="0: one a CPU of the cluster")
    cpus: float = Field(1.0, gt=0, description="CPUs that a worker takes of the cluster's")
    address: str | None = Field(
        None,
        min_length=1,
        description="of a cluster: auto, HOST:PORT, ray://HOST:PORT; if left out, $RAY_ADDRESS or a new one",
    )
    retries: int = Field(2, ge=0, description="further tries of a client whose worker died")
    timeout: float | None = Field(None, gt=0, description="seconds after which a client is given up")

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """Connect, and start workers; no more of them than there are clients."""
        plan = plan.model_copy(update={"arithmetic": self.arithmetic()})
        with ExitStack() as opened:  # what is open is closed again if the rest can't be
            cpus = max(cores(), math.ceil(self.workers * self.cpus))
            connection = opened.enter_context(closing(Connection(self.address, cpus)))
            workers = min(self.workers, work.cohort) or work.cohort
            crew = Crew(connection.ray, plan, dataset, workers, self.cpus)
            opened.enter_context(closing(crew)).start()
            return RayRunner(self, plan, connection.ray, crew, opened.pop_all())


@dataclass(eq=False)
class _Job:
    """A client's round, and what has become of it."""

    task: Task
    shared: Any
    """A reference to what it has in common with others."""
    own: Any
    answer: Any = None
    """A reference to it, once a worker has the job."""
    alone: bool = False
    """Whether it is to have a worker to itself, because one has died that had it."""
    deaths: int = 0
    """Of workers that had nothing else."""
    outcome: Update | Lost | None = None

    def end(self, outcome: Update | Lost) -> None:
        """Keep the outcome alone: references hold memory all over the cluster."""
        self.outcome, self.shared, self.own, self.answer = outcome, None, None, None


class RayRunner(Runner):
    """Gives clients to workers as they come free, and their updates in the cohort's order."""

    def __init__(self, engine: Ray, plan: Plan, ray: Any, crew: Crew, opened: ExitStack) -> None:
        super().__init__(engine, plan)
        self._ray, self._crew, self._opened = ray, crew, opened
        self._retries, self._timeout = engine.retries, engine.timeout
        self._queue: deque[_Job] = deque()
        self._plan: tuple[Plan, str] = plan, as_text(plan)
        self._sent: tuple[Task, Any] | None = None
        self._broadcasts = 0

    def run(self, cohort: Iterable[Task]) -> Iterator[Update | Lost]:
        """The updates of a cohort; at most two a worker are waiting or under way."""
        jobs: deque[_Job] = deque()
        try:
            for task in cohort:
                jobs.append(self._job(task))
                if len(jobs) >= _EACH * len(self._crew.members):
                    yield self._next(jobs)
            while jobs:
                yield self._next(jobs)
        finally:
            self._forget()

    def close(self) -> None:
        """End the workers, and the cluster if it was started for them."""
        self._opened.close()

    def _job(self, task: Task) -> _Job:
        """Have a client trained."""
        first, shared = self._broadcast(task)
        job = _Job(task, shared, own_of(task, first))
        self._queue.append(job)
        self._give_out()
        return job

    def _broadcast(self, task: Task) -> tuple[Task, Any]:
        """The first task with the same model, and what it shares with this one, in the object store once.

        Tasks with the same model come one after the other, so the last one is all there is to compare with.
        """
        if task.plan is not self._plan[0]:
            self._plan = task.plan, as_text(task.plan)
        if self._sent is None or not _alike(task, self._sent[0]):
            self._broadcasts += 1
            self._sent = task, self._ray.put(shared_of(task, self._plan[1], self._broadcasts))
        return self._sent

    def _next(self, jobs: deque[_Job]) -> Update | Lost:
        job = jobs.popleft()
        while job.outcome is None:
            self._wait()
        return job.outcome

    def _wait(self) -> None:
        """Until something has happened; deals with it."""
        members = self._crew.members
        starting = {member.step: member for member in members if not member.ready}
        working = {job.answer: (member, job) for member in members for job in member.jobs}
        done, _ = self._ray.wait([*starting, *working], num_returns=1, timeout=self._patience(members))
        if not done:
            self._overdue(members)
        elif done[0] in starting:
            self._crew.advance(starting[done[0]])
        else:
            self._answered(*working[done[0]])
        self._give_out()

    def _patience(self, members: list[Member]) -> float | None:
        """Seconds to wait for something to happen; None: for ever."""
        begun = [member.since for member in members if member.jobs]
        if not begun:
            return PATIENCE
        return None if self._timeout is None else max(0.0, min(begun) + self._timeout - time.monotonic())

    def _overdue(self, members: list[Member]) -> None:
        """Nothing has happened for too long."""
        busy = [member for member in members if member.jobs]
        if not busy:
            raise PausedError(f"the cluster has had no worker for {PATIENCE:.0f} s: all have died")
        assert self._timeout is not None
        for member in busy:
            if time.monotonic() - member.since >= self._timeout:
                job = member.jobs.popleft()
                job.end(Lost(job.task.client, "timeout"))
                self._replace(member)

    def _answered(self, member: Member, job: _Job) -> None:
        try:
            update = update_of(self._ray.get(job.answer))
        except self._ray.exceptions.RayTaskError as error:  # named, and raised again
            error.cause.add_note(f"At the worker:\n{error}")
            blame(job.task, error.cause)
        except self._ray.exceptions.RayError:
            self._died(member)
        else:
            member.jobs.remove(job)
            member.since = time.monotonic()
            job.end(update)

    def _died(self, member: Member) -> None:
        """Have a worker's jobs done again.

        Of several any may be the reason: the last answer of a worker that dies can be lost with it, so the
        first that isn't answered needn't be the one under way. They get a worker each, which tells.
        """
        for job in member.jobs:
            job.alone = True
        if len(member.jobs) == 1:
            only: _Job = member.jobs[0]
            only.deaths += 1
            if only.deaths > self._retries:
                member.jobs.popleft().end(Lost(only.task.client, "worker died"))
        self._replace(member)

    def _replace(self, member: Member) -> None:
        """Have somebody else do what a worker has left undone, first of all: others' turn comes after it."""
        self._queue.extendleft(reversed(member.jobs))
        self._crew.replace(member)

    def _give_out(self) -> None:
        """Work for everyone who is free."""
        while self._queue:
            job = self._queue[0]
            free = [member for member in self._crew.members if _takes(member, job)]
            if not free:
                break
            member = min(free, key=lambda one: len(one.jobs))
            if not member.jobs:
                member.since = time.monotonic()
            job.answer = member.actor.train.remote(job.shared, job.own)
            member.jobs.append(self._queue.popleft())

    def _forget(self) -> None:
        """What is left of a round that is over, or was broken off."""
        self._sent = None
        self._queue.clear()
        for member in self._crew.members:
            for job in member.jobs:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(job.answer)
            member.jobs.clear()


def _takes(member: Member, job: _Job) -> bool:
    """Whether a worker may have a job now."""
    if not member.jobs:
        return member.ready
    return len(member.jobs) < _EACH and not (job.alone or member.jobs[0].alone)


def _alike(one: Task, other: Task) -> bool:
    """Whether two tasks have the same plan, model and whatever is received with it: the same objects."""
    return (
        one.plan is other.plan
        and one.model is other.model
        and one.received.keys() == other.received.keys()
        and all(value is other.received[name] for name, value in one.received.items())
    )
