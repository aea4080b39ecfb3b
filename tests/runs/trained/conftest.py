"""A run that has a trained model, made once."""

import pytest

import mnemos
from mnemos.runs.run import Run
from support.play import small


@pytest.fixture(scope="package")
def run(tmp_path_factory) -> Run:
    """Three rounds on the digits, tested in the last and with two forgetting matrices."""
    experiment = small(evaluate={"every": 3, "test_last": 1, "forgetting": [1, 3]})
    return mnemos.run(experiment, out=tmp_path_factory.mktemp("runs"))
