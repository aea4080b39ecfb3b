"""The files of a run's directory, and what is kept in the cache folder."""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

import mnemos
from fuzzing import tensors
from fuzzing.attempt import Target
from fuzzing.inputs import Inputs, altered, as_json, changes, deep_json, mutated
from fuzzing.messages import SMALL
from mnemos.data.folder import recall, remember
from mnemos.engines.engine import engines
from mnemos.errors import ConfigError
from mnemos.experiment.overrides import dump_yaml
from mnemos.report.page.collect import collect
from mnemos.report.page.render import render
from mnemos.report.reading import Reader, read
from mnemos.runs.forgetting_matrix import measured_rounds
from mnemos.runs.progress import progress
from mnemos.runs.run import Run
from mnemos.studies.study import recorded, variants_of

_NASTY = [
    b"",
    b"\0",
    b"\xff",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b"{",
    b'{"round": 1e999}',
    b'{"round": ' + b"9" * 5000 + b"}",
    deep_json(),
    b'{"a":' * 100_000,
    b"\xef\xbb\xbf{}",
    b'{"\\ud800": 1}',
    b'{"a": 1, "a": 2}',
]

_RICH = {
    **SMALL,
    "evaluate": {"forgetting": [1, 2], "every": 1, "test_last": 2},
    "stream": {"name": "tasks", "tasks": 2},
    "measures": [
        "continual",
        "class-accuracy",
        "client-accuracy",
        "task-forgetting",
        {"name": "effective-rank", "linear": True},
    ],
}


def metrics(folder: Path) -> Target:
    """What was measured, and everything that is worked out of it."""
    run = _run(folder)
    sample = run.file("metrics.jsonl").read_bytes()
    nasty = [b"\n", b"\n\n", b"null\n", b"{}\n", *_lacking(sample)]
    return _of_file(run, "metrics.jsonl", _everything, [sample], _lines(sample), nasty)


def report(folder: Path) -> Target:
    """A page of a run whose metrics were written by someone else."""
    run = _run(folder)
    sample = run.file("metrics.jsonl").read_bytes()

    def page(run: Run) -> None:
        data = collect([run])
        assert render(data)
        if data["notes"]:
            raise ConfigError(data["notes"][0])

    return _of_file(run, "metrics.jsonl", page, [sample], _lines(sample), [b"null\n", *_lacking(sample)[:8]])


def timing(folder: Path) -> Target:
    """Seconds a round, and how far a run has come."""
    run = _run(folder)
    sample = run.file("timing.jsonl").read_bytes()
    return _of_file(
        run,
        "timing.jsonl",
        _looked_at,
        [sample],
        _lines(sample),
        [b"null\n", b"{}\n", b'{"seconds": 1}\n', b'{"round": 1e999, "seconds": 1}\n'],
    )


def status(folder: Path) -> Target:
    """Where a run stands."""
    return _of_json(_run(folder), "status.json", _looked_at)


def engine(folder: Path) -> Target:
    """The engine that a run has used."""
    return _of_json(_run(folder), "engine.json", lambda run: (run.engine, read(run)))


def environment(folder: Path) -> Target:
    """Versions and machine, which a report shows."""

    def page(run: Run) -> None:
        _, notes = Reader().read([run])
        if notes:
            raise ConfigError(notes[0])
        collect([run])

    return _of_json(_run(folder), "environment.json", page)


def experiment(folder: Path) -> Target:
    """A run's own experiment."""
    run = _run(folder)
    sample = run.file("experiment.yaml").read_bytes()
    inputs = st.one_of(altered(run.experiment.model_dump(mode="json")), mutated([sample]))
    half = as_json({**run.experiment.model_dump(mode="json"), "start": {"name": "file", "\ud800": 1}})
    return replace(_of_file(run, "experiment.yaml", read, [sample], inputs, []), nasty=[*_NASTY[:10], half])


def trained(folder: Path) -> Target:
    """A run's trained model."""
    run = _run(folder)
    sample = run.file("model.safetensors").read_bytes()
    return _of_file(
        run, "model.safetensors", Run.model, [sample], tensors.files([sample]), tensors.nasty(sample)
    )


def record(folder: Path) -> Target:
    """Which runs are which variant's."""
    run = _run(folder)
    path = folder / "a.study.json"
    known = {"name": "a", "variants": {"one": [run.path.name], "two": []}}

    def look(content: bytes) -> None:
        path.write_bytes(content)
        recorded(path)
        variants_of(run)

    sample = as_json(known)
    return Target(look, st.one_of(altered(known), mutated([sample])), [sample], _NASTY)


def cache(folder: Path) -> Target:
    """What is remembered for later processes: whatever is in the file, it can be used and written again."""
    path = folder / "engines.json"
    known = {"one": {"name": "threads", "workers": 2}, "two": {"name": "vmap"}}

    def look(content: bytes) -> None:
        path.write_bytes(content)
        with patch.dict(os.environ, {"MNEMOS_CACHE": str(folder)}):
            found = recall(path.name, "one")
            remember(path.name, "three", 3)
            assert recall(path.name, "three") == 3
            engines.parse(found)

    sample = as_json(known)
    return Target(look, st.one_of(altered(known), mutated([sample])), [sample], _NASTY)


def _run(folder: Path) -> Run:
    run = Run(folder / "run")
    run.path.mkdir()
    for name, content in _files().items():
        run.file(name).write_bytes(content)
    return run


@functools.cache
def _files() -> dict[str, bytes]:
    """The files of a finished run."""
    with tempfile.TemporaryDirectory() as folder:
        run = mnemos.run(_RICH, out=folder)
        found = {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}
    # Without defaults: YAML takes longer to read than everything else.
    return {**found, "experiment.yaml": dump_yaml(_RICH).encode()}


def _everything(run: Run) -> None:
    """All that a user can ask a run for."""
    found = run.metrics
    for number in measured_rounds(found)[:3]:
        run.forgetting(number)
        run.forgetting_matrix(number, classes=True)
    read(run)
    with suppress(ConfigError):  # it was not recorded
        assert run.continual().summary
    progress(run, run.experiment)


def _looked_at(run: Run) -> None:
    """What is shown of a run that is going on."""
    assert isinstance(run.ended, bool)
    progress(run, run.experiment)
    read(run)


def _of_file(
    run: Run,
    name: str,
    look: Callable[[Run], object],
    samples: list[bytes],
    inputs: Inputs,
    nasty: list[bytes],
) -> Target:
    def one(content: bytes) -> None:
        run.file(name).write_bytes(content)
        look(run)

    return Target(one, inputs, samples, [*nasty, *_NASTY])


def _of_json(run: Run, name: str, look: Callable[[Run], object]) -> Target:
    sample = run.file(name).read_bytes()
    inputs = st.one_of(altered(json.loads(sample)), mutated([sample]))
    return _of_file(run, name, look, [sample], inputs, [])


def _lacking(sample: bytes) -> list[bytes]:
    """Records that are fine one by one, and of which some are missing or about something else."""
    names = {json.loads(line)["name"].encode() for line in sample.splitlines()}
    found = [
        re.sub(rb', "%s": \d+' % column, b"", sample) for column in (b"client", b"model", b"task", b"class")
    ]
    found += [
        re.sub(rb'"%s": 1' % column, b'"%s": 77' % column, sample, count=3) for column in (b"client", b"task")
    ]
    found += [
        re.sub(rb'("before_accuracy", "value": )[^,]+', rb"\g<1>" + value, sample)
        for value in (b"null", b"1e999")
    ]
    for name in sorted(names):
        kept = [line for line in sample.splitlines(keepends=True) if b'"%s"' % name not in line]
        found.append(b"".join(kept))
    return found


def _lines(sample: bytes) -> Inputs:
    """JSON lines of which one is wrong, of which some are missing, or in another order."""
    lines = sample.splitlines(keepends=True)
    kinds: dict[Any, int] = {}
    for number, line in enumerate(lines):  # one of each kind is as good as a thousand
        row = json.loads(line)
        kinds.setdefault((row.get("name"), *sorted(row)), number)
    one = st.one_of([_changed(lines, number) for number in kinds.values()])
    places = st.integers(0, len(lines) - 1)
    some = st.lists(places, max_size=40).map(lambda listed: b"".join(lines[number] for number in listed))
    return st.one_of(one, some, mutated([sample]))


def _changed(lines: list[bytes], number: int) -> Inputs:
    before, after = b"".join(lines[:number]), b"".join(lines[number + 1 :])
    return changes(json.loads(lines[number])).map(lambda row: before + as_json(row) + b"\n" + after)
