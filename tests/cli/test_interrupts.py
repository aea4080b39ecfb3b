"""Ctrl-C on the command line."""

import os
import signal
import threading

import pytest

from mnemos.cli.interrupts import acknowledged


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_answered_and_stops_the_work(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), acknowledged(lambda: "go on"):
        ctrl_c()
    assert capsys.readouterr().err == "stopping; finished rounds are saved (Ctrl-C again: end at once)\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_ends_all(capfd, monkeypatch):
    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    with acknowledged(lambda: "'mnemos resume here' continues it"):
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        with pytest.raises(SystemExit) as end:
            ctrl_c()
    assert end.value.code == 130
    ended = "ended at once; finished rounds are saved; 'mnemos resume here' continues it\n"
    assert capfd.readouterr().err.endswith(ended)


def test_other_threads_have_no_handlers():
    done = []

    def work():
        with acknowledged(lambda: ""):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
