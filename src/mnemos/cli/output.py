"""What a command prints about one run: a progress bar on a terminal or plain lines, and how it ended."""

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
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Outcome
from mnemos.federation.round import NOTED
from mnemos.runs.execute import Observer, Silent
from mnemos.runs.left_out import left_out
from mnemos.runs.run import Run, Status

console = Console(width=None if sys.stdout.isatty() else 1000)  # in a pipe, nothing is cut off
errors = Console(stderr=True)


def print_json(value: dict[str, Any]) -> None:
    """Print the JSON object that a script reads, as the last line of standard output."""
    typer.echo(json.dumps(value))


def watch(quiet: bool = False, label: str = "") -> Observer:
    """The observer of a run that suits the output: silent, a progress bar on a terminal, or lines."""
    if quiet:
        return Silent()
    return RunBar(label) if errors.is_terminal else RunLines(label)


def bars() -> Progress:
    """Progress bars with a note each, and the time left."""
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


class RunLines(Silent):
    """Prints a line on standard error at each evaluation of a run."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self._prefix = f"{label}: " if label else ""
        self._rounds = 0
        self._begin = 0.0
        self._first = 0
        self._tenths = 0

    def started(self, run: Run, experiment: Experiment, round: int) -> None:
        """Print the run's directory and the round it starts from."""
        super().started(run, experiment, round)
        self._rounds, self._first, self._begin = experiment.rounds, round, time.monotonic()
        left = (
            f"from round {round + 1} of {experiment.rounds}" if round < experiment.rounds else "already done"
        )
        self.say(f"{self._prefix}{run.path} ({left})")

    def warned(self, sentence: str) -> None:
        """Print a warning about the experiment."""
        self.say(f"{self._prefix}warning: {sentence}")

    def preparing(self, done: int, total: int, note: str) -> None:
        """Print how far the pre-training of the model is, at every tenth of it."""
        if not done or done == total or done * 10 // total > self._tenths:
            self._tenths = done * 10 // total
            self.say(f"{self._prefix}pre-training: {f'step {done}/{total}, ' if done else ''}{note}")

    def engine(self, runner: Runner) -> None:
        """Print which engine was chosen, and why."""
        self.say(f"{self._prefix}engine {describe(runner)}")

    def round(self, outcome: Outcome) -> None:
        """Print the round's loss and accuracies, if it was evaluated, was the last, or trained no client."""
        if outcome.validation or outcome.round == self._rounds or math.isnan(outcome.loss):
            left = (time.monotonic() - self._begin) / (outcome.round - self._first)
            left *= self._rounds - outcome.round
            self.say(
                f"{self._prefix}round {outcome.round}/{self._rounds}, {summary(outcome)}, {left:.0f} s left"
            )

    def say(self, line: str) -> None:
        """One line on standard error."""
        typer.echo(line, err=True)


class RunBar(RunLines):
    """Shows a run as a progress bar with round, accuracy and time left."""

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
        """Show the pre-training as a bar of its own until it is done."""
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
    """The engine's name and options, and why it was chosen."""
    options = [f"{key} {value}" for key, value in runner.engine.dump().items() if key != "name" and value]
    text = ", ".join([type(runner.engine).name, *options])
    return f"{text} ({runner.why})" if runner.why else text


def summary(outcome: Outcome) -> str:
    """A round in one line: its loss and accuracies, and how many clients were left out and why."""
    parts = ["no client has trained" if math.isnan(outcome.loss) else f"loss {outcome.loss:.4g}"]
    if outcome.validation:
        parts.append(f"validation {percent(outcome.validation.accuracy)}")
    if outcome.test:
        parts.append(f"test {percent(outcome.test.accuracy)}")
    names = Counter(record.name for record in outcome.records if record.client is not None)
    parts += [f"{count} {name}" for name, count in names.items() if name.startswith(NOTED)]
    return ", ".join(parts)


def run_facts(run: Run) -> dict[str, Any]:
    """The facts about a run that every command's JSON object has."""
    status = run.status
    return {
        "run": str(run.path),
        "status": status.status,
        "rounds": status.rounds,
        "accuracy": status.accuracy,
        **_privacy(run),
    }


def end_facts(run: Run) -> dict[str, Any]:
    """The facts about a run that has ended: also how much was left out, by reason, and attempts repeated."""
    found = left_out(run.records)
    return {**run_facts(run), "left_out": found.reasons, "repeated": found.repeated}


def _privacy(run: Run) -> dict[str, Any]:
    """The run's privacy guarantee and its ε so far, under the key `privacy`; empty without a guarantee."""
    if not run.file("privacy.json").exists():
        return {}
    return {"privacy": {"epsilon": run.epsilon, **run.read_json("privacy.json")}}


@contextmanager
def ending(observer: Observer, as_json: bool) -> Iterator[None]:
    """Around a run: if it is interrupted, pauses or diverges, say how to go on with it and exit.

    The run is saved by then. The exit code tells the three apart, and so does the JSON object.
    """
    try:
        yield
    except (DivergedError, PausedError, KeyboardInterrupt) as error:
        run, code = observer.run, 130 if isinstance(error, KeyboardInterrupt) else error.exit_code
        if run is None:
            raise
        again = f"'{resume_command(run)}' goes on"
        sentence = {4: f"error: {error}", 5: f"error: {error}; {again}"}.get(code, f"interrupted; {again}")
        typer.echo(sentence, err=True)
        if as_json:
            print_json({**end_facts(run), "error": sentence.removeprefix("error: "), "exit_code": code})
        raise SystemExit(code) from None


@contextmanager
def interruptible(
    as_json: bool, left: str = "what was finished is saved, and the same command goes on"
) -> Iterator[None]:
    """Around work that Ctrl-C may interrupt: print `left`, which says what is kept, and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        sentence = f"interrupted; {left}"
        typer.echo(sentence, err=True)
        if as_json:
            print_json({"status": "interrupted", "error": sentence, "exit_code": 130})
        raise SystemExit(130) from None


def _left_out(run: Run) -> str:
    """`left out: 12 rejected: not finite, 3 dropped, in 9 rounds; 1 attempt at a round repeated`, if any."""
    found, parts = left_out(run.records), []
    if found.reasons:
        reasons = ", ".join(f"{count} {name}" for name, count in found.reasons.items())
        parts.append(f"left out: {reasons}, in {plural(found.rounds, 'round')}")
    if found.repeated:
        parts.append(f"{plural(found.repeated, 'attempt')} at a round repeated")
    return "; ".join(parts)


def resume_command(run: Run) -> str:
    """The command that continues a run: `mnemos resume`, or `mnemos federate serve` if owners trained it."""
    federated = isinstance(run.experiment.engine, Flower)
    return f"mnemos {'federate serve' if federated else 'resume'} {run.path}"


def report_run(run: Run, as_json: bool) -> None:
    """Print a run's accuracy, where its files are, and which commands to type next."""
    if as_json:
        print_json(end_facts(run))
        return
    status, experiment = run.status, run.load(trust=True)  # its code has run already
    last = min(experiment.evaluate.test_last, status.rounds)
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
    if experiment.stream.paced or experiment.privacy.paced or status.message:
        typer.echo(f"next:  mnemos report {run.path}   (curves, tables and settings on one page)")
    else:
        typer.echo(f"next:  {resume_command(run)} --rounds {2 * status.rounds}   (go on for longer)")
    typer.echo(f"       mnemos runs {run.path.parent}   (all runs here)")
