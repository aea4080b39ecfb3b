"""Signals while a round is being saved, and the time that a round takes."""

import json
import signal
from types import SimpleNamespace

import pytest

from mnemos.engines import auto
from mnemos.engines.auto import AutoRunner
from mnemos.runs import execute
from mnemos.runs.interrupts import stop_on_terminate, without_interrupts
from support.play import small


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_the_block(number):
    saved = []

    def save():
        with without_interrupts():
            signal.raise_signal(number)
            saved.append(True)

    with stop_on_terminate():
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt):
            save()
        assert signal.getsignal(number) is before
    assert saved


def test_nothing_happens_without_a_signal():
    with without_interrupts():
        pass


def test_the_choice_of_an_engine_is_not_timed_as_the_first_round(tmp_path, monkeypatch):
    """A clock that only the choice moves: by 100 s, and each round takes 0 s."""
    now = 0.0
    choose = AutoRunner._choose

    def slowly(runner, cohort):
        nonlocal now
        choose(runner, cohort)
        now += 100.0

    monkeypatch.setattr(AutoRunner, "_choose", slowly)
    clock = SimpleNamespace(perf_counter=lambda: now, strftime=lambda form: form)
    monkeypatch.setattr(auto, "time", clock)
    monkeypatch.setattr(execute, "time", clock)
    run = execute.start(small(rounds=2, engine={"name": "auto"}), tmp_path)
    timing = [json.loads(line) for line in run.file("timing.jsonl").read_text().splitlines()]
    assert timing == [{"round": 1, "seconds": 0.0}, {"round": 2, "seconds": 0.0}]
