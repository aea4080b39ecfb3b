"""The whole description of a run: validated, immutable, YAML in and out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mnemos.client.messages import Plan
from mnemos.clocks.clock import Clock, Rounds, clocks
from mnemos.common.imports import showing
from mnemos.common.registry import Options, Part
from mnemos.data.dataset import Source, sources
from mnemos.data.partition import Partition, partitions
from mnemos.data.stream import Stream, streams
from mnemos.data.streams.static import Static
from mnemos.engines.engine import Engine, engines
from mnemos.errors import ConfigError
from mnemos.experiment.fitting import fitted
from mnemos.experiment.marked import marked_yaml
from mnemos.experiment.overrides import dump_yaml, merge, read_yaml
from mnemos.faults.fault import Fault
from mnemos.faults.fault import faults as known_faults
from mnemos.measures.forgetting import Forgetting, check_rounds
from mnemos.measures.measure import Measure
from mnemos.measures.measure import measures as known_measures
from mnemos.methods.method import Method, methods
from mnemos.models.model import Model, models
from mnemos.optim.local import Local
from mnemos.privacy.privacy import NoPrivacy, Privacy, privacies
from mnemos.screens.guard import Guard
from mnemos.screens.screen import Screen
from mnemos.screens.screen import screens as known_screens
from mnemos.selection import Selection, UniformSelection, selections
from mnemos.starts.start import RandomStart, Start, starts

Choice = str | Mapping[str, Any]
"""A part by its name, or as a mapping with its options."""


class Evaluate(Options):
    """When the global model is evaluated."""

    every: int = Field(10, ge=1, description="rounds between evaluations on the union of validation sets")
    test_last: int = Field(1, ge=0, description="test in each of this many last rounds; reported is the mean")
    test_every: int = Field(0, ge=0, description="test in every n-th round too; 0: in the last rounds alone")
    patience: int = Field(
        200, ge=0, description="rounds at chance after which a run ends as not converged; 0: never"
    )
    forgetting: int | tuple[int, ...] = Field(
        (),
        description="rounds whose forgetting is measured: a list, or n for 1, n, 2n, … and the last",
    )

    @field_validator("forgetting", mode="before")
    @classmethod
    def _rounds(cls, value: Any) -> Any:
        return check_rounds(value)

    def validates(self, round: int, last: int) -> bool:
        """Whether the model is evaluated on validation data after a round."""
        return round % self.every == 0 or round == last

    def tests(self, round: int, last: int) -> bool:
        """Whether the model is evaluated on the test set after a round."""
        return round > last - self.test_last or (self.test_every > 0 and round % self.test_every == 0)


class CheckpointPolicy(Options):
    """Which checkpoints a run keeps; the newest ones, for a resume, it always has."""

    keep: int = Field(0, ge=0, description="keep those of every n-th round, to play rounds again; 0: none")


class Experiment(Options):
    """A whole experiment. Every field has a default, so a data source alone is an experiment."""

    data: Annotated[Source, sources] = Field("digits", validate_default=True)
    """The data set."""
    partition: Annotated[Partition, partitions] = Field("dirichlet", validate_default=True)
    """How the training samples are assigned to clients."""
    stream: Annotated[Stream, streams] = Static()
    """Which of its samples a client has in a round."""
    model: Annotated[Model, models] = Field("mlp", validate_default=True)
    """The network that is trained."""
    start: Annotated[Start, starts] = RandomStart()
    """Where the model's first weights come from."""
    method: Annotated[Method, methods] = Field("fedavg", validate_default=True)
    """How clients train, and how the server makes one model of theirs."""
    local: Local = Local()
    """The training at a client: how long, with which optimiser and rate."""
    participation: float = Field(
        0.1, gt=0, le=1, description="share of the clients in each round; one client at least"
    )
    selection: Annotated[Selection, selections] = UniformSelection()
    """How the clients of a round are drawn."""
    clock: Annotated[Clock, clocks] = Rounds()
    """Synchronous rounds, or clients that train at their own pace."""
    faults: tuple[Annotated[Fault, known_faults], ...] = ()
    """Clients that fail, cheat or attack, to see what it does."""
    guard: Guard = Guard()
    """Checks that every update has to pass."""
    screens: tuple[Annotated[Screen, known_screens], ...] = ()
    """Further checks that compare the updates of a round with each other."""
    privacy: Annotated[Privacy, privacies] = NoPrivacy()
    """Differential privacy of the clients."""
    min_clients: int = Field(1, ge=1, description="updates that a round takes; with fewer it is repeated")
    retries: int = Field(2, ge=0, le=1000, description="how often, with other clients, before the run pauses")
    rounds: int = Field(50, ge=1)
    """Number of rounds."""
    evaluate: Evaluate = Evaluate()
    """When the model is evaluated, and its forgetting measured."""
    measures: tuple[Annotated[Measure, known_measures], ...] = ()
    """What is measured besides accuracy and loss."""
    checkpoints: CheckpointPolicy = CheckpointPolicy()
    """Which checkpoints are kept."""
    engine: Annotated[Engine, engines] = Field("auto", validate_default=True)
    """How the clients of a round are trained: one by one, on threads, all at once, on a cluster."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of everything random."""

    guesses: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("device", "devices", "gpu"), "engine.device"),
        **dict.fromkeys(("lr", "learning_rate"), "local.lr"),
        **{name: f"local.{name}" for name in ("batch", "epochs", "optimizer", "schedule", "steps")},
        **{name: f"partition.{name}" for name in ("alpha", "clients", "validation")},
        **{name: f"method.{name}" for name in ("correction", "loss", "rule", "server", "terms", "weighting")},
        **dict.fromkeys(("temp", "temperature"), "method.head.temperature"),
        "batch_size": "local.batch",
        "server_lr": "method.server.lr",
        "weight_decay": "local.weight_decay",
        "forgetting": "evaluate.forgetting",
    }

    _not_imported: tuple[str, ...] = PrivateAttr(())
    _fitted: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _fit(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Take defaults that fit the method, where it can't work with the usual ones."""
        if not isinstance(values, dict):
            return validate(values)
        values, said = fitted(values, cls)
        experiment = validate(values)
        experiment._fitted = said
        return experiment

    if TYPE_CHECKING:  # what a field is given is more than what it holds: a part's name will do

        def __init__(  # noqa: PLR0913
            self,
            *,
            data: Source | Choice = ...,
            partition: Partition | Choice = ...,
            stream: Stream | Choice = ...,
            model: Model | Choice = ...,
            start: Start | Choice = ...,
            method: Method | Choice = ...,
            local: Local | Mapping[str, Any] = ...,
            participation: float = ...,
            selection: Selection | Choice = ...,
            clock: Clock | Choice = ...,
            faults: Sequence[Fault | Choice] = ...,
            guard: Guard | Mapping[str, Any] = ...,
            screens: Sequence[Screen | Choice] = ...,
            privacy: Privacy | Choice = ...,
            min_clients: int = ...,
            retries: int = ...,
            rounds: int = ...,
            evaluate: Evaluate | Mapping[str, Any] = ...,
            measures: Sequence[Measure | Choice] = ...,
            checkpoints: CheckpointPolicy | Mapping[str, Any] = ...,
            engine: Engine | Choice = ...,
            seed: int = ...,
        ) -> None: ...

    @field_validator("measures", "faults", "screens")
    @classmethod
    def _each_once(cls, value: tuple[Part, ...], info: ValidationInfo) -> tuple[Part, ...]:
        once = [part for part in value if not (isinstance(part, Fault) and part.several)]
        names = [type(part).name for part in once]
        if len(set(names)) < len(names):
            kind = (info.field_name or "").removesuffix("s")
            raise ValueError(f"found {', '.join(names)}; each {kind} can be named once")
        return value

    @model_validator(mode="after")
    def _forgetting_once(self) -> Experiment:
        if self.evaluate.forgetting and any(isinstance(measure, Forgetting) for measure in self.measures):
            raise ValueError("found forgetting in measures and in evaluate.forgetting; allowed: one of them")
        return self

    @property
    def not_imported(self) -> tuple[str, ...]:
        """The import paths that `read_experiment` didn't import: the experiment can be shown, not run."""
        return self._not_imported

    def __eq__(self, other: object) -> bool:
        """Whether both have the same settings, set by users or fitted."""
        return isinstance(other, Experiment) and self.__dict__ == other.__dict__

    @property
    def fitted(self) -> tuple[str, ...]:
        """A sentence about each setting that was taken because the method can't work with the default."""
        return self._fitted

    @property
    def plan(self) -> Plan:
        """The part of the experiment that is sent to clients."""
        local = self.method.training(self.local)
        local = local.model_copy(update={"schedule": local.schedule.within(self.rounds)})
        return Plan(
            data=self.data,
            model=self.model,
            method=self.method,
            local=local,
            privacy=self.privacy,
            seed=self.seed,
        )

    @property
    def watching(self) -> tuple[Measure, ...]:
        """All measures: those that are named, and forgetting if `evaluate.forgetting` asks for it."""
        rounds = self.evaluate.forgetting
        return (Forgetting(rounds=rounds), *self.measures) if rounds else self.measures

    @property
    def forgetting_rounds(self) -> int | tuple[int, ...]:
        """The rounds whose forgetting is measured, by `evaluate.forgetting` or the measure of that name."""
        rounds = (measure.rounds for measure in self.watching if isinstance(measure, Forgetting))
        return next(rounds, ())

    @property
    def over_selection(self) -> float:
        """Share of clients asked beyond those that a round takes: in simulated time, or for real."""
        return self.engine.asks_beyond if self.engine.remote else self.clock.asks_beyond

    def vanishes(self, client: int, round: int, attempt: int = 0) -> bool:
        """Whether a client doesn't answer in an attempt at a round, by one of the faults."""
        faults = self.faults  # none, as a rule; and this is asked of every client in every round
        return bool(faults) and any(fault.vanishes(client, round, self.seed, attempt) for fault in faults)

    def hash(self) -> str:
        """Twelve hexadecimal digits that are equal for equal experiments."""
        values = self.model_dump(mode="json")
        if self.checkpoints == CheckpointPolicy():
            del values["checkpoints"]  # runs of versions without this field are found again
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def same_as(self, other: Experiment) -> bool:
        """Whether both have the same settings, even if only one of them has its parts imported."""
        return self.model_dump(mode="json") == other.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The experiment as YAML, with all its defaults."""
        return dump_yaml(self.model_dump(mode="json"))

    def show(self) -> str:
        """The experiment as YAML, with a comment on each setting that differs from the default or preset."""
        return "\n".join(map(str, [*marked_yaml(self), ""]))

    def override(self, changes: Mapping[str, Any]) -> Experiment:
        """The experiment with some fields changed, by dotted names."""
        given = self.model_dump(mode="json", include=self.model_fields_set)  # the rest stays open (`fitted`)
        return Experiment.parse(merge(given, changes, Experiment))


FORMS = ("variants", "grid", "list", "random")
"""The fields that give a study's variants: a file with one of them describes many experiments."""


def load_experiment(
    source: Experiment | Mapping[str, Any] | str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """An experiment from a YAML file, a mapping or another experiment, with dotted changes applied."""
    if isinstance(source, Experiment):
        return source.override(changes or {})
    base = read_yaml(Path(source)) if isinstance(source, str | Path) else dict(source or {})
    form = next((form for form in FORMS if form in base), None)
    if form is not None:
        where = source if isinstance(source, str | Path) else "experiment"
        raise ConfigError(
            f"{where}: it is a study, with '{form}'; 'mnemos sweep' or 'mnemos compare' runs it"
        )
    return Experiment.parse(merge(base, changes or {}, Experiment))


def read_experiment(values: Mapping[str, Any]) -> Experiment:
    """An experiment to display, possibly from an untrusted source: no code is imported for it.

    A part that isn't Mnemos's own is shown by its name and options.
    """
    with showing() as named:
        experiment = load_experiment(values)
    experiment._not_imported = tuple(sorted(named.left))
    return experiment
