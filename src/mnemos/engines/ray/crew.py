"""The workers of a run in a Ray cluster: how they are started, and replaced when they die."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from mnemos.client.messages import Plan
from mnemos.common.extras import require
from mnemos.data.dataset import Dataset
from mnemos.engines.devices import arithmetic_on
from mnemos.engines.ray.worker import Data, Greeting, Places, Worker, as_text, find, versions
from mnemos.errors import ConfigError, MnemosError

PATIENCE = 180.0
"""Seconds that workers have to start; then the run begins without those that haven't."""
_TRIES = 5
"""If this many workers in a row die before they are ready, the run fails."""


@dataclass(eq=False)
class Member:
    """A worker, as the driver sees it."""

    actor: Any
    """Ray's handle of the worker."""
    step: Any
    """A reference to the result of `greet` or `prepare`, while it gets ready; None if it is ready."""
    node: str = ""
    """The id of its machine; empty until it has greeted."""
    pid: int = 0
    jobs: deque[Any] = field(default_factory=deque)
    """The jobs that it was given and hasn't answered, in order; it works on the first."""
    since: float = 0.0
    """When it began with the first job."""

    @property
    def ready(self) -> bool:
        """Whether the worker can take jobs."""
        return self.step is None


class Needs(NamedTuple):
    """What each worker of a run takes."""

    cpus: float
    gpus: float
    device: str
    """The name of the device that it trains on; auto: the GPU that it is given, or else the CPU."""
    exact: bool
    """Whether it uses deterministic algorithms alone."""

    def fitting(self, resources: Mapping[str, float]) -> int:
        """How many workers a machine with these resources has room for."""
        room = int(resources.get("CPU", 0) // self.cpus)
        if not self.gpus:
            return room
        gpus = resources.get("GPU", 0)
        # A share is one GPU's: two thirds of a GPU are had once of each.
        return min(room, int(gpus) * int(1 / self.gpus) if self.gpus <= 1 else int(gpus // self.gpus))


class Crew:
    """Long-lived workers (actors) on a cluster's machines; those of a machine share a copy of the data."""

    def __init__(self, ray: Any, plan: Plan, dataset: Dataset, workers: int, needs: Needs) -> None:
        """Begin to start `workers` workers, or as many as the cluster has room for."""
        self._ray, self._needs = ray, needs
        self._kind = ""
        self.plan = plan
        """The plan with the arithmetic of the workers' devices, once one of them is ready."""
        self._source = json.dumps(plan.data.dump())
        self.path = [entry or str(Path.cwd()) for entry in sys.path]
        """This process's module path, which workers get."""
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        room = sum(map(needs.fitting, machines))
        if not room:
            raise _no_room(needs, machines)
        self._actors = ray.remote(Worker).options(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        self._data = Data.of(dataset)
        self._sent = ray.put(self._data)
        self.places = {ray.get_runtime_context().get_node_id(): Places(self._sent)}
        """Where the workers of each machine find the data, by the machine's id."""
        self._died_early = 0
        self.members = [self._hire() for _ in range(min(workers, room))]

    def start(self) -> None:
        """Wait up to `PATIENCE` seconds until all workers are ready, so that errors are found early."""
        until = time.monotonic() + PATIENCE
        while starting := {member.step: member for member in self.members if not member.ready}:
            done, _ = self._ray.wait([*starting], num_returns=1, timeout=max(0.0, until - time.monotonic()))
            if not done:
                break
            self.advance(starting[done[0]])
        if not any(member.ready for member in self.members):
            raise ConfigError(
                f"no worker could be started in {PATIENCE:.0f} s; are all CPUs "
                f"{'or GPUs ' if self._needs.gpus else ''}of the cluster in use?",
                "engine",
            )

    def advance(self, member: Member) -> None:
        """Begin the next step of a worker whose current step is done; replace it if it has died."""
        try:
            greeting = self._ray.get(member.step)
        except self._ray.exceptions.RayTaskError as error:
            raise _refused(error.cause) from error
        except self._ray.exceptions.RayError as error:
            self._died_early += 1
            if self._died_early >= _TRIES:
                raise MnemosError(f"workers of the cluster die before they are ready ({error})") from None
            self.replace(member)
            return
        if greeting is None:  # the step was `prepare`, the last one
            self._died_early = 0
            member.step = None
            return
        for name, ours in versions().items():
            theirs = greeting.versions[name]
            if theirs != ours:
                raise ConfigError(
                    f"{name} is {theirs} on the cluster's machine {greeting.host}, and {ours} here; results "
                    "would differ",
                    "engine",
                )
        self._check_device(greeting)
        member.node, member.pid = greeting.node, greeting.pid
        member.step = member.actor.prepare.remote(self._place(member.node), as_text(self.plan))

    def _check_device(self, greeting: Greeting) -> None:
        """Put the first worker's kind of device into the plan; others must have the same."""
        if not self._kind:
            self._kind = greeting.device
            asked = self.plan.arithmetic.model_copy(update={"deterministic": self._needs.exact})
            self.plan = self.plan.model_copy(update={"arithmetic": arithmetic_on(self._kind, asked)})
        elif greeting.device != self._kind:
            raise ConfigError(
                f"found {greeting.device} on the cluster's machine {greeting.host}, and {self._kind} on "
                "others; results would differ; allowed: one kind of device, as with engine.device=cpu",
                "engine.device",
            )

    def replace(self, member: Member) -> None:
        """Start a new worker instead of one that has died or hangs."""
        self._kill(member)
        self.members[self.members.index(member)] = self._hire()

    def close(self) -> None:
        """End all workers, and release the data."""
        for member in self.members:
            self._kill(member)
        self.members.clear()
        self.places.clear()
        self._sent = None

    def _hire(self) -> Member:
        actor = self._actors.remote(self.path, self._needs.device)
        return Member(actor, actor.greet.remote())

    def _kill(self, member: Member) -> None:
        member.jobs.clear()
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(member.actor)

    @cached_property
    def _fingerprint(self) -> str:
        return self._data.fingerprint()

    def _place(self, node: str) -> Places:
        """Where a machine's workers find the data; the first time, a process there looks in its files."""
        if node not in self.places:
            strategies = require("ray.util.scheduling_strategies", "ray", "ray")
            affinity = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            # The process ends after this one task; the data that it has found stays in the object store.
            look = self._ray.remote(
                num_cpus=0, num_returns=2, max_retries=0, max_calls=1, scheduling_strategy=affinity
            )(find)
            found, own = look.remote(self._source, self._fingerprint, self.path)
            self.places[node] = Places(self._sent, (found, own))
        return self.places[node]


def _no_room(needs: Needs, machines: list[dict[str, float]]) -> ConfigError:
    """The error for a cluster none of whose machines has room for a worker."""
    if any(needs._replace(gpus=0).fitting(machine) for machine in machines):
        return ConfigError(f"found {needs.gpus:g}; no machine of the cluster has as many GPUs", "engine.gpus")
    return ConfigError(f"found {needs.cpus:g}; no machine of the cluster has as many CPUs", "engine.cpus")


def _refused(cause: Exception) -> MnemosError:
    """The error for a worker that can't prepare for the plan."""
    if isinstance(cause, ConfigError) and cause.path in ("engine.device", "local.precision"):
        return ConfigError(f"{cause.message} (at a worker)", cause.path)
    if isinstance(cause, MnemosError):
        reason = str(cause)
    else:
        reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
    return ConfigError(
        f"its workers can't make this experiment's parts ({reason}); parts of your own are named by import "
        "path, package.module:Class, of a module that can be imported on every machine of the cluster",
        "engine",
    )
