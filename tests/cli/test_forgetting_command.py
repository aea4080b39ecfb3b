"""`mnemos forgetting`: table, figures, JSON, and one sentence for what can't be done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mnemos
from mnemos.errors import DivergedError
from mnemos.runs.forgetting_matrix import read_matrix
from mnemos.runs.run import Run
from mnemos.runs.store import overall

TINY = {
    "partition": {"clients": 12, "alpha": 0.5},
    "model": {"hidden": [8]},
    "participation": 0.25,
    "rounds": 4,
    "local": {"lr": 0.3},
    "evaluate": {"every": 4, "forgetting": 2},
    "engine": "serial",
}
"""Forgetting is measured in rounds 1, 2 and 4."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two methods with two seeds each, a run without forgetting, and one that diverges in round 2."""
    folder = tmp_path_factory.mktemp("made")
    for seed in (1, 0):
        for loss in ("ce", "wsm"):
            mnemos.run(TINY, {"seed": seed, "method.loss": loss}, out=folder / "runs")
    mnemos.run(TINY, {"evaluate.forgetting": 0}, out=folder / "without")
    mnemos.run(TINY, {"local.lr": 0.1}, out=folder / "slow")
    mnemos.run(TINY, {"evaluate.forgetting": [3]}, out=folder / "third")
    mnemos.run(TINY, {"participation": 0.09}, out=folder / "alone")
    with pytest.raises(DivergedError):
        mnemos.run(TINY, {"local.lr": 1e12}, out=folder / "diverged")
    return folder


@pytest.fixture(autouse=True)
def place(made, tmp_path, monkeypatch) -> Path:
    """A working folder with copies of the runs."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # `main` does so too; this puts it back
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch) -> dict[str, list[str]]:
    """For what is told of the figures, not seen in them: the labels and rounds they would have."""
    drawn: dict[str, list[str]] = {}

    def draw(runs, rounds, path, title):
        drawn[str(path)] = [*runs, *map(str, rounds)]
        return path

    monkeypatch.setattr("mnemos.plots.forgetting_maps.draw_heatmaps", draw)
    monkeypatch.setattr("mnemos.plots.curves.draw_curves", lambda runs, path, *_: path)
    return drawn


def only(folder: str) -> Path:
    (path,) = Path(folder).iterdir()
    return path


def refused(command, line: str, code: int = 2) -> str:
    """The sentence of a command that must leave nothing behind."""
    before = sorted(Path().rglob("*"))
    ended = command(line, code)
    assert sorted(Path().rglob("*")) == before
    assert ended.out == ""
    (sentence,) = ended.err.splitlines()
    return sentence.removeprefix("error: ")


# --- what it says -------------------------------------------------------------------------------------


def test_json(command, undrawn):
    """Numbers are those of the metrics, by method and seed."""
    facts = command("forgetting runs --json -o figure.png").json
    assert (facts["status"], facts["figure"], facts["curve"]) == (
        "finished",
        "figure.png",
        "figure-curve.png",
    )
    assert undrawn == {"figure.png": ["fedavg + ce, seed 0", "fedavg + wsm, seed 0", "1", "2", "4"]}
    assert [(row["method"], row["seeds"]) for row in facts["methods"]] == [
        ("fedavg + ce", [0, 1]),
        ("fedavg + wsm", [0, 1]),
    ]
    for row in facts["methods"]:
        assert [cell["round"] for cell in row["rounds"]] == [1, 2, 4]
        metrics = [Run.at(path).metrics for path in row["runs"]]
        for cell in row["rounds"]:
            for name in ("forgetting", "own_accuracy"):
                rows = [overall(frame, name).set_index("round")["value"] for frame in metrics]
                one, two = (values[cell["round"]] for values in rows)
                assert cell[name]["mean"] == pytest.approx((one + two) / 2)
                assert cell[name]["std"] == pytest.approx(abs(one - two) / 2**0.5)
                assert cell[name]["seeds"] == 2
            means = [read_matrix(frame, cell["round"]).mean for frame in metrics]
            assert cell["forgetting"]["mean"] == pytest.approx(sum(means) / 2)


def test_table(command):
    head, ce, wsm, *rest = command("forgetting runs --rounds 4,1,4").out.splitlines()
    facts = command("forgetting runs --rounds 1,4 --json").json["methods"][0]["rounds"]
    assert head.split("  ")[0].strip() == "method"
    assert [head.count(word) for word in ("F, round 1", "F, round 4", "own accuracy, round 4")] == [1, 1, 1]
    spread = facts[1]["forgetting"]
    assert f"{spread['mean']:z.3f} ± {spread['std']:.3f}" in ce
    assert f"{facts[1]['own_accuracy']['mean']:.3f} ± " in ce
    assert wsm.split("  ")[:2] == [" fedavg + wsm", "2"]
    assert rest == ["figure: forgetting.png", "curve:  forgetting-curve.png"]
    assert Path("forgetting.png").is_file()
    assert Path("forgetting-curve.png").is_file()


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_classes(command, suffix):
    ended = command(f"forgetting {only('slow')} --classes -o out/classes.{suffix}")
    assert ended.out.splitlines()[-1] == f"curve:  out/classes-curve.{suffix}"
    assert Path(f"out/classes.{suffix}").is_file()


def test_one_seed_has_no_spread(command, undrawn):
    facts = command("forgetting slow --json").json["methods"]
    assert [cell["forgetting"]["std"] for cell in facts[0]["rounds"]] == [None] * 3
    assert "±" not in command("forgetting slow").out


def test_the_figure_names_method_seed_and_round(command):
    """SVG keeps words in comments."""
    command("forgetting runs --rounds 2 -o figure.svg")
    words = Path("figure.svg").read_text()
    assert "<!-- fedavg + wsm, seed 0, round 2 -->" in words
    drawn = Path("figure-curve.svg").read_text()
    assert "mean forgetting F" in drawn
    assert "mean ± std of 2 seeds" in drawn


def test_side_by_side(command):
    """Forgetting alone, the methods in one row: the figure is wider than high, and has no map of accuracy."""
    command("forgetting runs --rounds 2 --side-by-side -o figure.svg")
    words = Path("figure.svg").read_text()
    for method in ("ce", "wsm"):
        assert f"<!-- fedavg + {method}, seed 0, round 2 -->" in words
    assert "accuracy after local training" not in words
    width, height = (float(words.split(f' {side}="')[1].split("pt")[0]) for side in ("width", "height"))
    assert width > height


def test_methods_of_the_same_name_say_what_differs(command, undrawn):
    rows = command("forgetting runs slow --json").json["methods"]
    assert [row["method"] for row in rows] == [
        "fedavg + ce, local.lr=0.3",
        "fedavg + wsm, local.lr=0.3",
        "fedavg + ce, local.lr=0.1",
    ]


def test_methods_that_differ_in_much_say_what_tells_them_apart(command, undrawn):
    other = {"model.name": "logistic", "rounds": 1, "local.epochs": 2}
    mnemos.run(TINY, other, out="other")
    rows = command("forgetting other slow --json").json["methods"]
    assert [row["method"] for row in rows] == [
        "fedavg + ce, model.name=logistic",
        "fedavg + ce, model.name=mlp",
    ]


def test_engine_and_measured_rounds_make_no_method(command, undrawn):
    """Of the runs with seed 0, the one with fewer rounds is left out."""
    again = mnemos.run(TINY, {"seed": 0, "evaluate.forgetting": [1], "evaluate.every": 1}, out="again")
    ended = command("forgetting again runs --json")
    assert [row["seeds"] for row in ended.json["methods"]] == [[0, 1], [0, 1]]
    assert ended.err.startswith(f"left out: {again.path}: same method, settings and seed as runs/")
    assert [cell["round"] for cell in ended.json["methods"][0]["rounds"]] == [1, 2, 4]


def test_a_run_named_twice_counts_once(command, undrawn):
    rows = command(f"forgetting runs {Path('runs').resolve()} {only('slow')} slow --json").json["methods"]
    assert [row["seeds"] for row in rows] == [[0, 1], [0, 1], [0]]


# --- runs that are shorter ----------------------------------------------------------------------------


def test_a_diverged_run_is_used_as_far_as_it_goes(command):
    (row,) = command("forgetting diverged --json").json["methods"]
    assert [cell["round"] for cell in row["rounds"]] == [1]
    *_, row = command("forgetting slow diverged --json --rounds 1,4").json["methods"]
    assert row["rounds"][1]["forgetting"] == {"mean": None, "std": None, "seeds": 0}
    line = command("forgetting slow diverged --rounds 1,4").out.splitlines()[2]
    assert line.split()[-3:] == ["NC", "NC", "NC"]
    assert row["diverged"] == 1


def test_a_diverged_run_does_not_choose_the_rounds_of_the_others(command, undrawn):
    rows = command("forgetting slow diverged --json").json["methods"]
    assert [cell["round"] for cell in rows[0]["rounds"]] == [1, 2, 4]


def test_a_run_that_diverges_before_anything_is_measured_is_in_the_table(command, undrawn):
    changes = {"local.lr": 1e30, "evaluate.forgetting": [4]}
    with pytest.raises(DivergedError):
        mnemos.run(TINY, changes, out="early")
    *_, row = command("forgetting slow early --json -o figure.png").json["methods"]
    assert (row["diverged"], {cell["forgetting"]["mean"] for cell in row["rounds"]}) == (1, {None})
    assert undrawn["figure.png"] == ["fedavg + ce, local.lr=0.1, seed 0", "1", "2", "4"]  # no empty row


def test_a_seed_that_is_shorter_is_marked(command, undrawn):
    path = next(path for path in Path("runs").iterdir() if "-ce-s1-" in path.name)
    metrics = path / "metrics.jsonl"
    lines = [line for line in metrics.read_text().splitlines() if json.loads(line)["round"] < 3]
    metrics.write_text("\n".join(lines) + "\n")
    assert command("forgetting runs --rounds 1,4").out.splitlines()[1].count("(1 of 2)") == 2
    assert "round 2" in command("forgetting runs").out.splitlines()[0]  # the last all have in common
    assert "round 4" not in command("forgetting runs").out.splitlines()[0]


def test_runs_without_forgetting_are_left_out_where_others_have_it(command, undrawn):
    ended = command("forgetting without slow --json")
    assert len(ended.json["methods"]) == 1
    assert ended.err == "left out: runs without measured forgetting (1 of 2)\n"


def test_cohorts_of_one_have_no_curve(command):
    ended = command("forgetting alone --json")
    (row,) = ended.json["methods"]
    assert ended.json["curve"] is None
    assert row["rounds"][0]["forgetting"]["mean"] is None
    assert row["rounds"][0]["own_accuracy"]["mean"] is not None
    assert command("forgetting alone").out.splitlines()[-1] == "figure: forgetting.png"


# --- what can't be done -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("nowhere", "nowhere: there is no such folder"),
        ("runs nowhere", "nowhere: there is no such folder"),
        ("empty", "empty: there are no runs here"),
        (
            "without",
            "without: forgetting was not measured in any run; "
            "evaluate.forgetting=10 measures it in every tenth round",
        ),
        ("runs --rounds 3", "rounds: forgetting was not measured in round 3; measured: 1, 2, 4"),
        ("runs --rounds 1,-1", "rounds: forgetting was not measured in round -1; measured: 1, 2, 4"),
        ("runs --rounds first", "rounds: found 'first'; expected whole numbers such as 1,100,300"),
        ("runs --rounds ''", "rounds: found ''; expected whole numbers such as 1,100,300"),
        (
            "runs --classes --side-by-side",
            "side-by-side: found --side-by-side with --classes; allowed: one of the two",
        ),
        ("slow third", "the runs measured forgetting in no common round; name some with --rounds"),
        ("runs -o a.txt", "figure: found 'a.txt'; allowed: .pdf, .png, .svg"),
        ("runs -o ''", "figure: found '.'; allowed: .pdf, .png, .svg"),
        ("runs -o .png", "figure: found '.png'; allowed: .pdf, .png, .svg"),
        ("runs -o file/a.png", "figure: found 'file/a.png'; file is not a folder"),
        ("runs -o folder.png", "figure: found 'folder.png', which is a folder; expected a file"),
        ("runs -o a.png", "figure: found 'a-curve.png', which is a folder; expected a file"),
    ],
)
def test_one_sentence(command, line, sentence):
    for folder in ("empty", "folder.png", "a-curve.png"):
        Path(folder).mkdir()
    Path("file").touch()
    assert refused(command, f"forgetting {line}") == sentence


def test_errors_in_json(command):
    ended = command("forgetting nowhere --json", 2)
    assert ended.json["status"] == "error"
    assert ended.json["exit_code"] == 2


def test_a_place_that_cannot_be_written(command, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    sentence = refused(command, "forgetting slow -o a.png")
    assert sentence == "a.png: the figure can't be written (No space left on device)"


def test_damaged_metrics(command):
    metrics = only("slow") / "metrics.jsonl"
    whole = metrics.read_text().splitlines()
    metrics.write_text("\n".join([whole[0], "{", *whole[1:]]) + "\n")
    assert refused(command, "forgetting slow", 3) == f"{metrics}: line 2 is damaged"
    lost = next(place for place, line in enumerate(whole) if "after_accuracy" in line)
    metrics.write_text("\n".join(whole[:lost] + whole[lost + 1 :]) + "\n")
    sentence = refused(command, "forgetting slow", 3)
    assert sentence == f"{metrics.parent}: the forgetting of round 1 is damaged: some of it is missing"
