"""The engine that trains clients on the machines of a Ray cluster, or in processes of this machine."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, field_validator

from mnemos.client.messages import Plan, TrainRequest
from mnemos.common.cores import cores
from mnemos.common.devices import AUTO
from mnemos.data.dataset import Dataset
from mnemos.engines.engine import Engine, Lost, Runner, Work, blame, engines
from mnemos.engines.ray.connection import Connection
from mnemos.engines.ray.crew import PATIENCE, Crew, Member, Needs
from mnemos.engines.ray.worker import as_text, own_of, shared_of, update_of
from mnemos.errors import PausedError
from mnemos.methods.exchange import TrainReply

_EACH = 2
"""The number of requests that a worker has at a time: it trains one, and the next is there already."""


@engines.register("ray")
class Ray(Engine):
    """Long-lived workers in a Ray cluster, each a process with one replica and one tensor thread."""

    any_plan: ClassVar[bool] = True
    devices_elsewhere: ClassVar[bool] = True

    workers: int = Field(0, ge=0, le=100_000, description="0: one a CPU of the cluster")
    cpus: float = Field(1.0, gt=0, description="CPUs that a worker takes of the cluster's")
    gpus: float = Field(0.0, ge=0, description="GPUs that a worker takes: a share of one, or a whole number")
    device: str = Field(
        AUTO, description="where a worker trains: auto (the GPU that it is given, or else the CPU), cpu, cuda"
    )
    address: str | None = Field(
        None,
        min_length=1,
        description="of a cluster: auto, HOST:PORT, ray://HOST:PORT; if left out, $RAY_ADDRESS or a new one",
    )
    retries: int = Field(2, ge=0, description="further tries of a client whose worker died")
    timeout: float | None = Field(None, gt=0, description="seconds after which a client is given up")

    @field_validator("device", mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            raise ValueError(
                f"found {', '.join(map(str, value))}; a worker has one device, and Ray gives each its own: "
                "allowed: one name, such as cuda, with engine.gpus and engine.workers for how many"
            )
        return value

    @field_validator("gpus")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value > 1 and not value.is_integer():
            raise ValueError(f"found {value:g}; allowed: 0 to 1, or a whole number")
        return value

    def planned(self, plan: Plan) -> Plan:
        """The plan with the reference arithmetic; on which devices it runs, workers say when they start."""
        arithmetic = self.arithmetic().model_copy(update={"precision": plan.local.precision})
        return plan.model_copy(update={"arithmetic": arithmetic})

    def open(self, plan: Plan, dataset: Dataset, work: Work) -> Runner:
        """Connect to the cluster and start workers, but not more than there are clients."""
        plan = self.planned(plan)
        with ExitStack() as opened:  # closes what is open if the rest can't be opened
            cpus = max(cores(), math.ceil(self.workers * self.cpus))
            connection = opened.enter_context(closing(Connection(self.address, cpus)))
            workers = min(self.workers, work.cohort) or work.cohort
            needs = Needs(self.cpus, self.gpus, self.device, self.exact)
            crew = Crew(connection.ray, plan, dataset, workers, needs)
            opened.enter_context(closing(crew)).start()
            return RayRunner(self, crew.plan, connection.ray, crew, opened.pop_all())


@dataclass(eq=False)
class Job:
    """A request, and its result once there is one."""

    request: TrainRequest
    shared: Any
    """A reference to the part of the request that it has in common with others."""
    own: Any
    """The rest of the request."""
    answer: Any = None
    """A reference to the answer, once a worker has the job."""
    alone: bool = False
    """Whether the job must have a worker to itself, because a worker that had it has died."""
    deaths: int = 0
    """The number of workers that have died while they had this job alone."""
    outcome: TrainReply | Lost | None = None

    def end(self, outcome: TrainReply | Lost) -> None:
        """Set the outcome and drop the references, which hold memory in the cluster."""
        self.outcome, self.shared, self.own, self.answer = outcome, None, None, None


class RayRunner(Runner):
    """Gives requests to workers as they become free, and yields updates in the cohort's order."""

    def __init__(self, engine: Ray, plan: Plan, ray: Any, crew: Crew, opened: ExitStack) -> None:
        super().__init__(engine, plan)
        self._ray, self._opened = ray, opened
        self.crew = crew
        """The workers."""
        self.retries, self.timeout = engine.retries, engine.timeout
        self.queue: deque[Job] = deque()
        """Jobs that no worker has yet."""
        self.sent: tuple[TrainRequest, Any] | None = None
        """The last request whose shared part was sent, and a reference to that part; None between rounds."""
        self.broadcasts = 0
        """How many shared parts were sent."""
        self._plan: tuple[Plan, str] = plan, as_text(plan)

    def run(self, cohort: Iterable[TrainRequest]) -> Iterator[TrainReply | Lost]:
        """Train the clients of a cohort, with at most two requests for each worker at a time."""
        jobs: deque[Job] = deque()
        try:
            for request in cohort:
                jobs.append(self._job(request))
                if len(jobs) >= _EACH * len(self.crew.members):
                    yield self._next(jobs)
            while jobs:
                yield self._next(jobs)
        finally:
            self._forget()

    def close(self) -> None:
        """End the workers, and the cluster if it was started for them."""
        self._opened.close()

    def _job(self, request: TrainRequest) -> Job:
        """Queue a request, and give it to a worker if one is free."""
        first, shared = self._broadcast(request)
        job = Job(request, shared, own_of(request, first))
        self.queue.append(job)
        self._give_out()
        return job

    def _broadcast(self, request: TrainRequest) -> tuple[TrainRequest, Any]:
        """The first request with the same model, and a reference to what it shares with this one.

        The shared part is put into the object store once. Requests with the same model are consecutive, so it
        is enough to compare with the last one.
        """
        if request.plan is not self._plan[0]:
            self._plan = request.plan, as_text(request.plan)
        if self.sent is None or not _alike(request, self.sent[0]):
            self.broadcasts += 1
            self.sent = request, self._ray.put(shared_of(request, self._plan[1], self.broadcasts))
        return self.sent

    def _next(self, jobs: deque[Job]) -> TrainReply | Lost:
        """Wait for the outcome of the first job, and remove it from the queue."""
        job = jobs.popleft()
        while job.outcome is None:
            self._wait()
        return job.outcome

    def _wait(self) -> None:
        """Wait until a worker is ready or has answered or is overdue, and act on that."""
        members = self.crew.members
        starting = {member.step: member for member in members if not member.ready}
        working = {job.answer: (member, job) for member in members for job in member.jobs}
        done, _ = self._ray.wait([*starting, *working], num_returns=1, timeout=self._patience(members))
        if not done:
            self._overdue(members)
        elif done[0] in starting:
            self.crew.advance(starting[done[0]])
        else:
            self._answered(*working[done[0]])
        self._give_out()

    def _patience(self, members: list[Member]) -> float | None:
        """Seconds to wait for an event; None for no limit."""
        begun = [member.since for member in members if member.jobs]
        if not begun:
            return PATIENCE
        return None if self.timeout is None else max(0.0, min(begun) + self.timeout - time.monotonic())

    def _overdue(self, members: list[Member]) -> None:
        """Give up the clients whose time is over; pause the run if there is no worker left."""
        busy = [member for member in members if member.jobs]
        if not busy:
            raise PausedError(f"the cluster has had no worker for {PATIENCE:.0f} s: all have died")
        assert self.timeout is not None
        for member in busy:
            if time.monotonic() - member.since >= self.timeout:
                job = member.jobs.popleft()
                job.end(Lost(job.request.client, "timeout"))
                self._replace(member)

    def _answered(self, member: Member, job: Job) -> None:
        """Read a worker's answer; if the worker has died instead, have its jobs done again."""
        try:
            update = update_of(self._ray.get(job.answer))
        except self._ray.exceptions.RayTaskError as error:  # raised again with the client's number
            error.cause.add_note(f"At the worker:\n{error}")
            blame(job.request, error.cause)
        except self._ray.exceptions.RayError:
            self.died(member)
        else:
            member.jobs.remove(job)
            member.since = time.monotonic()
            job.end(update)

    def died(self, member: Member) -> None:
        """Have the jobs of a dead worker done again.

        If it had several, any of them may have killed it: its last answer can be lost with it, so the first
        job without an answer needn't be the one it worked on. Each then gets a worker to itself, which shows
        which one it is. A job that kills more than `retries` workers is given up.
        """
        for job in member.jobs:
            job.alone = True
        if len(member.jobs) == 1:
            only: Job = member.jobs[0]
            only.deaths += 1
            if only.deaths > self.retries:
                member.jobs.popleft().end(Lost(only.request.client, "worker died"))
        self._replace(member)

    def _replace(self, member: Member) -> None:
        """Replace a worker, and put the jobs that it hasn't answered at the front of the queue."""
        self.queue.extendleft(reversed(member.jobs))
        self.crew.replace(member)

    def _give_out(self) -> None:
        """Give queued jobs to workers that can take them, the least busy first."""
        while self.queue:
            job = self.queue[0]
            free = [member for member in self.crew.members if takes(member, job)]
            if not free:
                break
            member = min(free, key=lambda member: len(member.jobs))
            if not member.jobs:
                member.since = time.monotonic()
            job.answer = member.actor.train.remote(job.shared, job.own)
            member.jobs.append(self.queue.popleft())

    def _forget(self) -> None:
        """Cancel the jobs that are left when a round is over or was broken off."""
        self.sent = None
        self.queue.clear()
        for member in self.crew.members:
            for job in member.jobs:
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(job.answer)
            member.jobs.clear()


def takes(member: Member, job: Job) -> bool:
    """Whether a worker can take a job now."""
    if not member.jobs:
        return member.ready
    return len(member.jobs) < _EACH and not (job.alone or member.jobs[0].alone)


def _alike(first: TrainRequest, second: TrainRequest) -> bool:
    """Whether the plan, the model and what is received with it are the same objects in two requests."""
    return (
        first.plan is second.plan
        and first.model is second.model
        and first.received.keys() == second.received.keys()
        and all(value is second.received[name] for name, value in first.received.items())
    )
