"""`mnemos why`: the answer in words, as JSON and as a figure, and wrong words."""

from pathlib import Path

import pytest

from mnemos.runs import execute
from support.play import small

DONE = small(
    rounds=4,
    partition={"name": "dirichlet", "clients": 6, "alpha": 0.1},
    local={"steps": 8, "batch": 16, "lr": 0.2},
    participation=0.5,
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return execute.start(DONE, Path("runs"))


def test_text_tables_and_figure(command, run):
    out = command(f"why {run.path} --rounds 2..4 --closely 1 --figure why.png").out
    assert " fell from " in out
    assert "in aggregation" in out
    assert "cost, points" in out
    assert Path("why.png").stat().st_size > 10_000


def test_json(command, run):
    facts = command(f"why {run.path} --class 3 --rounds 2 --json").json
    assert (facts["subject"], [row["round"] for row in facts["rounds"]]) == ("class 3", [2])
    (row,) = facts["rounds"]
    assert row["local"] + row["aggregation"] == pytest.approx(row["after"] - row["before"])
    assert -sum(client["cost"] for client in facts["clients"]) == pytest.approx(row["change"])


def test_clients_that_stay_out(command, run):
    """In words and as a table; both clients are played without in all rounds that were asked about."""
    line = f"why {run.path} --class 3 --rounds 2..4 --closely 0 --stay-out 1 --stay-out 4"
    out = command(line).out
    assert "Had client 1 stayed out of rounds 2 to 4, class 3 would be at " in out
    assert "stayed out  after round 4  cost, points  on average" in out
    facts = command(f"{line} --json").json
    assert {one["client"] for one in facts["stayed_out"]} == {1, 4}
    for one in facts["stayed_out"]:
        last = facts["rounds"][-1]
        assert one["after"] - last["after"] == pytest.approx(one["cost"])
        assert sorted(one["right"]) == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--stay-out 6", "client: found client 6; the clients are 0 to 5"),
        ("--class 12", "class: found class 12; the classes are 0 to 9"),
        ("--client 6", "client: found client 6; the clients are 0 to 5"),
        ("--rounds 2..7", "found round 7; the run has rounds 1 to 4"),
        ("--rounds two", "rounds: found 'two'; expected rounds such as 30..60, or one"),
        ("--figure why.txt", "why.txt"),
    ],
)
def test_wrong_words(command, run, words, sentence):
    assert sentence in command(f"why {run.path} {words}", 2).err


def test_a_long_answer_asks_for_yes(command, run):
    """Four rounds of half an hour each, played twice: four hours."""
    lines = "".join(f'{{"round": {round}, "seconds": 1800}}\n' for round in range(1, 5))
    run.file("timing.jsonl").write_text(lines)
    sentence = command(f"why {run.path}", 2).err
    assert "replaying rounds 1 to 4, twice, from the start, as no checkpoint was kept" in sentence
    assert "about 4 h 0 min; --yes does it" in sentence
    assert command(f"why {run.path} --yes --closely 0 --json").json["rounds"]
