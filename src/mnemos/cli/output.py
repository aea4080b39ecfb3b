"""What a command prints about one run: how it ended, where its files are, and what to type next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from mnemos.cli.interrupts import acknowledged
from mnemos.cli.options import RUNS
from mnemos.display.terminal import console
from mnemos.display.words import percent, plural
from mnemos.errors import DivergedError, PausedError
from mnemos.runs.directory import RunDirectory

if TYPE_CHECKING:  # and imported where it is needed: a list of runs needn't wait for PyTorch
    from mnemos.runs.execute import Observer
    from mnemos.runs.left_out import LeftOut
    from mnemos.runs.run import Run


def print_json(value: dict[str, Any]) -> None:
    """Print the JSON object that a script reads, as the last line of standard output."""
    typer.echo(json.dumps(value))


def run_facts(run: RunDirectory) -> dict[str, Any]:
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
    found = _found(run)
    return {**run_facts(run), "left_out": found.reasons, "repeated": found.repeated}


def _privacy(run: RunDirectory) -> dict[str, Any]:
    """The run's privacy guarantee and its ε so far, under the key `privacy`; empty without a guarantee."""
    if not run.file("privacy.json").exists():
        return {}
    from mnemos.runs.store import overall_values, read_records  # without PyTorch, as a list of runs needs it

    values = overall_values(read_records(run.file("metrics.jsonl")), "epsilon")
    epsilon = float([*values.values()][-1]) if values else None
    return {"privacy": {"epsilon": epsilon, **run.read_json("privacy.json")}}


@contextmanager
def ending(observer: Observer, as_json: bool, options: Sequence[str] = ()) -> Iterator[None]:
    """Around a run: if it is interrupted, pauses or diverges, say how to go on with it and exit.

    `options` are those of `mnemos federate serve` with which the run has to go on.
    The run is saved by then. The exit code tells the three apart, and so does the JSON object.
    """
    try:
        with acknowledged(lambda: _going_on(observer, options)):
            yield
    except (DivergedError, PausedError, KeyboardInterrupt) as error:
        run, code = observer.run, 130 if isinstance(error, KeyboardInterrupt) else error.exit_code
        if run is None:
            raise
        again = _going_on(observer, options)
        sentence = {4: f"error: {error}", 5: f"error: {error}; {again}"}.get(code, f"interrupted; {again}")
        typer.echo(sentence, err=True)
        if as_json:
            print_json({**end_facts(run), "error": sentence.removeprefix("error: "), "exit_code": code})
        raise SystemExit(code) from None


def _going_on(observer: Observer, options: Sequence[str]) -> str:
    """Which command goes on with an interrupted run."""
    if observer.run is None:
        return "the same command starts again"
    return goes_on(resume_command(observer.run, options))


def goes_on(command: str) -> str:
    """`'mnemos resume here' continues it`; a command that has quotes itself is put where it can be copied."""
    return f"'{command}' continues it" if "'" not in command else f"to continue: {command}"


@contextmanager
def interruptible(
    as_json: bool, left: str = "finished work is saved, and the same command continues"
) -> Iterator[None]:
    """Around work that Ctrl-C may interrupt: print `left`, which says what is kept, and exit with 130."""
    try:
        with acknowledged(lambda: "the same command continues"):
            yield
    except KeyboardInterrupt:
        sentence = f"interrupted; {left}"
        typer.echo(sentence, err=True)
        if as_json:
            print_json({"status": "interrupted", "error": sentence, "exit_code": 130})
        raise SystemExit(130) from None


def _found(run: Run) -> LeftOut:
    from mnemos.runs.left_out import left_out

    return left_out(run.records)


def _left_out(run: Run) -> str:
    """`left out: 12 rejected: not finite, 3 dropped, in 9 rounds; 1 attempt at a round repeated`, if any."""
    found, parts = _found(run), []
    if found.reasons:
        reasons = ", ".join(f"{count} {name}" for name, count in found.reasons.items())
        parts.append(f"left out: {reasons}, in {plural(found.rounds, 'round')}")
    if found.repeated:
        parts.append(f"{plural(found.repeated, 'attempt')} at a round repeated")
    return "; ".join(parts)


def resume_command(run: Run, options: Sequence[str] = ()) -> str:
    """The command that continues a run: `mnemos resume`, or `mnemos federate serve` if owners trained it.

    It can be pasted into a shell. `options` are added to `mnemos federate serve`.
    """
    federated = run.experiment.engine.remote
    words = ["federate", "serve", str(run.path), *options] if federated else ["resume", str(run.path)]
    return shlex.join(["mnemos", *words])


def report_run(run: Run, as_json: bool, options: Sequence[str] = ()) -> None:
    """Print a run's accuracy, where its files are, and what to type next; `options`: see `resume_command`."""
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
        report = shlex.join(["mnemos", "report", str(run.path)])
        hints = [(report, "curves, tables and settings on one page")]
    else:
        hints = [(f"{resume_command(run, options)} --rounds {2 * status.rounds}", "train for longer")]
    if experiment.forgetting_rounds and status.rounds:
        forgotten = shlex.join(["mnemos", "forgetting", str(run.path)])
        hints.insert(0, (forgotten, "heat-maps of what clients forget"))
    folder = [] if run.path.parent == RUNS else [str(run.path.parent)]
    hints.append((shlex.join(["mnemos", "runs", *folder]), "all runs here"))
    for index, (command, what) in enumerate(hints):
        typer.echo(f"{'       ' if index else 'next:  '}{command}   ({what})")
