"""Many runs at once: each once, each like a run of its own, whatever becomes of the others."""

import json
from contextlib import ExitStack

import pytest

import mnemos
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.runs.execute import start
from mnemos.runs.find import find
from mnemos.runs.run import runs_in
from mnemos.studies.pool import StudyView, carry_out, cores_each, jobs_for
from mnemos.studies.study import Case
from support.interrupt import Stop


class Diary(StudyView):
    """Remembers what it was told."""

    def __init__(self):
        self.said = []

    def opened(self, done, left, jobs):
        self.said.append(("opened", len(done), len(left), jobs))

    def started(self, case, run, round):
        self.said.append(("started", case.variant, run.path.name, round))

    def waiting(self, case):
        self.said.append(("waiting", case.variant))

    def warned(self, case, sentence):
        self.said.append(("warned", case.variant))

    def round(self, case, round, accuracy):
        self.said.append(("round", case.variant, round, accuracy))

    def ended(self, result):
        self.said.append(("ended", result.case.variant, result.status))

    def closed(self):
        self.said.append(("closed",))

    def of(self, variant, *what):
        return [entry for entry in self.said if entry[0] in what and entry[1] == variant]


@pytest.fixture(scope="module")
def base():
    return Experiment.parse(
        {
            "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.5},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 0.34,
            "rounds": 4,
            "evaluate": {"every": 2, "test_last": 2},
            "engine": "serial",
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pool")


@pytest.fixture(scope="module")
def cases(base, folder):
    def case(name, **changes):
        return Case(name, base.override({key.replace("__", "."): value for key, value in changes.items()}))

    kills = {"name": "support.unlucky:KillsOnce", "mark": str(folder / "mark")}
    return [
        case("finished"),
        case("begun", local__lr=0.2),
        case("raises", method__loss="support.unlucky:Raises"),
        case("killed", method__loss=kills),
        case("damaged", local__lr=0.3),
        case("diverges", local__lr=1e36),
        case("new", local__lr=0.4),
        case("the same again", local__lr=0.4),
    ]


@pytest.fixture(scope="module")
def whole(cases, tmp_path_factory):
    """What the runs would be in this process, from beginning to end."""
    by_name = {case.variant: case for case in cases}
    elsewhere = tmp_path_factory.mktemp("whole")
    return {name: start(by_name[name].experiment, elsewhere) for name in ("finished", "begun", "new")}


@pytest.fixture(scope="module")
def first(cases, folder, whole):
    """A folder with a finished run, one that was interrupted and one that is damaged; and all cases in it."""
    start(cases[0].experiment, folder)
    for case in (cases[1], cases[4]):
        with pytest.raises(KeyboardInterrupt):
            start(case.experiment, folder, Stop(2))
    for path in find(cases[4].experiment, folder).file("checkpoints").iterdir():
        path.write_bytes(b"nothing")
    before = find(cases[0].experiment, folder).file("status.json").stat().st_mtime_ns
    diary = Diary()
    results = carry_out(cases, folder, jobs=2, view=diary, name="first")
    assert find(cases[0].experiment, folder).file("status.json").stat().st_mtime_ns == before
    return results, diary


@pytest.fixture(scope="module")
def second(first, cases, folder):
    diary = Diary()
    return carry_out(cases, folder, jobs=1, view=diary, name="first"), diary


def test_every_case_has_a_result_in_its_place(first, cases):
    results, diary = first
    assert [result.case for result in results] == cases
    assert [result.status for result in results] == [
        "finished", "finished", "failed", "failed", "failed", "diverged", "finished", "finished"
    ]  # fmt: skip
    assert diary.said[0] == ("opened", 1, 6, 2)
    assert diary.said[-1] == ("closed",)
    assert len([entry for entry in diary.said if entry[0] == "ended"]) == 6


def test_runs_are_those_of_one_process_byte_for_byte(first, whole):
    results, _ = first
    for name, run in whole.items():
        (theirs,) = results.runs[name]
        for file in ("metrics.jsonl", "model.safetensors", "experiment.yaml"):
            assert theirs.file(file).read_bytes() == run.file(file).read_bytes()


def test_failures_are_explained_and_marked(first):
    results, _ = first
    raises, killed, damaged, diverged = results[2:6]
    assert "RuntimeError: out of luck" in raises.message
    assert raises.run.status.status == "failed"
    assert "ended by SIGKILL" in killed.message
    assert killed.run.status.status == "failed"
    assert killed.run.status.message == killed.message
    assert damaged.message.endswith("won't do either)")
    assert "not finite" in diverged.message
    assert [result.case.variant for result in results.failed] == ["raises", "killed", "damaged"]


def test_an_interrupted_run_is_taken_up_where_it_was(first):
    _, diary = first
    assert [entry[3] for entry in diary.of("begun", "started")] == [2]
    assert [entry[2] for entry in diary.of("begun", "round")] == [3, 4]
    assert diary.of("begun", "round")[-1][3] is not None  # its last round is tested
    assert diary.of("finished", "started", "round", "ended") == []


def test_an_experiment_is_run_once_under_two_names(first, folder):
    results, diary = first
    assert results.runs["new"] == results.runs["the same again"]
    assert diary.of("the same again", "started") == []
    assert len(runs_in(folder)) == 7


def test_the_study_is_recorded(first, folder, cases):
    results, _ = first
    recorded = json.loads((folder / "first.study.json").read_text())
    assert recorded["name"] == "first"
    assert list(recorded["variants"]) == [case.variant for case in cases]
    assert recorded["variants"]["new"] == [results.runs["new"][0].path.name]


def test_failed_runs_are_tried_again_and_nothing_else(second, first):
    results, diary = second
    assert diary.said[0] == ("opened", 5, 3, 1)
    assert [entry[1] for entry in diary.said if entry[0] == "ended"] == ["raises", "killed", "damaged"]
    assert [result.status for result in results[2:5]] == ["failed", "finished", "failed"]
    assert results.runs == first[0].runs


def test_what_is_wrong_with_a_case_shows_before_anything_runs(base, tmp_path):
    cases = [Case("good", base), Case("bad", base.override({"model": "lenet"}))]
    with pytest.raises(ConfigError, match="variant 'bad'"):
        carry_out(cases, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


class Impatient(Diary):
    """Presses Ctrl-C in the third round."""

    def round(self, case, round, accuracy):
        if round >= 3:
            raise KeyboardInterrupt


@pytest.mark.usefixtures("forked_workers")
def test_an_interruption_leaves_the_run_saved(base, tmp_path):
    experiment = base.override({"rounds": 100_000, "evaluate.every": 100_000})
    diary = Impatient()
    with pytest.raises(KeyboardInterrupt):
        carry_out([Case("long", experiment)], tmp_path, view=diary, name="long")
    assert diary.said[-1] == ("closed",)
    run = find(experiment, tmp_path)
    assert not run.locked
    assert run.status.status == "interrupted"
    assert run.saved_rounds >= 3
    recorded = json.loads((tmp_path / "long.study.json").read_text())
    assert recorded["variants"] == {"long": [run.path.name]}


@pytest.mark.usefixtures("forked_workers")
def test_a_record_that_cannot_be_written_costs_no_run(base, tmp_path):
    (tmp_path / "taken.study.json").mkdir()
    diary = Diary()
    with pytest.raises(ConfigError, match=r"taken\.study\.json: it can't be written"):
        carry_out([Case("one", base)], tmp_path, view=diary, name="taken")
    assert [entry[0] for entry in diary.said[-2:]] == ["ended", "closed"]
    assert find(base, tmp_path).ended


class Patient(Diary):
    """Lets go of a lock as soon as it hears that someone waits for it."""

    def __init__(self, run):
        super().__init__()
        self._stack = ExitStack()
        self._stack.enter_context(run.lock())

    def waiting(self, case):
        super().waiting(case)
        self._stack.close()


@pytest.mark.usefixtures("forked_workers")
def test_a_run_that_someone_else_has_is_waited_for(base, tmp_path):
    study = {"base": base.model_dump(mode="json"), "grid": {"local.lr": [0.1, 0.2]}, "seeds": [0, 1]}
    theirs = base.override({"local.lr": 0.1, "seed": 3})
    with pytest.raises(KeyboardInterrupt):
        start(theirs, tmp_path, Stop(1))
    run = find(theirs, tmp_path)
    diary = Patient(run)
    results = mnemos.sweep(study, out=tmp_path, jobs=1, seeds=[3], view=diary)
    assert results.failed == []
    assert list(results.runs) == ["lr=0.1", "lr=0.2"]
    assert results.runs["lr=0.1"] == [run]
    assert [len(results.accuracies(name)) for name in results.runs] == [1, 1]
    order = [entry[:2] for entry in diary.said if entry[0] in {"waiting", "started"}]
    assert order == [("waiting", "lr=0.1"), ("started", "lr=0.2"), ("started", "lr=0.1")]
    assert (tmp_path / "study.study.json").is_file()


def test_as_many_as_there_are_cores(base, monkeypatch):
    monkeypatch.setenv("MNEMOS_CORES", "4")
    cases = [Case("a", base.override({"seed": seed})) for seed in range(9)]
    assert [jobs_for(cases[:left]) for left in (0, 1, 3, 9)] == [1, 1, 3, 4]
    assert [jobs_for(cases, jobs) for jobs in (1, 4, 20)] == [1, 4, 9]
    assert [cores_each(jobs) for jobs in (1, 2, 3, 9)] == [4, 2, 1, 1]
    with pytest.raises(ConfigError, match="jobs: found 0"):
        jobs_for(cases, 0)
