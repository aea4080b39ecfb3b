"""`mnemos watch`: follow runs in progress, in the terminal and on a page that updates itself."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mnemos.cli.options import Json
from mnemos.cli.output import print_json
from mnemos.display.terminal import console
from mnemos.display.words import duration, percent
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.report.live import Latest, serve
from mnemos.report.page import collect, render
from mnemos.report.reading import Reader
from mnemos.runs.progress import RunProgress, progress
from mnemos.runs.run import Run, runs_in
from mnemos.studies.study import variants_of

_MOST = 30
"""The terminal's table shows this many runs at most; running ones come first."""

_ORDER = ("running", "interrupted", "paused", "failed", "damaged", "diverged", "finished")


@dataclass(frozen=True)
class _Line:
    """A run's row in the terminal."""

    name: str
    label: str
    """The study's names for the run's variant, and the seed; empty if no study made the run."""
    status: str
    progress: RunProgress | None

    @property
    def accuracy(self) -> str:
        """The latest accuracy, marked `(validation)` or `(test)`: the former isn't the run's result."""
        seen = self.progress
        if seen is None or self.status == "diverged":
            return "NC" if seen else ""
        measured = f" ({seen.measured})" if seen.measured in ("validation", "test") else ""
        return percent(seen.accuracy) + measured

    def facts(self) -> dict[str, Any]:
        """The facts about the run in the JSON object."""
        seen = self.progress
        return {
            "run": self.name,
            "label": self.label,
            "status": self.status,
            "round": seen.round if seen else 0,
            "rounds": seen.rounds if seen else 0,
            "accuracy": seen.accuracy if seen else None,
            "measured": seen.measured if seen else "",
            "seconds_a_round": seen.seconds if seen else None,
            "seconds_left": seen.left if seen else None,
        }


class WatchedRuns:
    """The runs under some folders. New ones are found; a run that has ended is read once."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._experiments: dict[Path, tuple[object, Experiment]] = {}
        self._ended: dict[Path, tuple[object, _Line]] = {}

    def runs(self) -> list[Run]:
        """All runs that are there now, each once."""
        found = {run.path.resolve(): run for path in self._paths for run in runs_in(path)}
        return list(found.values())

    def lines(self) -> list[_Line]:
        """A row for each run: running ones first, then by status and name."""
        lines = [self._line(run) for run in self.runs()]
        return sorted(lines, key=lambda line: (_ORDER.index(line.status), line.name))

    def signature(self) -> object:
        """A value that changes when a run is new, has written something, or has lost its process."""
        return [
            (run.path, run.stamp("metrics.jsonl", "status.json", "owners.json"), run.locked)
            for run in self.runs()
        ]

    def _line(self, run: Run) -> _Line:
        written = run.stamp("status.json")
        known = self._ended.get(run.path)
        if known and known[0] == written:
            return known[1]
        try:
            experiment = self._experiment(run)
            seen = progress(run, experiment)
        except (MnemosError, OSError):  # a run that is damaged, or being removed, must not hide the others
            return _Line(str(run.path), "", "damaged", None)
        names = variants_of(run)
        parts = [" / ".join(names), f"seed {experiment.seed}"] if names else []
        line = _Line(str(run.path), ", ".join(parts), seen.status.status, seen)
        if line.status in ("finished", "diverged"):
            self._ended[run.path] = (written, line)
        return line

    def _experiment(self, run: Run) -> Experiment:
        written = run.stamp("experiment.yaml")
        known = self._experiments.get(run.path)
        if known is None or known[0] != written:
            known = self._experiments[run.path] = (written, run.experiment)
        return known[1]


def watch(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[FOLDER_OR_RUN]...", help="Runs, or folders with runs.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0: any free one.")] = 0,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the page.")] = True,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state once, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Follow runs in progress: a table here, and a live report page on this machine.

    It only reads, so you can start and end it (with Ctrl-C) at any time, also for runs of other commands. It
    finds new runs in the folders.
    """
    watched = WatchedRuns(_folders(paths or [Path("runs")]))
    if once or as_json:
        lines = watched.lines()
        if as_json:
            print_json({"runs": [line.facts() for line in lines]})
        else:
            console.print(_table(lines))
        return
    with ExitStack() as stack:
        address = ""
        if page:
            reader = Reader()  # it reads again only what has changed
            data = Latest(lambda: collect(watched.runs(), reader=reader), watched.signature)
            address = stack.enter_context(serve(lambda: render(collect([]), live=True), data, port))
        try:
            (_follow_live if console.is_terminal else _follow_lines)(watched, address, every)
        except KeyboardInterrupt:
            return  # the way to end it


def _folders(paths: Sequence[Path]) -> Sequence[Path]:
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such folder")
    return paths


def _follow_live(watched: WatchedRuns, address: str, every: float) -> None:
    head = Text(f"page: {address}\n" if address else "")
    with Live(console=console, auto_refresh=False) as view:
        while True:
            view.update(Group(head, _table(watched.lines()), Text("Ctrl-C ends watching")), refresh=True)
            time.sleep(every)


def _follow_lines(watched: WatchedRuns, address: str, every: float) -> None:
    """Without a terminal: print a line when a run's status or accuracy has changed."""
    if address:
        typer.echo(f"page: {address}")
    told: dict[str, tuple[str, float | None]] = {}
    while True:
        for line in watched.lines():
            news = (line.status, line.progress.accuracy if line.progress else None)
            if told.get(line.name) != news:
                told[line.name] = news
                typer.echo(_sentence(line))
        time.sleep(every)


def _sentence(line: _Line) -> str:
    if line.progress is None:
        return f"{line.name}: {line.status}"
    seen = line.progress
    left = f", {duration(seen.left)} left" if seen.left is not None else ""
    where = f"round {seen.round}/{seen.rounds}, accuracy {line.accuracy}"
    name = f"{line.name} ({line.label})" if line.label else line.name
    return f"{name}: {line.status}, {where}{left}"


def _table(lines: Sequence[_Line]) -> Table | Text:
    if not lines:
        return Text("no runs yet")
    named = any(line.label for line in lines)
    heads = [
        "run",
        *(["variant"] if named else []),
        "status",
        "round",
        "accuracy",
        "s per round",
        "time left",
    ]
    table = Table(*heads, box=None)
    for line in lines[:_MOST]:
        table.add_row(Text(line.name), *([Text(line.label)] if named else []), line.status, *_figures(line))
    counts = Counter(line.status for line in lines)
    ended = counts["finished"] + counts["diverged"]
    more = f", {len(lines) - _MOST} of them not shown" if len(lines) > _MOST else ""
    table.caption = f"{counts['running']} running, {ended} of {len(lines)} ended{more}"
    table.caption_justify = "left"
    return table


def _figures(line: _Line) -> tuple[str, ...]:
    """The table's columns for a run's progress; none if it couldn't be read."""
    seen = line.progress
    if seen is None:
        return ()
    seconds = f"{seen.seconds:.2g}" if seen.seconds is not None else "–"
    left = duration(seen.left) if seen.left is not None else ""
    return f"{seen.round}/{seen.rounds}", line.accuracy, seconds, left
