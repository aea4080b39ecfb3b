"""Playing rounds of a run again, bit for bit, with measures that weren't asked for at the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mnemos.client.trainer import fresh_model
from mnemos.data.partition import Ints
from mnemos.engines.engine import Runner
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.federation.records import REPEATED
from mnemos.measures.measure import Measure
from mnemos.methods.exchange import Server
from mnemos.runs.directory import PATTERN, round_of
from mnemos.runs.kept import KeptCheckpoints
from mnemos.runs.run import Run
from mnemos.runs.saved import Saved
from mnemos.runs.store import overall_values, read_seconds
from mnemos.runs.trust import Trust
from mnemos.runs.used import engine_for
from mnemos.vector import Layout, load_model

Vectors = tuple[Tensor, Tensor]
"""A model's parameters and buffers."""


class Mark(NamedTuple):
    """The state of a federation after a round."""

    round: int
    servers: tuple[Server, ...]
    at_chance_since: int | None
    clients: Ints
    """The clients that have a state, and below the states."""
    states: list[Tensor]


class Replay:
    """A run's federation, which can be put to any of the run's rounds and play the next ones again.

    What it computes is compared with what the run has recorded: the training loss of each round, and the
    model wherever there is one on disk. A `DataError` says in which round they differ.
    """

    def __init__(self, run: Run, federation: Federation, runner: Runner) -> None:
        self.run, self.federation, self.runner = run, federation, runner
        self._files = {round_of(path): path for path in run.file("checkpoints").rglob(PATTERN)}

    def to(self, round: int) -> None:
        """Put the federation to the state after a round: from the nearest kept checkpoint, or the start."""
        check_round(self.run, round, first=0)
        here, best = self.federation.round, nearest(self.run, round)
        if not best <= here <= round:
            self._restore(best)
        if self.federation.round == 0 == round:
            self._begin()
        while self.federation.round < round:
            self.advance()

    def advance(self) -> Outcome:
        """Play the next round again, and return its outcome."""
        federation = self.federation
        if not federation.round:
            self._begin()
        round = federation.round + 1
        self.prepare(round)
        outcome = federation.advance(self.runner)
        known = self._losses.get(round)
        if known is not None and known != outcome.loss:
            self._differs(round, f"a training loss of {outcome.loss!r}, and {known!r} was recorded")
        recorded = self._recorded(round)
        if recorded is not None:
            server = federation.server
            pairs = zip((server.model, server.buffers), recorded, strict=True)
            if not all(torch.equal(mine.cpu(), theirs) for mine, theirs in pairs):
                self._differs(round, "another model than the run's")
        return outcome

    def mark(self) -> Mark:
        """What `back` needs to return to this round."""
        federation = self.federation
        remembered = federation.client_states.export()
        return Mark(federation.round, federation.servers, federation.evaluation.at_chance_since, *remembered)

    def back(self, mark: Mark) -> None:
        """Return to a round, whatever was played since."""
        federation = self.federation
        federation.client_states.drop()
        federation.client_states.fill(mark.clients, mark.states)
        federation.round, federation.servers = mark.round, mark.servers
        federation.evaluation.at_chance_since = mark.at_chance_since

    def prepare(self, round: int) -> None:
        """Have a round attempted as often as the run did: one that paused there has tried more often."""
        retries = self.federation.retries
        retries.failed_attempts, retries.failed_round = self._repeated[round], round

    def _differs(self, round: int, how: str) -> None:
        raise DataError(
            f"{self.run.path}: round {round}, played again, gives {how}; environment.json and engine.json "
            "say with which versions and devices it was made"
        )

    def _restore(self, round: int) -> None:
        """Put the federation to a kept checkpoint; round 0 is the start."""
        federation = self.federation
        federation.rewind()
        if round:
            path = KeptCheckpoints(self.run.file("checkpoints")).nearest(round)[0]
            KeptCheckpoints.load(path, federation, self.run.file("metrics.jsonl").stat().st_size)

    def _begin(self) -> None:
        """Set the initial weights; a `DataError` if the encoder isn't the one that the run began with."""
        encoder = self.federation.load_start()
        if encoder is not None and self.run.file("start.json").exists():
            known = self.run.read_json("start.json").get("encoder")
            if known != encoder.digest:
                raise DataError(
                    f"{self.run.path}: it began with the encoder {known}, and found is {encoder.digest}"
                )

    @cached_property
    def _records(self) -> list[dict[str, object]]:
        return [dict(record) for record in self.run.records]

    @cached_property
    def _losses(self) -> dict[int, float]:
        """The mean training loss of each round, as recorded."""
        return overall_values(self._records, "train_loss")

    @cached_property
    def _repeated(self) -> Counter[object]:
        """How many attempts at each round failed."""
        return Counter(row["round"] for row in self._records if row["name"] == REPEATED)

    def _recorded(self, round: int) -> Vectors | None:
        """The model after a round, if a checkpoint or the trained model has it."""
        if round in self._files:
            saved = Saved.read(self._files[round])
            return saved.tensors["model"], saved.tensors["buffers"]
        path = self.run.file("model.safetensors")
        if round == self.run.status.rounds and path.is_file():
            module = fresh_model(self.federation.plan, self.federation.dataset)
            load_model(path, module)
            return Layout.of(module).gather(module.state_dict())
        return None


@contextmanager
def replaying(run: Run, measures: Sequence[Measure] = (), *, trust: Trust = False) -> Iterator[Replay]:
    """Open a run to play its rounds again, with its own engine; its directory is not written to.

    `measures` are added to the experiment's, in place of its own ones of the same name. `trust` is as in
    `Run.load`.
    """
    experiment = run.load(trust=trust)
    check_replayable(experiment)
    engine = run.load_engine(trust=trust) or experiment.engine
    names = {type(measure).name for measure in measures}
    kept = [measure for measure in experiment.measures if type(measure).name not in names]
    changes = {"measures": (*kept, *measures), "engine": engine_for(run, engine, experiment.engine, None)}
    with (
        closing(Federation(experiment.model_copy(update=changes))) as federation,
        federation.open() as runner,
    ):
        yield Replay(run, federation, runner)


@dataclass(frozen=True)
class PlayedRound:
    """A round of a run that was played again."""

    outcome: Outcome
    """Its records and scores."""
    model: Tensor
    """The parameters of the global model after the round, as one vector."""
    buffers: Tensor
    """Its buffers, as one vector."""


def play_round(
    run: Run, round: int, measures: Sequence[Measure] = (), *, trust: Trust = False
) -> PlayedRound:
    """Play a round of a run again, bit for bit, and return what it led to; as `replaying`."""
    check_round(run, round)
    with replaying(run, measures, trust=trust) as replay:
        replay.to(round - 1)
        outcome = replay.advance()
        server = replay.federation.server
        return PlayedRound(outcome, server.model, server.buffers)


def check_replayable(experiment: Experiment) -> None:
    """Refuse, with a `ConfigError`, runs whose rounds can't be played again, or must not be."""
    if experiment.data.stays_with_owners:
        raise ConfigError(
            "found data that stays with its owners: a round can't be played again without asking them; what "
            "was recorded (measures: [ledger]) can be read",
            "data",
        )
    if experiment.privacy.private:
        raise ConfigError(
            f"found {experiment.privacy.name}: a round that is played again would show single clients' "
            "models, or release one more model, and ε counts neither",
            "privacy",
        )


def check_round(run: Run, round: int, first: int = 1) -> None:
    """Refuse, with a `ConfigError`, a round that the run hasn't done."""
    last, parent = run.status.rounds, run.parent
    begun = 0 if parent is None else int(parent["round"])
    if not first + begun <= round <= last:
        more = f", and those before are its parent's, {parent['run']}" if parent else ""
        raise ConfigError(
            f"{run.path}: found round {round}; the run has rounds {first + begun} to {last}{more}"
        )


def nearest(run: Run, round: int) -> int:
    """The round of the last kept checkpoint up to a round; 0 if there is none, for the start."""
    files = KeptCheckpoints(run.file("checkpoints")).nearest(round)
    return round_of(files[0]) if files else 0


def seconds_to_play(run: Run, first: int, last: int) -> float:
    """How long it takes to play rounds `first` to `last` again, from what they took at the time.

    A round whose time isn't known counts like the mean of the others.
    """
    begin = nearest(run, first - 1) + 1
    known = read_seconds(run.file("timing.jsonl"))
    mean = sum(known.values()) / len(known) if known else 0.0
    return sum(known.get(round, mean) for round in range(begin, last + 1))
