"""Branches: a run that goes on from a round of another run, with something changed."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import COMPARTMENTS, Server, State
from mnemos.runs import execute
from mnemos.runs.execute import Observer, Silent, environment, with_rounds
from mnemos.runs.kept import KeptCheckpoints
from mnemos.runs.replay import Replay, check_round, replaying
from mnemos.runs.run import Run, create
from mnemos.runs.trust import Trust, remember_own

FIXED = ("data", "partition", "stream", "model", "start", "privacy", "seed")
"""Fields that a branch has from its parent: its model goes on learning from the same clients' data."""


@dataclass(frozen=True)
class Branching:
    """Where a branch begins, and what it changes."""

    round: int
    """The last round of the parent that the branch shares."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the experiment, by dotted names."""
    without: tuple[int, ...] = ()
    """Clients that don't answer any more."""
    reweight: Mapping[int, float] = field(default_factory=dict)
    """Factors on the weights of clients."""
    rounds: int | None = None
    """How many rounds it does; None: as many as the parent has left."""

    def experiment(self, parent: Experiment) -> Experiment:
        """The branch's experiment; a `ConfigError` says what can't be changed."""
        experiment = parent.override(self.changes)
        for name in FIXED:
            if getattr(experiment, name) != getattr(parent, name):
                raise ConfigError("a branch keeps its parent's; allowed: other fields", name)
        if self.without:
            away = {"name": "absent", "who": list(self.without)}
            faults = [fault.dump() for fault in experiment.faults]
            experiment = experiment.override({"faults": [*faults, away]})
        if self.reweight:
            factors = [{"client": client, "factor": factor} for client, factor in self.reweight.items()]
            scaled = {"name": "scaled", "of": experiment.method.weighting.dump(), "factors": factors}
            experiment = experiment.override({"method.weighting": scaled})
        if self.rounds is not None:
            experiment = with_rounds(experiment, self.round + self.rounds)
        if experiment.rounds <= self.round:
            raise ConfigError(
                f"found {experiment.rounds}, and the branch begins after round {self.round}", "rounds"
            )
        return experiment

    def facts(self, parent: Run) -> dict[str, Any]:
        """The content of parent.json."""
        return {
            "run": str(parent.path.resolve()),
            "round": self.round,
            "changes": dict(self.changes),
            "without": list(self.without),
            "reweight": {str(client): factor for client, factor in self.reweight.items()},
        }


def branch(
    parent: Run, at: Branching, folder: Path, observer: Observer | None = None, *, trust: Trust = False
) -> Run:
    """Make a run in `folder` that goes on from a round of another one, execute it, and return it.

    The parent's metrics up to that round are the branch's, too. A branch without changes ends like its
    parent, bit for bit. An interrupted one goes on with `resume`, like any run. `trust` is as in `Run.load`.
    """
    check_round(parent, at.round, first=0)
    experiment = at.experiment(parent.load(trust=trust))
    remember_own(experiment)
    with replaying(parent, trust=trust) as replay, closing(_federation(replay, at, experiment)) as federation:
        replay.to(at.round)
        dropped = _hand_over(replay.federation, federation)
        run = _made(parent, at, federation, folder)
    observer = observer or Silent()
    if dropped:
        observer.warned(dropped)
    return execute.resume(run.path, observer=observer, trust=trust)


def _federation(replay: Replay, at: Branching, experiment: Experiment) -> Federation:
    """The branch's federation before the first round, with the parent's engine unless that is changed."""
    if _same_engine(at):
        experiment = experiment.model_copy(update={"engine": replay.federation.experiment.engine})
    return Federation(experiment)


def _same_engine(at: Branching) -> bool:
    return not any(name.partition(".")[0] == "engine" for name in at.changes)


def _hand_over(old: Federation, new: Federation) -> str:
    """Give one federation the state of another; returns a sentence if what clients remember doesn't fit."""
    first, last = new.server, old.server
    if first.model.shape != last.model.shape or first.buffers.shape != last.buffers.shape:
        raise ConfigError("its model has another size than the parent's", "method")
    states = {name: _taken(getattr(first, name), getattr(last, name)) for name in COMPARTMENTS}
    if new.method != old.method:  # what the other method's parts keep would stay for ever
        states["state"] = {name: states["state"][name] for name in first.state}
    new.server = Server(last.model, last.buffers, *(states[name] for name in COMPARTMENTS))
    new.round, new.evaluation.at_chance_since = old.round, old.evaluation.at_chance_since
    clients, matrices = old.client_states.export()
    if new.client_states.alike(old.client_states):
        new.client_states.fill(clients, matrices)
        return ""
    return (
        f"method: what the {len(clients)} clients remember that have trained is of another kind than this "
        "method's; they begin anew"
        if len(clients)
        else ""
    )


def _taken(mine: State, theirs: State) -> State:
    """What a compartment of the branch holds: the parent's tensors, unless they have another shape."""
    fitting = {
        name: value for name, value in theirs.items() if name not in mine or mine[name].shape == value.shape
    }
    return {**mine, **fitting}


def _made(parent: Run, at: Branching, federation: Federation, folder: Path) -> Run:
    """Make the branch's directory, with everything that `resume` needs; it appears whole or not at all."""
    unfinished = folder / f".branch-{secrets.token_hex(4)}"
    experiment = federation.experiment
    if _same_engine(at):  # as the parent's file has it: `auto` stays `auto`
        experiment = experiment.model_copy(update={"engine": parent.load(trust=True).engine})
    try:
        run = create(experiment, unfinished)
        run.write_json("environment.json", environment())
        run.write_json("parent.json", at.facts(parent))
        for name in ("start.json", *(["engine.json"] if _same_engine(at) else [])):
            if parent.file(name).exists():
                shutil.copyfile(parent.file(name), run.file(name))
        for name in ("metrics.jsonl", "timing.jsonl"):
            run.file(name).write_bytes(_until(parent.file(name), at.round))
        size = run.file("metrics.jsonl").stat().st_size
        KeptCheckpoints(run.file("checkpoints")).save(federation, size)
        return _placed(run, folder, at.round)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _placed(run: Run, folder: Path, round: int) -> Run:
    """Move a finished directory to a name in `folder` that isn't taken."""
    for attempt in range(1, 10_000):
        path = folder / f"{run.path.name}-from{round}{f'-{attempt}' if attempt > 1 else ''}"
        if not path.exists():
            try:
                return Run(run.path.rename(path))
            except OSError:
                if not path.exists():  # else another process has been faster
                    raise
    raise ConfigError(f"{folder}: there are too many branches of this run already")


def _until(path: Path, round: int) -> bytes:
    """The lines of a file of records up to a round."""
    if not path.exists():
        return b""
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return b"".join(line for line in lines if json.loads(line)["round"] <= round)
