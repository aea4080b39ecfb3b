"""Which runs belong together, and what they are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic import overall, write_run

from mnemos.report.groups import group
from mnemos.report.reading import Reader, read
from mnemos.runs.run import Run


def groups(*runs: Run, **options):  # type: ignore[no-untyped-def]
    notes: list[str] = []
    return group([read(run) for run in runs], notes.append, **options), notes


def study(folder: Path, name: str, variants: dict[str, list[str]]) -> None:
    (folder / f"{name}.study.json").write_text(json.dumps({"name": name, "variants": variants}))


def test_seed_engine_and_measures_make_no_group(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {"seed": 3})
    two = write_run(tmp_path / "b", {"seed": 1, "engine": "threads", "evaluate.every": 5})
    three = write_run(tmp_path / "c", {"seed": 2, "measures": ["class-accuracy"]})
    (found,), notes = groups(one, two, three)
    assert [reading.seed for reading in found.readings] == [1, 2, 3]
    assert (found.label, notes) == ("fedavg + ce", [])


def test_labels_say_what_differs_and_order_goes_by_it(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{lr}-{loss}", {"local.lr": lr, "method.loss": loss})
        for lr in (0.3, 1e12, 0.03)
        for loss in ("wsm", "ce")
    ]
    found, _ = groups(*runs)
    rates = ("0.03", "0.3", "1e+12")
    assert [one.label for one in found] == [
        f"fedavg + {loss}, local.lr={rate}" for loss in ("ce", "wsm") for rate in rates
    ]
    assert [one.id for one in found] == list(range(6))
    unordered, _ = groups(*runs, ordered=False)
    assert unordered[0].label == "fedavg + wsm, local.lr=0.3"


def test_of_much_that_differs_labels_name_what_tells_groups_apart(tmp_path: Path) -> None:
    """The model's options differ as well, and the rounds; rate and model suffice."""
    runs = [
        write_run(
            tmp_path / f"{model}-{lr}", {"model": model, "local.lr": lr, "rounds": 7 if lr > 0.1 else 9}
        )
        for model in ("mlp", "logistic")
        for lr in (0.1, 0.2)
    ]
    found, _ = groups(*runs)
    assert [one.label for one in found] == [
        f"fedavg + ce, model.name={model}, local.lr={lr}"
        for model in ("logistic", "mlp")
        for lr in (0.1, 0.2)
    ]


def test_what_no_three_fields_tell_apart_is_named_by_what_is_unusual(tmp_path: Path) -> None:
    """As ablations are; one that has more of its own than a label can name has that of its directory."""
    alone: list[dict[str, Any]] = [
        {"local.lr": 1.0},
        {"rounds": 7},
        {"local.batch": 3},
        {"participation": 0.5},
    ]
    everything = {field: value for change in alone for field, value in change.items()}
    changes = [{}, *alone, everything]
    runs = [write_run(tmp_path / f"r{place}", change) for place, change in enumerate(changes)]
    found, _ = groups(*runs)
    notes = ["", ", local.lr=1", ", rounds=7", ", local.batch=3", ", participation=0.5", ", r5"]
    assert {one.label for one in found} == {f"fedavg + ce{note}" for note in notes}


def test_own_data_has_the_name_of_its_file(tmp_path: Path) -> None:
    """And its path only where two files have the same name."""
    paths = ("here/scans.npz", "here/photos.npz", "there/scans.npz")
    scans, photos, others = (
        write_run(tmp_path / str(index), {"data": {"name": "npz", "path": path}})
        for index, path in enumerate(paths)
    )
    found, _ = groups(scans, photos, ordered=False)
    assert [one.label for one in found] == ["fedavg + ce, data.name=scans", "fedavg + ce, data.name=photos"]
    found, _ = groups(scans, others, ordered=False)
    assert [one.label for one in found] == [f"fedavg + ce, data.path={path}" for path in paths[::2]]


def test_of_a_seed_that_was_run_twice_the_further_run_counts(tmp_path: Path) -> None:
    short = write_run(tmp_path / "a", {"rounds": 9}, status="interrupted", rounds=4)
    long = write_run(tmp_path / "b", {"rounds": 9}, accuracy=0.5)
    (found,), notes = groups(short, long)
    assert [one.name for one in found.readings] == ["b"]
    assert notes == [f"left out: {short.path}: same method, settings and seed as {long.path}"]


def test_a_study_names_and_orders(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"r{place}", {"local.lr": place + 1.0}) for place in range(3)]
    study(tmp_path, "rates", {"high": ["r2"], "<b>low</b>": ["r0"], "middle": ["r1"], "again": ["r1"]})
    found, _ = groups(*runs)
    assert [one.label for one in found] == ["high", "<b>low</b>", "middle / again"]


@pytest.mark.parametrize(
    "others",
    [
        {"partial": {"a": ["r0"]}},
        {"one": {"a": ["r0"], "b": ["r1"]}, "two": {"c": ["r0", "r1"]}},
        {"same": {"a": ["r0", "r1"]}},
        {"none": {}},
    ],
)
def test_a_study_that_is_not_the_one_is_no_help(
    others: dict[str, dict[str, list[str]]], tmp_path: Path
) -> None:
    """It lacks a run, isn't the only one, or has one name for two groups."""
    runs = [write_run(tmp_path / f"r{place}", {"local.lr": place + 1.0}) for place in range(2)]
    for name, variants in others.items():
        study(tmp_path, name, variants)
    (tmp_path / "broken.study.json").write_text("[")
    found, _ = groups(*runs)
    assert [one.label for one in found] == ["fedavg + ce, local.lr=1", "fedavg + ce, local.lr=2"]


def test_a_reader_reads_again_what_has_changed(tmp_path: Path) -> None:
    run, reader = write_run(tmp_path / "a", rows=overall("train_loss", [1.0])), Reader()
    (first,), _ = reader.read([run])
    (second,), _ = reader.read([run])
    assert first is second
    with run.file("metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "name": "train_loss", "value": 0.5}\n')
    (third,), _ = reader.read([run])
    assert third.of("train_loss").value.tolist() == [1.0, 0.5]


def test_a_reader_forgets_runs_that_are_gone(tmp_path: Path) -> None:
    run, reader = write_run(tmp_path / "a"), Reader()
    (first,), _ = reader.read([run])
    assert reader.read([]) == ([], [])
    (second,), _ = reader.read([run])
    assert first is not second


def test_a_damaged_run_becomes_a_note(tmp_path: Path) -> None:
    good, bad = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    bad.file("metrics.jsonl").write_text("{\n")
    readings, notes = Reader().read([good, bad])
    assert [one.name for one in readings] == ["a"]
    reason = f"{bad.file('metrics.jsonl')}: line 1 is damaged"
    assert notes == [f"left out: {bad.path}, which can't be read ({reason})"]


def test_records_by_what_they_are_about(tmp_path: Path) -> None:
    rows = [
        {"round": 1, "name": "a", "value": 1.0},
        {"round": 1, "name": "a", "client": 4, "value": 2.0},
        {"round": 2, "name": "a", "client": 5, "model": 6, "value": 3.0},
        {"round": 2, "name": "a", "value": None},
    ]
    one = read(write_run(tmp_path / "a", rows=rows))
    assert one.of("a").round.tolist() == [1, 2]
    assert one.of("a").finite.value.tolist() == [1.0]
    assert one.of("a", "client").by["client"].tolist() == [4]
    assert one.of("a", "model", "client").by["model"].tolist() == [6]
    assert len(one.of("b")) == 0
    assert one.rounds == 50  # what the status says
