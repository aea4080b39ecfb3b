"""Advice: what to take for a federation, with its reasons, as files that can be run and read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnemos.common.files import write_atomically
from mnemos.display.words import duration, percent, plural
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.run import Run
from mnemos.studies.advise.description import FederationDescription, describe
from mnemos.studies.advise.ranking import Ranked, cheapest, rank
from mnemos.studies.advise.search import Found, Search, SearchGoal
from mnemos.studies.study import named, record

if TYPE_CHECKING:
    import pandas as pd

FILE, WINNER, RUNNER_UP = "advice.json", "winner.yaml", "runner-up.yaml"


@dataclass(frozen=True)
class Advice:
    """The result of `mnemos advise` and `mnemos tune`."""

    folder: Path
    """Where the runs are, and the files of the advice."""
    description: FederationDescription
    ranked: tuple[Ranked, ...]
    """The finalists, the best first; empty if there was no time for any."""
    runner_up: Ranked | None
    """The runner-up that costs least."""
    sentences: tuple[str, ...]
    """What to take, why, and what can't be told."""
    warnings: tuple[str, ...]
    ruled_out: tuple[tuple[str, str], ...]
    """(name, reason) of every candidate that isn't a finalist."""
    rungs: tuple[int, ...]
    """The rounds after which pilots were judged."""
    used: float
    """Seconds that all calls have used."""
    budget: float
    runs: tuple[str, ...]
    """The names of the run directories."""

    @property
    def winner(self) -> Ranked | None:
        """The finalist with the best mean; None if none has converged with every seed."""
        return self.ranked[0] if self.ranked and self.ranked[0].value is not None else None

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *(f"warning: {sentence}" for sentence in self.warnings)])

    def table(self) -> pd.DataFrame:
        """A data frame with a row per finalist, the best first."""
        import pandas as pd  # slow to import

        left_out = ("changes", "values")
        rows = [
            {key: v for key, v in finalist.facts.items() if key not in left_out} for finalist in self.ranked
        ]
        return pd.DataFrame(rows)

    @property
    def facts(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            "description": self.description.facts,
            "ranked": [finalist.facts for finalist in self.ranked],
            "winner": self.winner.name if self.winner else None,
            "runner_up": self.runner_up.name if self.runner_up else None,
            "sentences": list(self.sentences),
            "warnings": list(self.warnings),
            "ruled_out": [{"name": name, "reason": reason} for name, reason in self.ruled_out],
            "rungs": list(self.rungs),
            "seconds": round(self.used, 1),
            "budget": self.budget,
            "files": [str(self.folder / name) for name in self._files],
            "runs": list(self.runs),
        }

    @property
    def _files(self) -> list[str]:
        return [WINNER] * bool(self.winner) + [RUNNER_UP] * bool(self.runner_up)


def advise(goal: SearchGoal, folder: Path, budget: float, say: Callable[[str], None] | None = None) -> Advice:
    """Search, and write the advice into the folder of the runs; `say` is told what each trial has shown."""
    began = time.monotonic()  # reading the data counts
    description = describe(goal.base)
    found = Search(goal, folder, budget, say, began).run()
    advice = advice_of(found, description, folder)
    _write(advice, goal)
    return advice


def advice_of(found: Found, description: FederationDescription, folder: Path) -> Advice:
    """The advice that follows from a search."""
    names = dict(
        zip(
            map(id, found.candidates),
            named([candidate.changes for candidate in found.candidates] or [{}]),
            strict=False,
        )
    )
    ranked = rank(found, names)
    runner_up = cheapest(ranked)
    runs = _runs(found, names)
    if runs:
        with suppress(ConfigError):  # it is for reports alone
            record("advice", folder, runs)
    return Advice(
        folder,
        description,
        tuple(ranked),
        runner_up,
        tuple(_sentences(found, ranked, runner_up)),
        tuple(_warnings(found, ranked, description)),
        tuple(
            (names[id(candidate)], candidate.reason)
            for candidate in found.candidates
            if candidate not in found.finalists
        ),
        found.rungs,
        found.used,
        found.budget,
        tuple(run.path.name for mine in runs.values() for run in mine),
    )


def _runs(found: Found, names: dict[int, str]) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {}
    for candidate in found.candidates:
        pilots = ([candidate.pilot] if candidate.pilot else []) + list(candidate.seeds.values())
        if pilots:
            runs[names[id(candidate)]] = [pilot.run for pilot in pilots]
    return runs


def _write(advice: Advice, goal: SearchGoal) -> None:
    for name, finalist in ((WINNER, advice.winner), (RUNNER_UP, advice.runner_up)):
        path = advice.folder / name
        if finalist is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, chosen(goal, finalist).show().encode())
    write_atomically(advice.folder / FILE, json.dumps(advice.facts, indent=1).encode())


def chosen(goal: SearchGoal, finalist: Ranked) -> Experiment:
    """The experiment to run for a finalist: the one that was given, with the finalist's changes."""
    return goal.base.override(finalist.changes)


def _sentences(found: Found, ranked: list[Ranked], runner_up: Ranked | None) -> list[str]:
    tried = (
        f"{plural(len(found.candidates), 'candidate')} in {duration(found.used)} of {duration(found.budget)}"
    )
    if not ranked or ranked[0].value is None:
        return [f"It can't be told what to take: none of {tried} has been run long enough, or has converged."]
    best, *others = ranked
    seeds = len(best.values)
    lines = [
        f"Take {best.name}: {percent(best.accuracy)} of the validation data after {best.rounds} rounds"
        f"{_ends(best)}, the best of {tried}."
    ]
    if seeds < 2:
        lines.append("It can't be told which differences are real: there was time for one seed.")
        return lines
    worse = [finalist for finalist in others if finalist.verdict == "worse"]
    alike = [finalist for finalist in others if finalist.verdict == "not told apart"]
    lines += [
        f"{lost.name} is worse by {-(lost.difference or 0):.1f} points (95 %: "
        f"{-(lost.difference_high or 0):.1f} to {-(lost.difference_low or 0):.1f}, p = {lost.p:.2g}, "
        f"{seeds} seeds)."
        for lost in worse
    ]
    if alike:
        lines.append(
            f"It can't be told apart, over {seeds} seeds, from "
            + " or from ".join(finalist.name for finalist in alike)
            + ("." if worse else ": the ranking may be chance.")
        )
    if runner_up is not None:
        less = 1 - runner_up.bytes / best.bytes if best.bytes else 0.0
        spared = f"{100 * abs(less):.0f} % {'fewer' if less >= 0 else 'more'} bytes per round"
        spared = spared if abs(less) >= 0.005 else "as many bytes"
        times = [duration(finalist.seconds) for finalist in (runner_up, best)]
        took = f"{times[0]} a pilot" + (
            f" instead of {times[1]}" if times[0] != times[1] else " like the best"
        )
        lines.append(
            f"The cheapest runner-up is {runner_up.name}: {spared}, {took}, "
            f"{100 * ((best.accuracy or 0) - (runner_up.accuracy or 0)):.1f} points less."
        )
    return lines


def _ends(finalist: Ranked) -> str:
    if finalist.low is None or finalist.high is None:
        return ""
    return f" (95 %: {100 * finalist.low:.1f} to {100 * finalist.high:.1f})"


def _warnings(found: Found, ranked: list[Ranked], description: FederationDescription) -> list[str]:
    base, space = found.goal.base, found.goal.space
    lines = list(description.warnings)
    if found.spent:
        lines.append("the time was used before everything was tried; with a larger --budget it goes on")
    if found.rungs[-1] < base.rounds:
        lines.append(
            f"pilots had {found.rungs[-1]} of the experiment's {base.rounds} rounds: what is best early may "
            "not be best in the end"
        )
    if not ranked:
        return lines
    for name, value in ranked[0].changes.items():
        if space.at_edge(name, value):
            lines.append(
                f"{name} = {value:g} is at the edge of what was tried; a value beyond it may be better"
            )
    with suppress(MnemosError), closing(Federation(chosen(found.goal, ranked[0]))) as federation:
        lines += federation.warnings
    return lines
