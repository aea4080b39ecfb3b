"""Several variants of an experiment, each with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from mnemos.errors import ConfigError, DivergedError
from mnemos.experiment import Experiment, load_experiment
from mnemos.federation import Federation
from mnemos.overrides import merge, read_yaml
from mnemos.registry import Options
from mnemos.runs.execute import Observer, resume, start
from mnemos.runs.run import Run, find


class Comparison(Options):
    """A base experiment, named variants of it (dotted changes), and the seeds each is run with."""

    base: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"found {', '.join(map(str, value))}; each seed can be used once")
        return value

    @classmethod
    def read(
        cls,
        source: str | Path | dict[str, Any],
        changes: Mapping[str, Any],
        seeds: tuple[int, ...] | None = None,
    ) -> Comparison:
        """A comparison from a YAML file or a mapping; `changes` apply to the base."""
        given = source if isinstance(source, dict) else read_yaml(Path(source))
        given = {**given, "seeds": seeds} if seeds else given
        try:
            comparison = cls.parse(given)
        except ConfigError as error:
            raise error if isinstance(source, dict) else ConfigError(f"{source}: {error}") from None
        return comparison.model_copy(update={"base": merge(comparison.base, changes, Experiment)})

    def experiments(self) -> dict[str, list[Experiment]]:
        """One experiment a variant and seed."""
        found: dict[str, list[Experiment]] = {}
        for name, changes in self.variants.items():
            try:
                experiment = load_experiment(self.base, changes)
            except ConfigError as error:
                raise error.under(f"variant '{name}'") from None
            found[name] = [experiment.override({"seed": seed}) for seed in self.seeds]
        return found


@dataclass(frozen=True)
class Compared:
    """The runs of a comparison, by variant."""

    runs: dict[str, list[Run]]

    def accuracies(self, name: str) -> list[float]:
        """Final accuracies of a variant's runs that converged."""
        return [run.accuracy for run in self.runs[name] if run.accuracy is not None]

    def diverged(self, name: str) -> int:
        """How many of a variant's runs did not converge."""
        return sum(run.status.status == "diverged" for run in self.runs[name])


def carry_out(comparison: Comparison, folder: Path, observer: Callable[[str, int], Observer]) -> Compared:
    """Run what isn't finished yet; a run that diverges is kept as it is, and the rest goes on."""
    experiments = comparison.experiments()
    for name, variant in experiments.items():
        try:
            with closing(Federation(variant[0])):
                pass  # what is wrong with the last variant must show before the first one trains
        except ConfigError as error:
            raise error.under(f"variant '{name}'") from None
    runs: dict[str, list[Run]] = {}
    for name, variant in experiments.items():
        runs[name] = [_run(experiment, folder, observer(name, experiment.seed)) for experiment in variant]
    return Compared(runs)


def _run(experiment: Experiment, folder: Path, observer: Observer) -> Run:
    """The experiment's run: one that has ended already, one that is taken up again, or a new one."""
    known = find(experiment, folder)
    try:
        if known is None:
            return start(experiment, folder, observer)
        if known.status.status in {"finished", "diverged"}:
            return known
        return resume(known.path, observer=observer)
    except DivergedError:
        assert observer.run is not None
        return observer.run
