"""ε goes by the models that somebody may have seen, also of rounds that were done again after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemos.engines.engine import Lost
from mnemos.engines.serial import Serial, SerialRunner
from mnemos.errors import DataError
from mnemos.federation.federation import Federation
from mnemos.privacy.gaussian import SECRET
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.execute import Silent, resume, start
from support.private import NOISE, private

PRIVACY = {**NOISE, "secret": True}


class Moody(Serial):
    """Loses the first client of every cohort as long as a file is there."""

    flag: str

    def open(self, plan, dataset, work):
        return MoodyRunner(self, plan, dataset)


class MoodyRunner(SerialRunner):
    """Its runner."""

    def run(self, cohort):
        for place, heard in enumerate(super().run(cohort)):
            yield Lost(heard.client, "gone") if not place and Path(self.engine.flag).exists() else heard


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """Makes experiments whose first client is gone when the file 'flag' is there."""
    monkeypatch.setenv(SECRET, "a" * 32)

    def described(**changes):
        moody = {"name": "test_releases:Moody", "flag": str(tmp_path / "flag")}
        return private(changes, rounds=4, engine=moody, privacy=PRIVACY)

    return described


class CrashError(Exception):
    """The end of a process."""


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Carries a run out up to a round whose model is released and not saved."""

    def carry_out(described, last):
        def save(self, federation, metrics):
            if federation.round == last:
                raise CrashError
            saved(self, federation, metrics)

        observer, saved = Silent(), Checkpoints.save
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", save)
            with pytest.raises(CrashError):
                start(described, tmp_path / "broken", observer)
        return observer.run

    return carry_out


class Warned(Silent):
    """Keeps what is warned of."""

    def __init__(self):
        super().__init__()
        self.sentences = []

    def warned(self, sentence):
        self.sentences.append(sentence)


def epsilons(run):
    found = run.metrics[run.metrics["name"] == "epsilon"]
    return dict(zip(found["round"].tolist(), found["value"].tolist(), strict=True))


def test_a_round_that_comes_to_the_same_is_released_once(experiment, broken, tmp_path):
    whole = start(experiment(), tmp_path / "whole")
    run, observer = broken(experiment(), 3), Warned()
    resume(run.path, observer=observer)
    assert observer.sentences == [
        "privacy: round 3 is done again, and may have been seen: if other clients answer, ε counts both"
    ]
    for name in ("metrics.jsonl", "model.safetensors", "releases"):
        assert run.file(name).read_bytes() == whole.file(name).read_bytes()
    assert len(run.file("releases").read_bytes().splitlines()) == 4
    assert whole.epsilon == Federation(experiment()).guarantee.epsilon(4)


def test_a_round_that_comes_to_something_else_is_released_twice(experiment, broken, tmp_path):
    """Of four rounds, the third counts as one with noise 2 / √2, and the others as ever."""
    run = broken(experiment(), 3)
    (tmp_path / "flag").touch()
    resume(run.path)
    guarantee = Federation(experiment()).guarantee
    assert epsilons(run) == {
        1: guarantee.epsilon(1),
        2: guarantee.epsilon(2),
        3: guarantee.epsilon(3, [2]),
        4: guarantee.epsilon(4, [2]),
    }
    assert run.epsilon > guarantee.epsilon(5)
    assert [line.split()[0] for line in run.file("releases").read_text().splitlines()] == list("12334")


def test_rounds_that_were_lost_count_before_they_are_done_again(experiment, tmp_path):
    """The newest checkpoints of four rounds are gone: the fourth was seen, however far it has come again."""
    run = start(experiment(), tmp_path)
    for path in sorted(run.file("checkpoints").iterdir())[-2:]:
        path.unlink()
    (tmp_path / "flag").touch()
    observer = Warned()
    resume(run.path, observer=observer)
    (sentence,) = observer.sentences
    assert sentence.startswith("privacy: rounds ")
    assert sentence.split(" are")[0].endswith(" to 4")
    guarantee = Federation(experiment()).guarantee
    first = int(sentence.split()[2])
    again = range(first, 5)
    found = epsilons(run)
    assert [found[number] for number in again] == [
        guarantee.epsilon(4, [2] * (number - first + 1)) for number in again
    ]


def test_the_budget_ends_a_run_before_a_release_that_would_exceed_it(experiment, broken, tmp_path):
    """It allows four rounds, and there have been four when the fourth is done again."""
    budget = Federation(experiment()).guarantee.epsilon(4) + 1e-6
    described = experiment(**{"privacy.budget": budget}, rounds=9)
    run = broken(described, 4)
    lines = run.file("releases").read_bytes()
    (tmp_path / "flag").touch()
    for _ in range(2):  # nor does it go on the next time
        resume(run.path)
        assert (run.status.status, run.status.rounds) == ("finished", 3)
        assert "was used up by rounds that were done again: it allows no other model of round 4" in (
            run.status.message
        )
        assert run.epsilon == Federation(experiment()).guarantee.epsilon(4)
        assert run.file("releases").read_bytes() == lines
    (tmp_path / "flag").unlink()
    resume(run.path)  # the same clients, and so the same model, which has been released
    assert (run.status.rounds, run.file("releases").read_bytes()) == (4, lines)


def test_a_line_that_was_cut_off_was_never_released(experiment, tmp_path):
    run = start(experiment(rounds=2), tmp_path)
    lines = run.file("releases").read_bytes()
    run.file("releases").write_bytes(lines + b"3 0123")
    resume(run.path, rounds=3)
    assert run.file("releases").read_bytes().startswith(lines)
    assert run.epsilon == Federation(experiment()).guarantee.epsilon(3)


def test_a_damaged_record_is_one_sentence(experiment, tmp_path):
    run = start(experiment(rounds=1), tmp_path)
    before = run.file("status.json").read_bytes()
    run.file("releases").write_bytes(b"-1 what\n")
    with pytest.raises(DataError, match=r"releases: it is damaged, and ε can't be known without it"):
        resume(run.path, rounds=2)
    assert run.file("status.json").read_bytes() == before


def test_noise_of_the_seed_needs_no_record(experiment, tmp_path):
    run = start(experiment(**{"privacy.secret": False}, rounds=1), tmp_path)
    assert not run.file("releases").exists()
