import math
from typing import ClassVar

import pytest
from stories import HOLE, REPEATED, expected, interrupted

import mnemos
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.measures.measure import Measure, Record
from mnemos.runs.execute import Silent
from mnemos.track.observe import check, observe
from mnemos.track.sink import Sink, parameters
from support.interrupt import Stop


class Memory(Sink):
    """A sink that remembers, and has its rounds up to `known` from earlier."""

    known: int = 0
    seen: ClassVar[dict[int, dict[str, float]]] = {}
    ends: ClassVar[list[str]] = []
    twice: ClassVar[list[int]] = []

    def open(self, run, round):
        return self

    @property
    def reached(self):
        return self.known

    def log(self, rounds):
        self.twice.extend(self.seen.keys() & rounds.keys())
        self.seen.update(rounds)

    def close(self, status):
        self.ends.append(status.status)


class Broken(Memory):
    """A sink that fails at one of its calls."""

    at: str
    calls: ClassVar[list[str]] = []

    def open(self, run, round):
        return self._call("open") or self

    def log(self, rounds):
        self._call("log")

    def close(self, status):
        self._call("close")

    def _call(self, name):
        self.calls.append(name)
        if name == self.at:
            raise OSError("the cable is gone\nand more that nobody wants to read")


class Odd(Measure):
    """Measures something that isn't a number."""

    def records(self, moment):
        yield Record(moment.round, "odd", math.nan)


class Listener(Silent):
    """Remembers what it was told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def warned(self, sentence):
        self.told.append(sentence)

    def engine(self, runner):
        self.told.append("engine")

    def round(self, outcome):
        self.told.append(outcome.round)

    def ended(self, run, status):
        self.told.append(status.status)


@pytest.fixture(autouse=True)
def _fresh():
    Memory.seen.clear()
    Memory.ends.clear()
    Memory.twice.clear()
    Broken.calls.clear()


def by_name():
    """{name: {round: value}} of what the sink has."""
    names = {name for values in Memory.seen.values() for name in values}
    return {
        name: {number: values[name] for number, values in Memory.seen.items() if name in values}
        for name in names
    }


def test_a_sink_gets_every_round_and_the_end(tiny, tmp_path):
    listener = Listener()
    run = mnemos.run(tiny, out=tmp_path, observer=listener, track=["test_observe:Memory"])
    assert list(Memory.seen) == [1, 2, 3, 4]
    assert by_name() == expected(run)
    assert {"train_loss", "validation_accuracy", "test_loss"} <= set(by_name())
    assert Memory.ends == ["finished"]
    assert listener.run == run
    assert listener.told == ["engine", 1, 2, 3, 4, "finished"]


def test_numbers_of_single_clients_and_nan_stay_at_home(tiny, tmp_path):
    measures = ["client-accuracy", "class-accuracy", "test_observe:Odd"]
    run = mnemos.run({**tiny, "measures": measures}, out=tmp_path, track=["test_observe:Memory"])
    assert "odd" in set(run.metrics["name"])
    assert "odd" not in by_name()
    assert "validation_class_accuracy" not in by_name()


@pytest.mark.parametrize("story", [HOLE, REPEATED])
def test_after_a_resume_a_sink_that_keeps_its_rounds_has_each_once(tiny, tmp_path, story):
    run = interrupted(tiny, tmp_path, ["test_observe:Memory"], **story)
    known = max(Memory.seen)
    assert (run.saved_rounds > known) == (story is HOLE)
    run = mnemos.resume(run.path, track=[f"test_observe:Memory:known={known}"])
    assert by_name() == expected(run)
    assert sorted(Memory.seen) == [1, 2, 3, 4]
    assert Memory.twice == []
    assert Memory.ends == ["interrupted", "finished"]


def test_tracking_may_begin_with_a_finished_run(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path)
    run = mnemos.resume(run.path, track=["test_observe:Memory"])
    assert by_name() == expected(run)
    assert Memory.ends == ["finished"]


@pytest.mark.parametrize(
    ("at", "calls"),
    [("open", ["open"]), ("log", ["open", "log"]), ("close", ["open", *["log"] * 4, "close"])],
)
def test_a_sink_that_fails_is_off_and_the_run_goes_on(tiny, tmp_path, at, calls):
    listener = Listener()
    track = [f"test_observe:Broken:at={at}", "test_observe:Memory"]
    run = mnemos.run(tiny, out=tmp_path / "tracked", observer=listener, track=track)
    plain = mnemos.run(tiny, out=tmp_path / "plain")
    assert run.status == plain.status
    for name in ("metrics.jsonl", "model.safetensors", "experiment.yaml"):
        assert run.file(name).read_bytes() == plain.file(name).read_bytes()
    (warning,) = [word for word in listener.told if "tracking" in str(word)]
    assert "test_observe:Broken is off (OSError: the cable is gone);" in warning
    assert Broken.calls == calls
    assert by_name() == expected(run)


def test_without_an_observer_a_lost_sink_is_a_warning(tiny, tmp_path):
    with pytest.warns(UserWarning, match="the cable is gone"):
        run = mnemos.run(tiny, out=tmp_path, track=["test_observe:Broken:at=log"])
    assert run.status.status == "finished"


def test_a_password_in_an_address_is_not_told(tiny, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("API request to https://me:secret@example.org/api failed")

    monkeypatch.setattr(Memory, "open", fail)
    with pytest.warns(UserWarning, match=r"\(OSError: API request to https://example\.org/api failed\)"):
        mnemos.run(tiny, out=tmp_path, track=["test_observe:Memory"])


def test_an_interruption_is_not_a_failure_of_a_sink(tiny, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(tiny, out=tmp_path, observer=Stop(2), track=["test_observe:Memory"])
    assert Memory.ends == ["interrupted"]


def test_no_sinks_leave_the_observer_alone():
    listener = Listener()
    assert observe(listener, []) is listener


@pytest.mark.parametrize(
    ("track", "sentence"),
    [
        (["wandbb"], "track: there is no sink 'wandbb'; did you mean 'wandb'? allowed: csv, mlflow, "),
        ([""], "track: there is no sink ''; allowed: csv"),
        (["wandb:mode=off"], "track.wandb.mode: found 'off'; allowed: 'online' or 'offline'"),
        (["wandb:projekt=x"], "track.wandb.projekt: unknown field; did you mean 'project'?"),
        (["wandb:offline"], "track: found 'wandb:offline'; a sink is written NAME"),
        (["csv:folder="], "track.csv.folder: "),
        (["csv", "csv:folder=x"], "track: found csv, csv; each sink can be named once"),
        ([{"folder": "x"}], "track: 'name' is missing; allowed: csv"),
        (["nowhere:Sink"], "track: the sink 'nowhere:Sink' can't be imported"),
        (["test_observe:Listener"], "track: 'test_observe:Listener' is not a Sink"),
    ],
)
def test_a_wrong_sink_is_named(track, sentence):
    with pytest.raises(ConfigError) as error:
        check(track)
    assert str(error.value).startswith(sentence)


def test_options_are_words_or_a_mapping():
    (words,) = check(["mlflow:tracking_uri=http://localhost:5000/?a=b,experiment=mine"])
    (mapping,) = check(
        [{"name": "mlflow", "tracking_uri": "http://localhost:5000/?a=b", "experiment": "mine"}]
    )
    assert words == mapping
    assert words.tracking_uri == "http://localhost:5000/?a=b"


def test_parameters_are_flat():
    flat = parameters(Experiment.parse({"measures": ["class-accuracy"], "local": {"lr": 0.5}}))
    assert flat["local.lr"] == 0.5
    assert flat["method.loss.name"] == "ce"
    assert flat["engine.exact"] is False
    assert flat["local.steps"] == "null"
    assert flat["measures"] == '[{"name": "class-accuracy"}]'
