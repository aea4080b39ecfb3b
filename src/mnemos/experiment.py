"""The whole description of a run: validated, immutable, YAML in and out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from mnemos.clocks.clock import Clock, Rounds, Synchronous, clocks
from mnemos.data.dataset import Source, sources
from mnemos.data.partition import Partition, partitions
from mnemos.data.stream import Stream, streams
from mnemos.data.streams.static import Static
from mnemos.engines.engine import Engine, engines
from mnemos.engines.flower import Flower
from mnemos.errors import ConfigError
from mnemos.faults.fault import Fault
from mnemos.faults.fault import faults as known_faults
from mnemos.local import Local
from mnemos.measures.forgetting import Forgetting
from mnemos.measures.measure import Measure
from mnemos.measures.measure import measures as known_measures
from mnemos.message import Plan
from mnemos.methods.method import Method, methods
from mnemos.models.model import Model, models
from mnemos.overrides import dump_yaml, merge, read_yaml
from mnemos.privacy.privacy import NoPrivacy, Privacy, privacies
from mnemos.registry import Options, Part
from mnemos.screens.screen import Screen
from mnemos.screens.screen import screens as known_screens
from mnemos.selection import Selection, Uniform, selections
from mnemos.starts.start import Random, Start, starts


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
        # Said here, in one sentence, and not once for each of the two types.
        one = type(value) is int and value >= 0
        several = isinstance(value, list | tuple) and all(type(n) is int and n >= 1 for n in value)
        if not one and not several:
            raise ValueError(
                f"found {value}; allowed: a list of rounds from 1 on, n for 1, n, 2n, … and the last, or 0"
            )
        return value

    def validates(self, round: int, last: int) -> bool:
        """Whether the model is evaluated on validation data after a round."""
        return round % self.every == 0 or round == last

    def tests(self, round: int, last: int) -> bool:
        """Whether it is evaluated on the test set after a round."""
        return round > last - self.test_last or (self.test_every > 0 and round % self.test_every == 0)


class Experiment(Options):
    """A whole experiment. Every field has a default, so a data source alone is an experiment."""

    data: Annotated[Source, sources] = Field("digits", validate_default=True)
    partition: Annotated[Partition, partitions] = Field("dirichlet", validate_default=True)
    stream: Annotated[Stream, streams] = Static()
    model: Annotated[Model, models] = Field("mlp", validate_default=True)
    start: Annotated[Start, starts] = Random()
    method: Annotated[Method, methods] = Field("fedavg", validate_default=True)
    local: Local = Local()
    participation: float = Field(0.1, gt=0, le=1, description="share of the clients in each round")
    selection: Annotated[Selection, selections] = Uniform()
    clock: Annotated[Clock, clocks] = Rounds()
    faults: tuple[Annotated[Fault, known_faults], ...] = ()
    screens: tuple[Annotated[Screen, known_screens], ...] = ()
    privacy: Annotated[Privacy, privacies] = NoPrivacy()
    min_clients: int = Field(1, ge=1, description="updates that a round takes; with fewer it is repeated")
    retries: int = Field(2, ge=0, le=1000, description="how often, with other clients, before the run pauses")
    rounds: int = Field(50, ge=1)
    evaluate: Evaluate = Evaluate()
    measures: tuple[Annotated[Measure, known_measures], ...] = ()
    engine: Annotated[Engine, engines] = Field("auto", validate_default=True)
    seed: int = Field(0, ge=0, lt=2**63)

    @field_validator("measures", "faults", "screens")
    @classmethod
    def _each_once(cls, value: tuple[Part, ...], info: ValidationInfo) -> tuple[Part, ...]:
        names = [type(part).name for part in value]
        if len(set(names)) < len(names):
            kind = (info.field_name or "").removesuffix("s")
            raise ValueError(f"found {', '.join(names)}; each {kind} can be named once")
        return value

    @property
    def plan(self) -> Plan:
        """The part of the experiment that clients need."""
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
        """All measures, with those that `evaluate` asks for."""
        return (Forgetting(rounds=self.evaluate.forgetting), *self.measures)

    @property
    def over_selection(self) -> float:
        """Share of clients asked beyond those that a round takes: in simulated time, or for real."""
        part = self.engine if isinstance(self.engine, Flower) else self.clock
        return part.over_selection if isinstance(part, Flower | Synchronous) else 0.0

    def hash(self) -> str:
        """Twelve hexadecimal digits that stay the same as long as the experiment does."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_yaml(self) -> str:
        """The experiment with all its defaults spelt out."""
        return dump_yaml(self.model_dump(mode="json"))

    def override(self, changes: Mapping[str, Any]) -> Experiment:
        """The experiment with some fields changed, by dotted names."""
        return Experiment.parse(merge(self.model_dump(mode="json"), changes, Experiment))


FORMS = ("variants", "grid", "list", "random")
"""The ways to give a study's variants: fields by which a file with many experiments is known."""


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
