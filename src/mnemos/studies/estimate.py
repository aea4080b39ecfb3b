"""How long an experiment takes on this machine, from rounds that were timed.

The times of a finished run whose rounds cost the same are the best estimate. Without one, a few short rounds
of the experiment are run in a temporary folder. The seconds that a client, a step and an evaluated sample
take are derived from them and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mnemos.common import cores as available
from mnemos.data.download import OFFLINE
from mnemos.data.folder import recall, remember
from mnemos.data.load import load
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.assembly import model_of
from mnemos.federation.federation import Federation, Outcome
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.forgetting import is_due
from mnemos.methods.presets.centralised import Centralised
from mnemos.optim.local import round_steps
from mnemos.runs.execute import Silent, start
from mnemos.runs.run import Run
from mnemos.runs.store import read_seconds
from mnemos.vector import Layout
from mnemos.version import __version__

_MEMORY = "costs.json"
_ENOUGH = 1.0
"""A measurement ends after this many seconds of rounds."""
_ROUNDS = 8
"""A measurement ends after this many rounds."""


@dataclass(frozen=True)
class Cost:
    """Seconds that the pieces of a run take."""

    client: float
    """A client's round without its steps, including the client's share of the server's work."""
    step: float
    """One local step of a client."""
    sample: float
    """The evaluation of one sample."""


@dataclass(frozen=True)
class Amount:
    """How many of these pieces an experiment has."""

    population: int
    """The number of all clients."""
    clients: int
    """The number of clients in a round."""
    steps: float
    """A client's local steps in a round, on average."""
    samples: float
    """The number of samples that are evaluated in the whole run."""

    @classmethod
    def of(cls, federation: Federation) -> Amount:
        """Count the pieces of a federation's experiment."""
        experiment, assignment = federation.experiment, federation.assignment
        evaluate, last, cohort = experiment.evaluate, experiment.rounds, federation.population.cohort_size
        held_out = len(assignment.union_held_out())
        validations = sum(evaluate.validates(round, last) for round in range(1, last + 1))
        tests = sum(evaluate.tests(round, last) for round in range(1, last + 1))
        matrices = sum(is_due(experiment.forgetting_rounds, round, last) for round in range(1, last + 1))
        # For a forgetting matrix, the global model and each client's model are evaluated on the validation
        # data of every client of the cohort.
        pairs = (cohort + 1) * cohort * held_out / assignment.clients
        samples = validations * held_out + tests * len(federation.dataset.test) + matrices * pairs
        traffic = federation.population.schedule
        trained = cohort if traffic is None else traffic.clock.buffer
        return cls(assignment.clients, trained, _steps(federation), samples)

    def seconds(self, cost: Cost, rounds: int) -> float:
        """Seconds that a run of `rounds` rounds takes."""
        return rounds * self.clients * (cost.client + self.steps * cost.step) + self.samples * cost.sample


def estimate(experiment: Experiment, folder: Path | None = None, *, cores: int | None = None) -> float | None:
    """Seconds that the experiment takes here; None if its data isn't on this machine or it can't be run.

    `folder` has runs that may have been timed, `cores` are those that the run will have; None for all.
    """
    return Estimates(folder, cores=cores).seconds(experiment)


class Estimates:
    """Estimates for experiments whose runs have `cores` cores each and are kept in `folder`."""

    def __init__(self, folder: Path | None = None, *, cores: int | None = None) -> None:
        self._cores = cores or available.cores()
        self._rounds = _seconds_a_round(folder, self._cores) if folder is not None else {}
        self._known: dict[str, float | None] = {}

    def seconds(self, experiment: Experiment) -> float | None:
        """Seconds that the whole experiment takes; None if they can't be known."""
        key = _same_round(experiment)
        if key in self._rounds:
            return experiment.rounds * self._rounds[key]
        key = f"{key} {experiment.rounds} {experiment.evaluate}"
        if key not in self._known:
            self._known[key] = self._measured(experiment)
        return self._known[key]

    def _measured(self, experiment: Experiment) -> float | None:
        # An estimate must not download a data set.
        with environment({OFFLINE: "1", available.VARIABLE: str(self._cores)}), suppress(MnemosError):
            with closing(Federation(experiment)) as federation:
                amount = Amount.of(federation)
                key = _same_pieces(federation, amount)
            known = recall(_MEMORY, key)
            try:
                cost = Cost(**known)
            except TypeError:  # the cache has no entry, or a damaged one
                cost = _measure(experiment, amount)
                remember(_MEMORY, key, asdict(cost))
            return amount.seconds(cost, experiment.rounds)
        return None


class _Enough(Exception):  # noqa: N818
    """Enough rounds have been timed."""


class _Clock(Silent):
    """Times a run's rounds, without the first, and ends the run when there are enough of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[float] = []
        self._last = 0.0

    def round(self, outcome: Outcome) -> None:
        """Note how long the round took."""
        now = time.perf_counter()
        if outcome.round > 1:
            self.rounds.append(now - self._last)
        self._last = time.perf_counter()
        if sum(self.rounds) > _ENOUGH or len(self.rounds) == _ROUNDS:
            raise _Enough


def _measure(experiment: Experiment, amount: Amount) -> Cost:
    """Measure the seconds of each piece, from rounds of one step and of as many steps as time allows."""
    few = min(amount.clients, 2 * available.cores())
    short = _client(experiment, amount, few, 1)
    steps = min(max(2, int(_ENOUGH / (few * short))), max(1, round(amount.steps)))
    # Use all clients if that takes a moment only, because vmap takes less time a client then.
    many = amount.clients if amount.clients * steps * short < 2 * _ENOUGH else few
    long = _client(experiment, amount, many, steps)
    step = (long - short) / (steps - 1) if steps > 1 else 0.0
    if step <= 0:
        step = long / steps
    return Cost(long - steps * step, step, _sample(experiment))


def _client(experiment: Experiment, amount: Amount, clients: int, steps: int) -> float:
    """Measure the seconds that a client takes in rounds of `clients` clients with `steps` steps each."""
    clock = _Clock()
    small = experiment.override(
        {
            "rounds": 2 * _ROUNDS,  # the last round, which has more to do, is never reached
            "participation": clients / amount.population,
            "local.steps": steps,
            "local.lr": 1e-6,  # the experiment's own could make the model diverge
            "local.schedule": "constant",  # others would come down to 0 within these few rounds
            "evaluate": {"every": 2 * _ROUNDS, "test_last": 0, "patience": 0},
            "measures": [],
            "start": "random",  # pre-training is no part of a round
            "privacy": "none",  # a budget may not allow as many rounds
            "clock": "rounds",  # a client costs the same, and every round has the same number of clients
            "stream": "static",  # the number of steps is given, and tasks may need more rounds
            # The centralised learner's steps are its own, not those of the clients that it stands for.
            **({"method.budget": "client"} if isinstance(experiment.method, Centralised) else {}),
        }
    )
    with tempfile.TemporaryDirectory() as folder, suppress(_Enough):
        start(small, Path(folder), clock)
    return statistics.median(clock.rounds) / clients


def _sample(experiment: Experiment) -> float:
    """Measure the seconds that it takes to evaluate a sample."""
    plan = experiment.plan
    dataset = load(plan.data)
    module = model_of(experiment, dataset)
    vectors = Layout.of(module).gather(module.state_dict())
    indices = torch.arange(512 * available.cores()) % len(dataset.train)
    with closing(Evaluator(module, dataset, plan.method.buffers.in_batches)) as evaluator:
        evaluator(*vectors, dataset.train, indices[:32])
        times: list[float] = []
        while len(times) < 3 and sum(times) < _ENOUGH:
            begin = time.perf_counter()
            evaluator(*vectors, dataset.train, indices)
            times.append(time.perf_counter() - begin)
    return min(times) / len(indices)


def _steps(federation: Federation) -> float:
    local, sizes = federation.plan.local, federation.flow.loads()
    sizes = sizes[sizes > 0]
    return round_steps(local.steps, local.epochs, float(local.batches(sizes).mean()))


def _same_round(experiment: Experiment) -> str:
    """A key that is equal for experiments whose rounds take the same time."""
    dump = experiment.model_dump(mode="json")
    for field in ("seed", "rounds", "start", "local.lr", "local.weight_decay", "method.loss"):
        *path, leaf = field.split(".")
        node = dump
        for step in path:
            node = node[step]
        del node[leaf]
    dump["evaluate"] = {name: dump["evaluate"][name] for name in ("every", "forgetting")}
    return json.dumps(dump, sort_keys=True)


def _same_pieces(federation: Federation, amount: Amount) -> str:
    """A key that is equal for experiments whose pieces take the same time.

    Numbers of clients, steps and samples are rounded to powers of two.
    """
    experiment = federation.experiment
    method, local = experiment.method.dump(), experiment.plan.local.model_dump(mode="json")
    del method["loss"]
    parts = [experiment.data.dump(), experiment.model.dump(), experiment.engine.dump(), method]
    parts += [local["batch"], local["optimizer"], local["augment"]]
    samples = federation.flow.loads().mean()
    sizes = [int(size).bit_length() for size in (amount.clients, amount.steps, samples)]
    machine = [platform.node(), platform.processor(), available.cores(), torch.__version__, __version__]
    return hashlib.sha256(json.dumps([parts, sizes, machine], sort_keys=True).encode()).hexdigest()[:16]


def _seconds_a_round(folder: Path, cores: int) -> dict[str, float]:
    """Seconds a round in the runs of a folder that had `cores` cores, by the key of `_same_round`."""
    found: dict[str, list[float]] = {}
    for path in folder.glob("*/timing.jsonl"):
        run = Run(path.parent)
        with suppress(MnemosError, OSError, ValueError, KeyError, TypeError):  # damaged runs are skipped
            if run.read_json("environment.json")["cores"] != cores:
                continue
            # The first round is left out, because it may try which engine is the fastest.
            _, *seconds = read_seconds(path).values()
            if len(seconds) >= _ROUNDS:
                found.setdefault(_same_round(run.experiment), []).append(statistics.fmean(seconds))
    return {key: statistics.median(values) for key, values in found.items()}


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
