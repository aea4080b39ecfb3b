import os

import pytest

from mnemos.common.cores import cores
from mnemos.errors import ConfigError


def test_the_environment_says_how_many_cores_there_are(monkeypatch):
    monkeypatch.setenv("MNEMOS_CORES", "5")
    assert cores() == 5


@pytest.mark.parametrize("unset", [None, ""])
def test_without_it_the_system_does(monkeypatch, unset):
    monkeypatch.delenv("MNEMOS_CORES", raising=False)
    if unset is not None:
        monkeypatch.setenv("MNEMOS_CORES", unset)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    assert cores() == 3


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5", " "])
def test_anything_else_is_refused(monkeypatch, wrong):
    monkeypatch.setenv("MNEMOS_CORES", wrong)
    with pytest.raises(ConfigError, match=f"MNEMOS_CORES: found '{wrong}'; expected a whole number ≥ 1"):
        cores()
