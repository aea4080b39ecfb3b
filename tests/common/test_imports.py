"""What is imported by path, what is only shown, and which file a path leads to."""

import sys
from pathlib import Path
from typing import Annotated

import pytest

import mnemos
from mnemos.common import imports
from mnemos.common.imports import import_path, only, origin, showing
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment, load_experiment, read_experiment
from mnemos.federation.federation import Federation
from mnemos.methods.method import methods
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.objectives.ce import CrossEntropy
from mnemos.objectives.objective import Objective, objectives
from mnemos.runs import trust
from mnemos.runs.execute import start
from mnemos.runs.trust import UntrustedError, opened


class Nested(FedAvg):
    """A part of one's own with another in it."""

    other: Annotated[Objective, objectives] = CrossEntropy()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Nobody has run anything before, and there are modules of one's own."""
    monkeypatch.setattr(trust, "_here", set())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(imports, "_folders", [])
    for name in ("first", "second"):
        (tmp_path / f"{name}_own.py").write_text(
            "from test_imports import Nested\nfrom mnemos.objectives.ce import CrossEntropy\n"
            "class Method(Nested):\n    pass\nclass Loss(CrossEntropy):\n    pass\n"
        )
        monkeypatch.delitem(sys.modules, f"{name}_own", raising=False)
    monkeypatch.setitem(sys.modules, "test_imports", sys.modules[__name__])
    yield tmp_path
    for name in ("first_own", "second_own"):
        sys.modules.pop(name, None)


def test_a_part_that_is_shown_has_any_options():
    values = {
        "data": {"name": "their:Data", "path": "x", "deep": {"er": [1, None]}},
        "partition": {"name": "their:Deal", "clients": "a few"},  # not what its kind takes
        "method": {"name": "their:Method", "terms": [{"name": "their:Term"}], "rate": 0.5},
        "measures": ["unknown"],
    }
    seen = read_experiment(values)
    dump = seen.model_dump(mode="json")
    assert dump["data"] == values["data"]
    assert dump["partition"]["clients"] == "a few"
    assert dump["method"]["terms"] == [{"name": "their:Term"}]
    assert dump["method"]["rate"] == 0.5
    assert dump["method"]["loss"]["name"] == "ce"
    assert "correction" not in dump["method"]  # its class has a default that isn't known
    assert dump["measures"] == [{"name": "unknown"}]
    assert seen.not_imported == ("their:Data", "their:Deal", "their:Method", "their:Term", "unknown")
    again = read_experiment(dump)
    assert again.same_as(seen)
    assert again.hash() == seen.hash()
    assert type(again.data) is type(seen.data)


def test_what_was_only_shown_cannot_run():
    seen = read_experiment({"data": "their:Data"})
    with pytest.raises(ConfigError, match="'their:Data' is not a part of Mnemos, and was not imported"):
        seen.data.load()
    with pytest.raises(
        ConfigError, match=r"only looked at, and not imported \(their:Data\); Run.load imports"
    ):
        Federation(seen)
    with pytest.raises(ConfigError, match="can't be imported"):
        mnemos.run(seen)  # who runs an experiment wants its code


def test_an_experiment_of_mnemos_parts_is_the_same_looked_at_or_loaded(tiny):
    values = load_experiment(tiny).model_dump(mode="json")
    assert read_experiment(values) == load_experiment(values)
    assert read_experiment(values).not_imported == ()


def test_unknown_names_are_refused_where_an_experiment_is_to_run():
    for context in (only(()), only({"a:B"})):
        with context, pytest.raises(ConfigError, match="there is no loss 'unknown'"):
            load_experiment({"method": {"name": "fedavg", "loss": "unknown"}})


def test_nothing_is_imported_by_path_while_something_is_shown(fresh):
    with showing(), pytest.raises(ConfigError, match="named by import path, which isn't allowed here"):
        import_path("first_own:Method", "method")
    with only({"second_own:Method"}) as named:
        load_experiment({"method": {"name": "first_own:Method", "loss": "second_own:Loss"}})
    assert named.left == {"first_own:Method", "second_own:Loss"}
    assert not {"first_own", "second_own"} & sys.modules.keys()


def test_parts_in_parts_are_asked_about_too(fresh):
    """What a part of somebody else's has in it shows when it is imported, and not before."""
    other = {"name": "first_own:Method", "other": "second_own:Loss"}

    def parse() -> Experiment:
        return load_experiment({"method": other})

    with pytest.raises(UntrustedError) as first:
        opened("run", parse)
    assert first.value.paths == {"first_own:Method"}
    assert "first_own" not in sys.modules
    with pytest.raises(UntrustedError) as second:
        opened("run", parse, first.value.paths)
    assert second.value.paths == {"second_own:Loss"}
    assert "second_own" not in sys.modules
    assert type(opened("run", parse, True).method.other).name == "second_own:Loss"
    assert opened("run", parse) == parse()  # known by now


def test_other_options_are_other_code(fresh):
    """`torch.hub:load` of one repository isn't that of another."""

    def load(*options: str) -> Experiment:
        optimizer = {"name": "library", "path": "torch.optim:SGD", "options": {"foreach": options}}
        model = {"name": "torch.hub:load", "options": {"model": options}}
        return opened(
            "run", lambda: load_experiment({"model": model, "local": {"optimizer": optimizer}}), said
        )

    said: trust.Trust = True
    load("a")
    said = False
    load("a")
    with pytest.raises(UntrustedError) as error:
        load("b")
    assert error.value.paths == {"torch.hub:load", "torch.optim:SGD"}


def test_own_parts_are_known_however_they_were_named(fresh, tiny):
    """By object, and with parts in them; a resume needs no trust, in this process or a later one."""
    method = methods.parse({"name": "first_own:Method", "other": "second_own:Loss"})
    run = start(load_experiment(tiny).model_copy(update={"method": method}), fresh / "runs")
    for _ in range(2):
        assert type(run.load().method).name == "first_own:Method"
        trust._here.clear()
    assert mnemos.resume(run.path, 5).status.rounds == 5
    assert type(run.experiment.method).imported is False
    assert run.model() is not None
    (fresh / "state/mnemos/trusted.jsonl").unlink()
    trust._here.clear()
    with pytest.raises(UntrustedError, match="first_own:Method of"):
        run.load()
    assert run.load(trust=["first_own:Method", "second_own:Loss"]) is not None
    assert run.model() is not None  # it takes the model's code, and none of the method's


def test_a_record_that_is_damaged_says_nothing(fresh):
    file = fresh / "state/mnemos/trusted.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'\xff\n[]\n{"path": 3}\nnull\n{"path": "first_own:Loss", "file": null, "options": 1}\n')
    with pytest.raises(UntrustedError):
        opened("run", lambda: load_experiment({"method": {"loss": "first_own:Loss"}}))


def test_a_record_that_cannot_be_written_costs_a_question(fresh, tiny):
    (fresh / "state").write_text("not a folder")
    run = start(load_experiment({**tiny, "method": "first_own:Method", "rounds": 1}), fresh / "runs")
    assert mnemos.resume(run.path, 2).status.rounds == 2  # known in this process


def test_which_file_a_path_leads_to(tmp_path, monkeypatch):
    """Found as Python finds it, and without running any: each would fail."""
    monkeypatch.setattr(imports, "_folders", [str(tmp_path / "here")])
    monkeypatch.syspath_prepend(str(tmp_path / "there"))
    for name in ("here/one.py", "there/one.py", "there/two/__init__.py", "there/two/three.py", "here/four/x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('it was run')")
    (tmp_path / "there/four.py").write_text("raise SystemExit('it was run')")
    (tmp_path / "here/five").mkdir()
    (tmp_path / "here/five/six.py").touch()
    assert origin("one:A") == str(tmp_path / "here/one.py")
    assert origin("two:A") == str(tmp_path / "there/two/__init__.py")
    assert origin("two.three:A") == str(tmp_path / "there/two/three.py")
    assert origin("four:A") == str(tmp_path / "there/four.py")  # a folder without __init__.py comes last
    assert origin("five.six:A") == str(tmp_path / "here/five/six.py")
    for nowhere in ("nowhere:A", "two.nowhere:A", "one.two:A", ":A", "..:A", "a..b:A", "\x00:A"):
        assert origin(nowhere) is None
    assert origin("sys:exit") == "built-in"
    assert origin("mnemos.runs.trust:Trust") == str(Path(trust.__file__))


def test_the_sentence_names_a_few_and_counts_the_rest():
    text = str(UntrustedError("runs/a", {f"their{number}:Part" for number in range(9)}))
    assert "their4:Part of no file that can be found and 4 more)" in text
    assert text.count("their") == 5
