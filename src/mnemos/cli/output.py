"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mnemos.engines.engine import Runner
from mnemos.engines.flower import Flower
from mnemos.errors import DivergedError, PausedError
from mnemos.experiment import Experiment
from mnemos.federation import Outcome
from mnemos.rounds.arrivals import DROPPED, REJECTED
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.left_out import left_out
from mnemos.runs.run import Run, Status

console = Console(width=None if sys.stdout.isatty() else 1000)  # in a pipe, nothing is cut off
errors = Console(stderr=True)


def print_json(value: dict[str, Any]) -> None:
    """The one JSON object a script reads: the last line of standard output."""
    typer.echo(json.dumps(value))


def watch(quiet: bool = False, label: str = "") -> Observer:
    """The observer that fits where the output goes."""
    if quiet:
        return Silent()
    return Bar(label) if errors.is_terminal else Lines(label)


def bars() -> Progress:
    """Bars with a note of how well it goes, and the time left."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
        console=errors,
    )


def percent(share: float | None) -> str:
    """`93.2 %`, or a dash."""
    return "–" if share is None else f"{100 * share:.1f} %"


def plural(count: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {word}" + ("s" if count != 1 else "")


def duration(seconds: float) -> str:
    """`8 s`, `12 min`, `3 h 20 min`, `2 d 5 h`, `40 d` or `1.5 years`: as precise as a person wants it."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if hours >= 24 * 365:
        return f"{hours / 24 / 365:.2g} years"
    if hours >= 24 * 10:
        return f"{round(hours / 24)} d"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


class Lines(Silent):
    """A line at each evaluation, on standard error."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self._prefix = f"{label}: " if label else ""
        self._rounds = 0
        self._begin = 0.0
        self._first = 0
        self._tenths = 0

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Say where the run is."""
        super().started(run, experiment, round)
        self._rounds, self._first, self._begin = experiment.rounds, round, time.monotonic()
        left = (
            f"from round {round + 1} of {experiment.rounds}" if round < experiment.rounds else "already done"
        )
        self.say(f"{self._prefix}{run.path} ({left})")

    def warned(self, sentence: str) -> None:
        """Say what is known to hurt."""
        self.say(f"{self._prefix}warning: {sentence}")

    def preparing(self, done: int, total: int, note: str) -> None:
        """Say how the training of what it starts from goes, in tenths."""
        if not done or done == total or done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            self.say(f"{self._prefix}pre-training: {f'step {done}/{total}, ' if done else ''}{note}")

    def engine(self, runner: Runner) -> None:
        """Say which engine was taken and why."""
        self.say(f"{self._prefix}engine {describe(runner)}")

    def round(self, outcome: Outcome) -> None:
        """Say how far it has come."""
        if outcome.validation or outcome.round == self._rounds or math.isnan(outcome.loss):
            left = (time.monotonic() - self._begin) / (outcome.round - self._first)
            left *= self._rounds - outcome.round
            self.say(
                f"{self._prefix}round {outcome.round}/{self._rounds}, {summary(outcome)}, {left:.0f} s left"
            )

    def say(self, line: str) -> None:
        """One line on standard error."""
        typer.echo(line, err=True)


class Bar(Lines):
    """A progress bar with round, accuracy and time left."""

    def __init__(self, label: str = "") -> None:
        super().__init__(label)
        self._label = label
        self._last = ""
        self._preparation: TaskID | None = None
        self._progress = bars()

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Show the bar."""
        Silent.started(self, run, experiment, round)
        self._progress.start()
        self._task = self._progress.add_task(
            self._label or run.path.name, total=experiment.rounds, completed=round, note=""
        )

    def preparing(self, done: int, total: int, note: str) -> None:
        """Show a bar of its own, as long as it takes."""
        if self._preparation is None:
            self._preparation = self._progress.add_task("pre-training", note="")
        self._progress.update(self._preparation, completed=done, total=total, note=note, visible=done < total)

    def round(self, outcome: Outcome) -> None:
        """Move the bar."""
        if outcome.validation or outcome.test:
            self._last = summary(outcome)
        self._progress.update(self._task, completed=outcome.round, note=self._last or summary(outcome))

    def ended(self, run: Run, status: Status) -> None:
        """Leave the bar as it is."""
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)


def describe(runner: Runner) -> str:
    """The engine in a few words."""
    options = [f"{key} {value}" for key, value in runner.engine.dump().items() if key != "name" and value]
    text = ", ".join([type(runner.engine).name, *options])
    return f"{text} ({runner.why})" if runner.why else text


def summary(outcome: Outcome) -> str:
    """Loss and accuracies of a round, and how many were left out of it."""
    parts = ["nobody has trained" if math.isnan(outcome.loss) else f"loss {outcome.loss:.4g}"]
    if outcome.validation:
        parts.append(f"validation {percent(outcome.validation.accuracy)}")
    if outcome.test:
        parts.append(f"test {percent(outcome.test.accuracy)}")
    names = Counter(record.name for record in outcome.records if record.client is not None)
    parts += [f"{count} {name}" for name, count in names.items() if name.startswith((DROPPED, REJECTED))]
    return ", ".join(parts)


def run_facts(run: Run) -> dict[str, Any]:
    """What a script wants to know about a run."""
    status = run.status
    return {
        "run": str(run.path),
        "status": status.status,
        "rounds": status.rounds,
        "accuracy": status.accuracy,
        **_privacy(run),
    }


def end_facts(run: Run) -> dict[str, Any]:
    """What a script wants to know about a run that has ended."""
    found = left_out(run.metrics)
    return {**run_facts(run), "left_out": found.reasons, "repeated": found.repeated}


def _privacy(run: Run) -> dict[str, Any]:
    """What a run promises about clients' data, and ε so far; nothing, if it promises nothing."""
    if not run.file("privacy.json").exists():
        return {}
    return {"privacy": {"epsilon": run.epsilon, **run.read_json("privacy.json")}}


@contextmanager
def ending(observer: Observer, as_json: bool) -> Iterator[None]:
    """End a command whose run was interrupted, paused or diverged: it is saved, and a script learns where."""
    try:
        yield
    except (DivergedError, PausedError, KeyboardInterrupt) as error:
        run, code = observer.run, 130 if isinstance(error, KeyboardInterrupt) else error.exit_code
        if run is None:
            raise
        again = f"'{goes_on(run)}' goes on"
        sentence = {4: f"error: {error}", 5: f"error: {error}; {again}"}.get(code, f"interrupted; {again}")
        typer.echo(sentence, err=True)
        if as_json:
            print_json({**end_facts(run), "error": sentence.removeprefix("error: "), "exit_code": code})
        raise SystemExit(code) from None


@contextmanager
def going_on(
    as_json: bool, left: str = "what was finished is saved, and the same command goes on"
) -> Iterator[None]:
    """End a command that was interrupted, with a word on what is left of it: as a rule, all that was done."""
    try:
        yield
    except KeyboardInterrupt:
        sentence = f"interrupted; {left}"
        typer.echo(sentence, err=True)
        if as_json:
            print_json({"status": "interrupted", "error": sentence, "exit_code": 130})
        raise SystemExit(130) from None


def _left_out(run: Run) -> str:
    """`left out: 12 rejected: not finite, 3 dropped, in 9 rounds; 1 attempt repeated`, if there were any."""
    found, parts = left_out(run.metrics), []
    if found.reasons:
        reasons = ", ".join(f"{count} {name}" for name, count in found.reasons.items())
        parts.append(f"left out: {reasons}, in {plural(found.rounds, 'round')}")
    if found.repeated:
        parts.append(f"{plural(found.repeated, 'attempt')} at a round repeated")
    return "; ".join(parts)


def goes_on(run: Run) -> str:
    """The command that goes on with a run."""
    elsewhere = isinstance(run.experiment.engine, Flower)
    return f"mnemos {'federate serve' if elsewhere else 'resume'} {run.path}"


def report_run(run: Run, as_json: bool) -> None:
    """What was reached, where the files are, what to type next."""
    if as_json:
        print_json(end_facts(run))
        return
    status = run.status
    last = min(run.experiment.evaluate.test_last, status.rounds)
    over = f", mean of the last {last} rounds" if last > 1 else ""
    rounds = plural(status.rounds, "round")
    console.print(f"[bold]{percent(status.accuracy)}[/] accuracy after {rounds}{over}")
    if gone := _left_out(run):
        typer.echo(gone)
    for facts in _privacy(run).values():
        typer.echo(f"privacy: ε = {facts['epsilon']:.4g} at δ = {facts['delta']:g} ({facts['relation']})")
        typer.echo(f"       noise {facts['noise']:.4g}, added by {facts['at']}; {facts['sampling']}")
    if status.message:
        typer.echo(f"       {status.message}")
    typer.echo(f"files: {run.path}")
    if run.experiment.stream.paced or run.experiment.privacy.paced or status.message:
        typer.echo(f"next:  mnemos report {run.path}   (curves, tables and settings on one page)")
    else:
        typer.echo(f"next:  {goes_on(run)} --rounds {2 * status.rounds}   (go on for longer)")
    typer.echo(f"       mnemos runs {run.path.parent}   (all runs here)")
