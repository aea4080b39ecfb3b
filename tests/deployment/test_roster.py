"""What the server and owners are told, and what their logs and files say."""

import json
from contextlib import closing

import pytest
import torch
from safetensors.torch import save

from mnemos.deployment.diary import Diary
from mnemos.deployment.holder import Holder
from mnemos.deployment.journal import Journal, foreign
from mnemos.deployment.keys import fingerprint, make_owner, make_server, public_keys
from mnemos.deployment.roster import Roster
from mnemos.errors import DataError


@pytest.fixture
def shown():
    return []


@pytest.fixture
def roster(tmp_path, shown):
    make_server(tmp_path, ["localhost"], 10)
    for name in "abc":
        make_owner(tmp_path, name)
    with closing(Journal(tmp_path / "server.log", shown.append, dated=False)) as journal:
        yield Roster(tmp_path, journal, public_keys(tmp_path))


def states(file):
    owners = json.loads(file.read_text())["owners"]
    return {name: (owner["state"], owner["why"]) for name, owner in owners.items()}


def test_owners_are_awaited_come_go_and_come_back(roster, tmp_path, shown):
    run = tmp_path / "run"
    run.mkdir()
    roster.server(run, state="training", round=0, rounds=4)
    roster.joined("a")
    roster.joined("b")
    assert roster.awaited == ["c"]
    roster.present({"a", "b"})
    roster.answered("a")
    roster.dropped("b", "timeout")
    assert states(tmp_path / "federation.json") == {
        "a": ("here", ""),
        "b": ("dropped", "timeout"),
        "c": ("awaited", ""),
    }
    roster.server(round=1)
    roster.present({"a"})
    roster.dropped("b", "not connected")
    roster.present({"a", "b"})
    roster.rejected("a", "not finite")
    assert states(run / "owners.json") == {"a": ("here", ""), "b": ("here", ""), "c": ("awaited", "")}
    assert shown == [
        "warning: round 1 continues without b: timeout",
        "warning: b is gone: its connection is lost",
        "warning: round 2 continues without b: not connected",
        "b is back",
        "warning: round 2 continues without the update of a: not finite",
    ]
    owner = json.loads((run / "owners.json").read_text())["owners"]["b"]
    assert (owner["answered"], owner["dropped"], owner["rejected"]) == (0, 2, 0)


def test_who_is_refused_is_named_once_by_name_or_fingerprint(roster, tmp_path, shown):
    make_server(tmp_path / "other", ["localhost"], 10)
    make_owner(tmp_path / "other", "mallory")
    stranger = public_keys(tmp_path / "other")["mallory"]
    line = (
        "[/v1/fleet/activate-node][ApiError:2004] Attempted to register SuperNode with public key: {}, "
        "exception: {}"
    )
    for key, why in (
        (stranger, "No SuperNode found"),
        (stranger, "again"),
        (public_keys(tmp_path)["b"], "twice"),
    ):
        roster.heard(line.format(repr(key), why))
    roster.heard("something else")
    assert shown == [
        f"warning: refused: a client with an unknown key ({fingerprint(stranger)}); its public half isn't in "
        f"{tmp_path}/owners",
        "warning: a second client with the key of b isn't admitted while the first is connected; one that "
        "was "
        "killed counts as connected for a minute",
    ]
    assert list(json.loads((tmp_path / "federation.json").read_text())["strangers"]) == [
        fingerprint(stranger)
    ]


def test_a_log_has_dates_and_levels_and_no_colours(tmp_path, shown):
    journal = Journal(tmp_path / "log", shown.append, dated=True)
    journal("one")
    journal.warn("two")
    journal.fail("three")
    journal.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == ["INFO    one", "WARNING two", "ERROR   three"]
    assert shown == lines[:2]
    found = [
        foreign("\x1b[91mERROR \x1b[0m:     it failed\n"),
        foreign('2026-11-18T15:20:55.725Z INFO [uvicorn.access] "GET /" 200'),
        foreign("  no level"),
    ]
    assert [(record.levelname, record.getMessage()) for record in found] == [
        ("ERROR", "it failed"),
        ("INFO", '[uvicorn.access] "GET /" 200'),
        ("INFO", "  no level"),
    ]


def test_an_owner_hears_of_the_end_and_keeps_the_model(tmp_path, shown):
    holder = Holder("a.npz", tmp_path / "memory", "a", diary=Diary(tmp_path, shown.append))
    holder.end("run", "paused", 2, b"")
    model = save({"weight": torch.zeros(2)})
    holder.end("run", "finished", 4, model)
    path = tmp_path / "memory/run/model.safetensors"
    assert path.read_bytes() == model
    assert shown == [
        "the run has ended: paused after 2 rounds",
        "the run has ended: finished after 4 rounds",
        f"its model is in {path}; 'mnemos predict' uses it",
    ]
    page = json.loads((tmp_path / "federation.json").read_text())
    assert (page["run"], page["model"]) == ("finished", str(path))
    for run, content, words in (("../x", model, "no name for a folder"), ("run", b"junk", "can't be read")):
        with pytest.raises(DataError, match=words):
            holder.end(run, "finished", 4, content)


def test_an_owner_sees_rounds_and_its_accuracy(tmp_path, shown):
    diary = Diary(tmp_path, shown.append)
    diary.rounds(4)
    diary.asked("train", 2)
    diary.trained(60, 3, 0.5, 1.25)
    diary.asked("evaluate")
    assert json.loads((tmp_path / "federation.json").read_text())["state"] == "evaluating"
    diary.evaluated("train", 3, 4)
    assert shown == [
        "round 2/4: trained on 60 samples, 3 steps in 1.2 s, loss 0.5",
        "round 2: evaluated the model: 75.0 % of 4 own validation samples right",
    ]
    diary.evaluated("train", 1, 4, clients_model=True)
    assert shown[2:] == [
        "round 2: evaluated a client's model after its training: 25.0 % of 4 own validation samples right"
    ]
    page = json.loads((tmp_path / "federation.json").read_text())
    assert (page["state"], page["round"], page["rounds"], page["accuracy"]) == ("connected", 2, 4, 0.75)
