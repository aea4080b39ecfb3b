"""The benchmark of peers, with the contenders that need no installation, on tiny works."""

import json
import sys
from pathlib import Path

import pytest

from contest import Contest, Entry, middle
from environments import PEERS
from processes import Contender, ContenderError
from results import table
from support.processes import script
from works import WORKS, write

PEERS_FOLDER = Path(__file__).parents[2] / "benchmarks" / "peers"


def held(folder, *words):
    """What the benchmark of small works writes into peers.json, and what it prints."""
    done = script(
        PEERS_FOLDER / "__main__.py", *words, "--small", "--only", NAMES, "--out", folder, cwd=folder
    )
    assert done.code == 0, done.err
    return json.loads((folder / "peers.json").read_text()), done.out


NAMES = "mnemos,by_hand,plain"


def trained(found, letter, repeats):
    """Each contender has had its turns at a work; returns the work."""
    work = found["works"][letter]
    for name in NAMES.split(","):
        entry = work["contenders"][name]
        assert "reason" not in entry, (letter, name, entry)
        assert len(entry["seconds"]) == repeats
        assert entry["peak MB"] > 50
        assert letter == "f" or entry["loss"] < work["loss before"] - 0.3
    assert work["contenders"]["mnemos"]["ratio"] == 1
    return work


def test_contenders_take_turns_and_train(tmp_path):
    found, said = held(tmp_path, "b", "e", "--repeats", 2, "--figure")
    assert (tmp_path / "peers.png").stat().st_size
    assert {"commit", "cores", "load before", "versions"} <= set(found)
    for letter in "be":
        assert f"({letter}) {trained(found, letter, 2)['title']}" in said


def test_a_cold_start_is_a_process_of_its_own(tmp_path):
    found, said = held(tmp_path, "f", "--repeats", 1)
    work = trained(found, "f", 1)
    assert f"(f) {work['title']}" in said
    assert len(work["contenders"]["import torch"]["seconds"]) == 1


def test_who_did_not_train_is_named():
    entries = {
        "plain": Entry([1.0], loss=1.0),
        "idle": Entry([0.1], loss=2.3),
        "near": Entry([1.0], loss=1.1),
    }
    contest = Contest(WORKS["b"], entries, initial=2.3)
    contest.check()
    assert {name for name, entry in entries.items() if entry.reason} == {"idle"}
    assert "loss 2.300 where the plain loop has 1.000" in table("b", contest)


def test_ratios_are_taken_within_a_turn():
    ours, theirs = Entry([1.0, 10.0, 2.0]), Entry([2.0, 20.0, 6.0])
    assert theirs.ratios(ours) == [2, 2, 3]
    assert middle(theirs.ratios(ours)) == (2, 2, 2.5)


def test_a_contender_that_fails_says_why(tmp_path):
    write(WORKS["b"].small(), tmp_path / "work")
    contender = Contender("nobody", sys.executable, tmp_path / "work", tmp_path, patience=60)
    with pytest.raises(ContenderError, match="No module named"):
        contender.round()
    contender.close()


def test_every_contender_has_a_module():
    assert all((PEERS_FOLDER / "contenders" / f"{name}.py").exists() for name in PEERS)
