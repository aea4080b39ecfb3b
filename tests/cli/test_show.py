"""`--show`: the experiment as it would run, with what differs from the defaults and presets marked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from mnemos.cli import shown
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.marked import differences
from mnemos.experiment.overrides import parse_yaml

STUDY = """
base: {method: {name: fedavgm, server: {lr: 0.5}}, rounds: 3}
variants:
  "a\\nrounds: 7": {}
  slow: {method.server: {lr: 0.25}, seed: 9}
seeds: [4, 5]
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def marks(text: str) -> list[str]:
    """The lines with a comment, without those that are nothing else."""
    return [line.strip() for line in text.splitlines() if " # " in line and not line.startswith("#")]


def test_what_differs_is_marked_and_nothing_is_run(command, place):
    ended = command(
        "run --method fedavgm method.server.lr=0.5 --rounds 7 local.optimizer.momentum=0.5 --show"
    )
    assert marks(ended.out) == [
        "name: fedavgm  # default: fedavg",
        "lr: 0.5  # fedavgm: 1.0",
        "momentum: 0.5  # default: 0.0",
        "rounds: 7  # default: 50",
    ]
    assert "    momentum: 0.9\n" in ended.out  # FedAvgM's own
    assert not ended.err
    assert list(place.iterdir()) == []


def test_it_can_be_fed_back(command):
    words = "--method fedspace method.head.temperature=0.2 'screens=[{name: norms, most: 3}]' --seed 2"
    ended = command(f"run {words} --show")
    Path("again.yaml").write_text(ended.out)
    assert command("run again.yaml --show").out == ended.out
    experiment = load_experiment("again.yaml")
    assert experiment.method.head.rotations
    assert ended.out.splitlines()[0] == f"# experiment {experiment.hash()}, 5 settings marked"


def test_the_defaults_have_nothing_to_mark(command):
    ended = command("run --show")
    assert ended.out == f"# experiment {Experiment().hash()}, 0 settings marked\n{Experiment().to_yaml()}"
    assert Experiment().show() == Experiment().to_yaml()


def test_no_data_is_read(command, place):
    ended = command("run --data nowhere.npz --show")
    assert marks(ended.out) == ["name: npz  # default: digits", "path: nowhere.npz  # npz has no default"]
    assert list(place.iterdir()) == []


def test_for_a_script(command):
    facts = command(
        "run --method uga method.server.momentum=0.5 'method.meta={samples: 3}' --show --json"
    ).json
    experiment = Experiment.parse(facts["experiment"])
    assert facts["status"] == "shown"
    assert facts["hash"] == experiment.hash()
    assert experiment.method.server.lr == 0.1
    assert facts["changed"] == {
        "method.name": {"value": "uga", "of": "default", "own": "fedavg"},
        "method.server.momentum": {"value": 0.5, "of": "uga", "own": 0.0},
        "method.meta": {"value": {"samples": 3, "lr": 0.01, "steps": 1}, "of": "uga", "own": None},
        "method.meta.samples": {"value": 3, "of": "default"},
        "local.epochs": {"value": 2, "of": "default", "own": 1},
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--method fedavgmm", "method: there is no method 'fedavgmm'; did you mean 'fedavgm'?"),
        ("--method fedavgm method.server.rho=1", "method.server.rho: unknown field; allowed: lr, momentum"),
        ("--method fedavgm method=", "method: found None; it takes a name or a mapping"),
        ("rounds=0", "rounds: found 0; allowed: ≥ 1"),
        ("study.yaml", "study.yaml: it is a study, with 'variants'"),
    ],
)
def test_a_mistake_is_still_one_sentence(command, words, sentence):
    Path("study.yaml").write_text(STUDY)
    ended = command(f"run {words} --show", 2)
    assert ended.err.startswith(f"error: {sentence}")
    assert not ended.out


def test_text_cannot_leave_its_line(command):
    """Neither the values nor the defaults of a file can start a line or steer a terminal."""
    strange = "a\nrounds: 7 # \x1b[31m\u2028é"
    experiment = Experiment.parse({"data": {"name": "npz", "path": strange}, "model": {"name": "cnn"}})
    text = experiment.show()
    assert "\x1b" not in text
    assert "\u2028" not in text
    assert Experiment.parse(parse_yaml(text)) == experiment


def test_parts_in_lists_and_other_parts():
    experiment = Experiment.parse(
        {
            "method": {"name": "fedavgm", "server": {"name": "adam", "lr": 0.5}, "terms": ["proximal"]},
            "measures": ["class-accuracy", {"name": "effective-rank", "every": 3}],
            "clock": {"name": "fedbuff", "speeds": {"times": {3: 2.0}, "stragglers": {}}},
        }
    )
    found = {name: (one.of, one.own) for name, one in differences(experiment).items()}
    assert found == {
        "method.name": ("default", "fedavg"),
        "method.terms": ("fedavgm", []),
        "method.server.name": ("fedavgm", "sgd"),
        "method.server.lr": ("adam", 0.01),
        "clock.name": ("default", "rounds"),
        "clock.speeds.times": ("fedbuff", {}),
        "clock.speeds.stragglers": ("fedbuff", None),
        "measures": ("default", []),
        "measures.1.every": ("effective-rank", 0),
    }
    assert Experiment.parse(parse_yaml(experiment.show())) == experiment


def test_colours_on_a_terminal(command, monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=20)
    monkeypatch.setattr(shown, "console", screen)
    command("run --data a-file-with-a-name-that-is-longer-than-the-screen.npz --show")
    text = screen.file.getvalue()
    assert (
        "\x1b[1;32m  path: a-file-with-a-name-that-is-longer-than-the-screen.npz\x1b[0m\x1b[36m  # npz has no"
        in text
    )
    assert "\nrounds: 50\n" in text


def test_all_variants_of_a_study(command, place):
    Path("study.yaml").write_text(STUDY)
    for name in ("compare", "sweep"):
        ended = command(f"{name} study.yaml --show")
        first, second = (Experiment.parse(parse_yaml(text)) for text in ended.out.split("---\n")[1:])
        assert (first.rounds, first.method.server.lr, first.method.server.momentum) == (3, 0.5, 0.9)
        assert (second.method.server.lr, second.method.server.momentum) == (0.25, 0.9)
        assert (first.seed, second.seed) == (4, 4)
        assert f"# slow, with the seeds [4, 5]: experiment {second.hash()}, 4 settings marked\n" in ended.out
        facts = command(f"{name} study.yaml --show --json").json
        assert [one["hash"] for one in facts["variants"]] == [first.hash(), second.hash()]
        assert (facts["status"], facts["seeds"]) == ("shown", [4, 5])
        assert facts["variants"][1]["changed"]["method.server.lr"] == {
            "value": 0.25,
            "of": "fedavgm",
            "own": 1.0,
        }
    assert [path.name for path in place.iterdir()] == ["study.yaml"]


def test_a_plan_and_a_look_are_two_things(command):
    Path("study.yaml").write_text(STUDY)
    ended = command("sweep study.yaml --show --dry-run", 2)
    assert ended.err == "error: found --show and --dry-run; allowed: one of them\n"
