"""What the commands do when all goes well, what they say, and the same from Python.

Commands run in this process, in a folder of their own; experiments take a fraction of a second.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

import mnemos
from mnemos.cli.app import COMMANDS
from mnemos.cli.app import load as load_command
from mnemos.data.augment import normalise
from mnemos.data.load import load
from mnemos.errors import DivergedError
from mnemos.experiment.experiment import Experiment, load_experiment
from mnemos.experiment.overrides import parse_yaml
from mnemos.runs import run as run_module
from mnemos.runs.store import COLUMNS
from mnemos.studies.study import Study
from mnemos.version import __version__

with warnings.catch_warnings():
    # Typer 0.20 takes names from click that the newest click warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mnemos.display import terminal as terminal_module

TINY = (
    "partition.clients=12 partition.alpha=0.5 'model.hidden=[8]' participation=0.34 rounds=4 "
    "local.lr=0.3 evaluate.every=2 evaluate.test_last=2 engine=serial"
)
DIVERGING = "local.lr=1e36"
DIVERGED = 4

COMPARISON = """
base:
  partition: {clients: 12, alpha: 0.5}
  model: {hidden: [8]}
  participation: 0.34
  rounds: 2
  evaluate: {every: 1}
  engine: serial
variants:
  slow: {local.lr: 1e-3}
  fast: {local.lr: 0.5}
seeds: [0, 1]
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # `main` does so too; this puts it back
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_experiment):
    """A run of four rounds, to be copied."""
    return mnemos.run(tiny_experiment, out=tmp_path_factory.mktemp("finished")).path


@pytest.fixture(scope="module")
def tiny_experiment() -> Experiment:
    words = dict(word.split("=", 1) for word in shlex.split(TINY))
    return load_experiment({}, {name: parse_yaml(value) for name, value in words.items()})


@pytest.fixture
def earlier(finished):
    """A copy of the finished run in the working folder."""
    path = Path("runs") / finished.name
    shutil.copytree(finished, path)
    return path


# --- run ----------------------------------------------------------------------------------------------


def test_run_with_json_says_one_object_and_progress_elsewhere(command, finished):
    ended = command(f"run {TINY} --json")
    assert set(ended.json) == {"run", "status", "rounds", "accuracy", "left_out", "repeated"}
    assert (ended.json["status"], ended.json["rounds"]) == ("finished", 4)
    assert ended.json["run"] == f"runs/{finished.name}"
    assert ended.json["accuracy"] == mnemos.Run.at(finished).accuracy
    first, *lines = ended.err.splitlines()
    assert first == f"runs/{finished.name} (from round 1 of 4)"
    assert lines[0].startswith("engine serial")
    assert [line.split(",")[0] for line in lines[1:]] == ["round 2/4", "round 4/4"]
    assert re.fullmatch(
        r"round 4/4, loss \d+\.\d+, validation \d+\.\d %, test \d+\.\d %, \d+ s left", lines[2]
    )


def test_run_says_what_was_reached_where_it_is_and_what_next(command, finished):
    lines = command(f"run {TINY} --out here/there").out.splitlines()
    accuracy = mnemos.Run.at(finished).accuracy
    path = f"here/there/{finished.name}"
    assert lines[0] == f"{100 * accuracy:.1f} % accuracy after 4 rounds, mean of the last 2 rounds"
    assert lines[1] == f"files: {path}"
    assert Path(path, "model.safetensors").is_file()
    advice = [line.removeprefix("next:").strip().split("   ")[0] for line in lines[2:]]
    assert advice == [f"mnemos resume {path} --rounds 8", "mnemos runs here/there"]
    for line in advice:  # what is advised works
        command(line.removeprefix("mnemos "))
    assert mnemos.Run.at(path).status.rounds == 8


def test_where_forgetting_was_measured_the_next_command_draws_it(command):
    lines = command(f"run {TINY} partition.validation=0.2 evaluate.forgetting=[1]").out.splitlines()
    (path,) = Path("runs").iterdir()
    advice = [line.removeprefix("next:").strip().split("   ")[0] for line in lines[2:]]
    assert advice == [f"mnemos forgetting {path}", f"mnemos resume {path} --rounds 8", "mnemos runs"]
    for line in advice[::2]:
        command(line.removeprefix("mnemos "))
    assert Path("forgetting.png").is_file()


def test_a_run_that_cannot_be_made_longer_is_not_advised_to(command):
    out = command(f"run {TINY} stream=tasks stream.tasks=2").out
    assert "next:  mnemos report runs/" in out
    assert "mnemos resume" not in out


def test_run_does_not_speak_of_more_rounds_than_there_were(command):
    assert "last 10 rounds" not in command(f"run {TINY} evaluate.test_last=10 --quiet").out


def test_quiet_says_no_progress(command):
    ended = command(f"run {TINY} --quiet --json")
    assert ended.err == ""
    assert ended.json["status"] == "finished"
    assert command(f"resume {ended.json['run']} --rounds 5 --quiet --json").err == ""


def test_a_run_s_directory_has_the_documented_files(finished):
    documented = re.findall(r"^([\w./]+)  +\S", run_module.__doc__, re.MULTILINE)
    assert {"experiment.yaml", "metrics.jsonl", "status.json", "model.safetensors"} < set(documented)
    found = {f"{path.name}/" if path.is_dir() else path.name for path in finished.iterdir()}
    # Of runs that start from an encoder, that promise something about clients' data, or that are branches.
    others = {"start.json", "privacy.json", "releases", "parent.json"}
    assert found - {".lock"} == set(documented) - others

    environment = json.loads((finished / "environment.json").read_text())
    assert environment["mnemos"] == __version__
    assert json.loads((finished / "engine.json").read_text())["engine"]["name"] == "serial"
    seconds = [json.loads(line) for line in (finished / "timing.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in seconds] == [1, 2, 3, 4]
    checkpoints = sorted(path.name for path in (finished / "checkpoints").iterdir())
    assert checkpoints[-2:] == ["round-00000003.safetensors", "round-00000004.safetensors"]


def test_the_written_experiment_is_the_one_that_was_asked_for(finished, tiny_experiment):
    assert load_experiment(finished / "experiment.yaml") == tiny_experiment
    assert finished.name == f"digits-fedavg-ce-s0-{tiny_experiment.hash()}"


def test_the_same_experiment_twice_gives_the_same_bytes_in_two_directories(command, finished):
    runs = [Path(command(f"run {TINY} --quiet --json").json["run"]) for _ in range(2)]
    assert [path.name for path in runs] == [finished.name, f"{finished.name}-2"]
    for name in ("metrics.jsonl", "model.safetensors", "experiment.yaml"):
        assert {(path / name).read_bytes() for path in runs} == {(finished / name).read_bytes()}


def test_options_of_run_are_short_for_overrides(command):
    ended = command(
        "run --data digits --model logistic --method fedavg --loss ce --rounds 1 --clients 20 --alpha 2 "
        "--engine serial --seed 3 -o elsewhere --json -q"
    )
    assert mnemos.Run.at(ended.json["run"]).experiment == load_experiment(
        {},
        {
            "model": "logistic",
            "rounds": 1,
            "partition": {"clients": 20, "alpha": 2},
            "engine": "serial",
            "seed": 3,
        },
    )
    assert ended.json["run"].startswith("elsewhere/digits-fedavg-ce-s3-")


def test_a_recipe_with_options_and_overrides(command):
    """Overrides win over options, and these over the recipe."""
    Path("recipe.yaml").write_text(
        "model: {name: mlp, hidden: [8]}\npartition: {name: dirichlet, clients: 12, alpha: 0.5}\n"
        "participation: 0.34\nrounds: 9\nlocal: {lr: 1e-4, batch: 8}\nengine: serial\n"
    )
    ended = command("run recipe.yaml --rounds 1 --clients 6 partition.clients=8 local.lr=1e-2 -q --json")
    experiment = mnemos.Run.at(ended.json["run"]).experiment
    assert (experiment.rounds, experiment.partition.clients, experiment.partition.alpha) == (1, 8, 0.5)
    assert (experiment.local.lr, experiment.local.batch) == (0.01, 8)


def test_version_and_help(command):
    assert command("--version").out == f"mnemos {__version__}\n"
    overview = command("--help").out
    for name, words in COMMANDS.items():
        assert f" {name} " in overview
        assert f"mnemos {name}" in command(f"{name} --help").out
        assert load_command(name).help.replace("\n", " ").startswith(words.rstrip("."))


def test_help_does_not_wait_for_pytorch():
    code = "import sys, mnemos.cli\ntry:\n mnemos.cli.main()\nfinally:\n print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert "forgetting" in ended.stdout
    assert ended.stdout.endswith("False\n")


def test_a_plain_run_imports_nothing_that_it_does_not_need(tmp_path):
    """PyTorch's compiler takes as long to import as PyTorch itself, the data frames a third of it.

    Of Mnemos, a run imports the parts that it names, and not all parts of their kinds.
    """
    heavy = ("torch._dynamo", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib", "ray", "flwr", "PIL")
    parts = (
        "data.sources.folder",
        "methods.presets.scaffold",
        "models.resnet",
        "engines.flower",
        "engines.ray",
    )
    others = (
        *heavy,
        *(f"mnemos.{name}" for name in (*parts, "pretrain.train", "studies.pool", "deployment")),
    )
    code = (
        "import sys, mnemos.cli\ntry:\n mnemos.cli.main()\n"
        f"finally:\n print([name for name in {others} if name in sys.modules])"
    )
    words = f"run --data digits --rounds 1 --out {tmp_path} --quiet".split()
    environment = {**os.environ, "MNEMOS_CACHE": str(tmp_path)}  # no engine is remembered: `vmap` is tried
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, env=environment
    )
    assert "accuracy after 1 round" in ended.stdout
    assert ended.stdout.endswith("[]\n")


# --- runs ---------------------------------------------------------------------------------------------


def test_runs_lists_what_there_is(command, earlier):
    accuracy = mnemos.Run.at(earlier).accuracy
    header, row = command("runs").out.splitlines()
    assert header.split() == ["run", "status", "rounds", "accuracy"]
    assert row.split() == [str(earlier), "finished", "4", f"{100 * accuracy:.1f}", "%"]
    (fact,) = command("runs --json").json["runs"]
    assert fact == {"run": str(earlier), "status": "finished", "rounds": 4, "accuracy": accuracy}


def test_runs_of_an_empty_folder(command):
    Path("runs").mkdir()
    assert command("runs").out == "no runs in runs\n"
    assert command("runs --json").json == {"runs": []}


def test_runs_does_not_cut_a_path_short(command, earlier):
    far = Path("a-folder-with-a-rather-long-name/and-another-one-below-it-that-is-not-short-either")
    shutil.copytree(earlier, far / earlier.name)
    assert str(far / earlier.name) in command(f"runs {far}").out


def test_runs_shows_square_brackets(command, earlier):
    shutil.copytree(earlier, Path("o[b]x", "one"))
    assert "o[b]x/one" in command("runs o[b]x").out


# --- resume -------------------------------------------------------------------------------------------


def test_resume_goes_on_to_the_same_model_as_without_a_stop(command, earlier):
    ended = command(f"resume {earlier} --rounds 6 --json")
    assert (ended.json["run"], ended.json["status"], ended.json["rounds"]) == (str(earlier), "finished", 6)
    assert ended.err.startswith(f"{earlier} (from round 5 of 6)\n")
    whole = Path(command(f"run {TINY} rounds=6 -q --json").json["run"])
    assert (earlier / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (earlier / "experiment.yaml").read_bytes() == (whole / "experiment.yaml").read_bytes()
    assert mnemos.Run.at(earlier).accuracy == mnemos.Run.at(whole).accuracy
    assert mnemos.Run.at(earlier).metrics["round"].unique().tolist() == [1, 2, 3, 4, 5, 6]


def test_resume_of_a_finished_run_changes_nothing(command, earlier):
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    lines = command(f"resume {earlier}").out.splitlines()
    assert "accuracy after 4 rounds" in lines[0]
    assert lines[1] == f"files: {earlier}"
    assert {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()} == before


# --- partition ----------------------------------------------------------------------------------------

PNG, PDF = b"\x89PNG", b"%PDF"


def test_partition_draws_and_summarises(command):
    ended = command("partition digits --clients 10 --alpha 0.5")
    title, *rows, last = ended.out.splitlines()
    assert title.strip() == "digits, dirichlet"
    summary = dict(re.split(r" {2,}", row.strip()) for row in rows)
    assert summary["clients"] == "10"
    assert summary["samples"] == "1430"
    assert 0 < float(summary["distance mean"]) < 1
    assert last == "figure: partition.png"
    assert Path("partition.png").read_bytes().startswith(PNG)
    assert ended.err == ""


def test_partition_with_json(command):
    facts = command("partition -n iid --clients 7 --seed 2 -o figures/who.pdf --show 3 --json").json
    assert facts["status"] == "finished"
    assert facts["partition"] == {"name": "iid", "clients": 7, "validation": 0.1}
    assert (facts["clients"], facts["samples"], facts["left_out"]) == (7, 1438, 0)
    assert (facts["size_min"], facts["size_max"]) == (205, 206)
    assert facts["figure"] == "figures/who.pdf"
    assert Path("figures/who.pdf").read_bytes().startswith(PDF)


def test_partition_of_a_recipe(command):
    Path("recipe.yaml").write_text("partition: {clients: 12, alpha: 0.5}\nseed: 4\n")
    facts = command("partition recipe.yaml partition.alpha=1e-3 --figure who.svg --json").json
    assert facts["partition"] == {"name": "dirichlet", "clients": 12, "validation": 0.1, "alpha": 0.001}
    assert Path("who.svg").read_text().startswith("<?xml")


# --- compare ------------------------------------------------------------------------------------------


@pytest.fixture
def comparison():
    path = Path("learning-rates.yaml")
    path.write_text(COMPARISON)
    return path


def modified() -> dict[str, int]:
    """When each file and folder of the runs was changed, apart from locks, which looking takes."""
    found = {str(path): path.stat().st_mtime_ns for path in Path("runs").rglob("*") if path.name != ".lock"}
    return {path: when for path, when in found.items() if "digits" in path}


def test_compare_prints_a_table_draws_and_runs_nothing_twice(command, comparison):
    ended = command(f"compare {comparison}")
    header, slow, fast, figure, files = ended.out.splitlines()
    assert re.split(r" {2,}", header.strip()) == [
        "variant",
        "test accuracy (mean ± std)",
        "best",
        "worst",
        "seeds",
    ]
    for name, row in (("slow", slow), ("fast", fast)):
        cells = re.split(r" {2,}", row.strip())
        assert (cells[0], cells[4]) == (name, "2")
        assert re.fullmatch(r"\d+\.\d ± \d+\.\d %", cells[1])
    assert (figure, files) == ("figure: runs/learning-rates.png", "files:  runs")
    assert Path("runs/learning-rates.png").read_bytes().startswith(PNG)
    said = [line.split(":")[0] for line in ended.err.splitlines()]
    assert list(dict.fromkeys(said)) == ["slow, seed 0", "slow, seed 1", "fast, seed 0", "fast, seed 1"]

    before = modified()
    assert len([path for path in before if Path(path).parent == Path("runs")]) == 4
    again = command(f"compare {comparison}")
    assert modified() == before
    assert again.out == ended.out
    assert again.err == ""


def test_compare_with_json(command, comparison):
    """Of two values a and b the mean is (a + b) / 2 and the sample deviation |a − b| / √2."""
    facts = command(f"compare {comparison} --figure curves.svg --json").json
    assert (facts["status"], facts["figure"]) == ("finished", "curves.svg")
    assert Path("curves.svg").is_file()
    assert [row["variant"] for row in facts["variants"]] == ["slow", "fast"]
    for row in facts["variants"]:
        one, two = (run["accuracy"] for run in row["runs"])
        assert row["mean"] == pytest.approx((one + two) / 2)
        assert row["std"] == pytest.approx(abs(one - two) / 2**0.5)
        assert (row["best"], row["worst"]) == (max(one, two), min(one, two))
        assert row["diverged"] == 0
        assert [mnemos.Run.at(run["run"]).experiment.seed for run in row["runs"]] == [0, 1]


def test_compare_with_other_seeds_and_overrides(command, comparison):
    """Overrides change the base, so a variant's own settings win."""
    facts = command(f"compare {comparison} rounds=1 local.lr=9 --seeds 5 -o out -q --json").json
    for row, lr in zip(facts["variants"], (1e-3, 0.5), strict=True):
        (run,) = (mnemos.Run.at(entry["run"]) for entry in row["runs"])
        assert (run.experiment.seed, run.experiment.rounds, run.experiment.local.lr) == (5, 1, lr)
        assert row["std"] is None
        assert row["mean"] == run.accuracy


def test_compare_goes_on_with_what_is_interrupted(command, comparison):
    line = f"compare {comparison} --seeds 0 -q --json"
    first = command(line).json
    run = Path(first["variants"][1]["runs"][0]["run"])
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "status": "running", "rounds": 1}))
    (run / "checkpoints/round-00000002.safetensors").unlink()
    before = modified()
    assert command(line).json == first
    changed = {path for path, when in modified().items() if before.get(path) != when}
    assert changed
    assert all(path.startswith(str(run)) for path in changed)


def test_compare_keeps_runs_that_diverge_apart(command, comparison):
    comparison.write_text(COMPARISON.replace("0.5}\nseeds", "1e36}\nseeds"))
    ended = command(f"compare {comparison} -q")
    assert re.search(r"slow +\d+\.\d ± \d+\.\d %", ended.out)
    assert re.search(r"fast +NC +– +– +2", ended.out)
    before = modified()
    rows = command(f"compare {comparison} -q --json").json["variants"]
    assert modified() == before
    assert (rows[1]["diverged"], rows[1]["mean"], rows[1]["std"]) == (2, None, None)
    assert [run["status"] for run in rows[1]["runs"]] == ["diverged", "diverged"]


@pytest.mark.parametrize("name", ["plain [x]", "plain [/x]"])
def test_compare_shows_square_brackets(command, comparison, name):
    comparison.write_text(COMPARISON.replace("slow:", f'"{name}":'))
    assert name in command(f"compare {comparison} rounds=1 --seeds 0 -q").out


def test_compare_draws_dollar_signs(command, comparison):
    comparison.write_text(COMPARISON.replace("slow:", r"'cost $\x$':"))
    assert "cost" in command(f"compare {comparison} rounds=1 --seeds 0 -q").out


def test_the_recipes_that_come_with_mnemos_are_valid():
    recipes = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
    assert recipes
    for recipe in recipes:
        assert Study.read(recipe).cases()


# --- divergence ---------------------------------------------------------------------------------------


def test_a_run_that_diverges_ends_with_its_own_exit_code(command):
    ended = command(f"run {TINY} {DIVERGING} --json", DIVERGED)
    answer = ended.json
    assert (answer["status"], answer["accuracy"], answer["exit_code"]) == ("diverged", None, DIVERGED)
    assert ended.err.splitlines()[-1] == (
        "error: round 1: what clients send is not finite any more; a smaller local.lr may help"
    )
    run = Path(answer["run"])
    assert not (run / "model.safetensors").exists()

    (fact,) = command("runs --json").json["runs"]
    assert (fact["run"], fact["status"]) == (str(run), "diverged")
    assert "diverged" in command("runs").out

    again = command(f"resume {run} --json", DIVERGED)
    assert again.json == answer
    assert again.err.splitlines()[-1] == ended.err.splitlines()[-1]


def test_a_run_that_diverges_later_keeps_what_was_finished(command):
    """A learning rate of 10¹² gives finite weights for one round."""
    ended = command(f"run {TINY} evaluate.every=1 local.lr=1e12 --json -q", DIVERGED)
    run = mnemos.Run.at(ended.json["run"])
    kept = run.metrics
    assert kept["round"].max() >= 1
    assert f"round {kept['round'].max() + 1}:" in ended.err
    assert command(f"resume {run.path} -q --json", DIVERGED).json == ended.json
    assert run.metrics.equals(kept)


def test_a_diverged_run_counts_its_finished_rounds(command):
    answer = command(f"run {TINY} {DIVERGING} --json -q", DIVERGED).json
    assert answer["rounds"] == 0


def test_plain_divergence_is_one_sentence(command):
    ended = command(f"run {TINY} {DIVERGING} -q", DIVERGED)
    assert ended.out == ""
    (line,) = ended.err.splitlines()
    assert line.startswith("error: round 1: ")


# --- a terminal ---------------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch):
    """Progress goes to a terminal; what it shows, without colours and movements."""
    shown = io.StringIO()
    monkeypatch.setattr(terminal_module, "errors", Console(force_terminal=True, width=150, file=shown))
    return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())


def test_a_progress_bar_on_a_terminal(command, terminal):
    ended = command(f"run {TINY} --json")
    name = Path(ended.json["run"]).name
    text = terminal()
    assert name in text
    assert "engine serial" in text
    assert "4/4" in text
    assert re.search(r"loss \d\.\d+  validation \d+\.\d %  test \d+\.\d %", text)
    command(f"resume {ended.json['run']} --rounds 5")
    assert "5/5" in terminal()


def test_a_progress_bar_for_every_run_of_a_comparison(command, terminal, comparison):
    command(f"compare {comparison} rounds=1")
    for label in ("slow, seed 0", "slow, seed 1", "fast, seed 0", "fast, seed 1"):
        assert label in terminal()


def test_a_progress_bar_of_a_run_that_diverges(command, terminal):
    ended = command(f"run {TINY} {DIVERGING} --json", DIVERGED)
    assert ended.json["status"] == "diverged"
    assert "0/4" in terminal()
    assert terminal().endswith("\n")


def test_no_progress_bar_where_it_is_not_wanted(command, terminal):
    command(f"run {TINY} --quiet")
    assert terminal() == ""


# --- from Python --------------------------------------------------------------------------------------


def test_run_from_python(tiny_experiment, finished):
    run = mnemos.run(tiny_experiment)
    assert run.path == Path("runs") / finished.name
    assert run.status == mnemos.Run.at(finished).status
    assert run.experiment == tiny_experiment
    metrics = run.metrics
    assert list(metrics.columns) == COLUMNS
    assert COLUMNS == ["round", "client", "model", "task", "class", "layer", "name", "value"]
    assert metrics["value"].notna().all()
    overall = metrics[metrics["client"].isna()]
    tested = overall[overall["name"] == "test_accuracy"]
    assert tested["round"].tolist() == [3, 4]
    assert tested["value"].nunique() == 2
    assert run.accuracy == pytest.approx(tested["value"].mean())
    assert overall[overall["name"] == "validation_accuracy"]["round"].tolist() == [2, 4]
    losses = metrics[(metrics["name"] == "train_loss") & metrics["client"].notna()]
    assert losses.groupby("round").size().tolist() == [4, 4, 4, 4]


def test_the_model_has_the_accuracy_of_its_run(tiny_experiment):
    run = mnemos.run(tiny_experiment, {"evaluate.test_last": 1, "local.epochs": 3})
    model = run.model()
    assert isinstance(model, nn.Module)
    assert not model.training
    data = load(run.experiment.data)
    x = normalise(data.test.samples, torch.tensor(data.mean), torch.tensor(data.std))
    with torch.no_grad():
        right = (model(x).argmax(1) == data.test.labels).double().mean()
    assert float(right) == pytest.approx(run.accuracy, abs=1e-12)


def test_run_from_a_file_or_a_mapping(tiny_experiment):
    Path("recipe.yaml").write_text(tiny_experiment.to_yaml())
    options = parse_yaml(tiny_experiment.to_yaml())
    changes = {"rounds": 1, "local.lr": 0.5}
    runs = [
        mnemos.run(source, changes, out=Path("out") / name)
        for name, source in {"file": "recipe.yaml", "path": Path("recipe.yaml"), "options": options}.items()
    ]
    assert {run.path.parent.name for run in runs} == {"file", "path", "options"}
    assert {run.experiment.hash() for run in runs} == {tiny_experiment.override(changes).hash()}
    assert len({run.file("metrics.jsonl").read_bytes() for run in runs}) == 1


def test_resume_from_python(earlier):
    run = mnemos.resume(str(earlier), rounds=5)
    assert run.path == earlier
    assert (run.status.status, run.status.rounds, run.experiment.rounds) == ("finished", 5, 5)


def test_divergence_from_python(tiny_experiment):
    with pytest.raises(DivergedError, match="round 1"):
        mnemos.run(tiny_experiment, {"local.lr": 1e36})


def test_compare_from_python(comparison):
    compared = mnemos.compare(comparison, {"rounds": 1}, out="out")
    assert list(compared.runs) == ["slow", "fast"]
    for name, runs in compared.runs.items():
        assert [run.experiment.seed for run in runs] == [0, 1]
        assert {run.experiment.rounds for run in runs} == {1}
        assert compared.accuracies(name) == [run.accuracy for run in runs]
        assert compared.diverged(name) == 0
    mapping = parse_yaml(COMPARISON.replace("rounds: 2", "rounds: 1"))
    again = mnemos.compare(mapping, out="out")
    assert again == compared


def test_compare_from_a_mapping_with_changes():
    compared = mnemos.compare(parse_yaml(COMPARISON), {"rounds": 1})
    assert {run.experiment.rounds for runs in compared.runs.values() for run in runs} == {1}


# --- too few clients ----------------------------------------------------------------------------------


PAUSING = "'faults=[{name: drop-outs, rate: 1.0}]'"
PAUSED = 5


def test_a_run_without_clients_pauses_with_its_own_exit_code(command):
    ended = command(f"run {TINY} {PAUSING} --json", PAUSED)
    answer = ended.json
    assert (answer["status"], answer["rounds"], answer["exit_code"]) == ("paused", 0, PAUSED)
    assert ended.err.splitlines()[-1] == (
        "error: round 1 came to too few updates in 3 attempts (min_clients is 1): 12 dropped; "
        f"'mnemos resume {answer['run']}' continues it"
    )
    again = command(f"resume {answer['run']}", PAUSED)
    assert "in 6 attempts" in again.err
    (fact,) = command("runs --json").json["runs"]
    assert fact["status"] == "paused"
    assert "paused" in command("runs").out
    assert "paused" in command("watch --once").out


def test_a_study_says_which_run_has_paused(command, comparison):
    """`compare` ends with it, like with everything that goes wrong; `sweep` goes on with the others."""
    comparison.write_text(COMPARISON.replace("{local.lr: 1e-3}", "{faults: [{name: drop-outs, rate: 1}]}"))
    ended = command(f"compare {comparison} --seeds 0 --json -q", PAUSED)
    assert (ended.json["status"], ended.json["exit_code"]) == ("paused", PAUSED)
    ended = command(f"sweep {comparison} --seeds 0 --jobs 1 --json -q", 1)
    slow, fast = ended.json["variants"]
    assert (slow["failed"], slow["mean"], fast["failed"]) == (1, None, 0)
    assert slow["runs"][0]["status"] == "paused"


def test_who_was_left_out_is_said_at_the_end(command):
    drops = "'faults=[{name: drop-outs, rate: 0.3}]'"
    said = command(f"run {TINY} {drops} -q").out
    (line,) = (line for line in said.splitlines() if line.startswith("left out"))
    assert re.fullmatch(r"left out: \d+ dropped, in \d rounds?", line)
    answer = command(f"run {TINY} {drops} seed=1 -q --json").json
    assert answer["left_out"]["dropped"] > 0
    assert answer["repeated"] == 0
    assert "left out" not in command(f"run {TINY} -q").out


PRIVATE = "privacy=gaussian privacy.noise=2 method.weighting=uniform selection=poisson"


def test_what_is_promised_about_clients_is_said_at_the_end(command) -> None:
    ended = command(f"run {TINY} {PRIVATE}")
    promise = re.search(
        r"^privacy: ε = ([\d.]+) at δ = 1e-05 \(a client takes part or sends nothing\)$", ended.out, re.M
    )
    assert promise
    (run,) = Path("runs").iterdir()
    assert float(promise[1]) == pytest.approx(mnemos.Run.at(run).epsilon, rel=1e-3)
    assert "       noise 2, added by server; each of 12 clients with probability 0.3333\n" in ended.out


def test_a_budget_ends_a_run_and_says_so(command) -> None:
    ended = command(f"run {TINY} {PRIVATE} privacy.budget=1.9 rounds=40")
    assert "warning: the privacy budget, ε = 1.9 at δ = 1e-05, allows " in ended.err
    (sentence,) = re.findall(r"^ {7}(the privacy budget.*)$", ended.out, re.M)
    assert sentence in ended.err
    assert "resume" not in ended.out
    (run,) = Path("runs").iterdir()
    facts = command(f"resume {run} --json").json
    promise = facts["privacy"]
    assert facts["status"] == "finished"
    assert promise["epsilon"] <= promise["budget"] == 1.9
    assert (promise["delta"], promise["rounds"], promise["asked"]) == (1e-5, facts["rounds"], 40)


def test_a_budget_that_allows_nothing_makes_no_run(command) -> None:
    ended = command(f"run {TINY} {PRIVATE} privacy.budget=0.01", 2)
    assert ended.err.startswith("error: privacy.budget: found 0.01, which allows no round")
    assert not Path("runs").exists()
