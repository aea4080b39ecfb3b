"""Paths that no file can have get one sentence, as those that aren't there do."""

import pytest

from mnemos.data.load import load
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import load_experiment
from mnemos.runs.run import Run

PATHS = {"zero": "\0", "half a pair": "\ud800", "too long": "x" * 5000, "nobody's": "~nobody-of-that-name/x"}


@pytest.fixture(params=PATHS, ids=PATHS)
def path(request):
    return PATHS[request.param]


@pytest.mark.parametrize("source", ["npz", "folder", "parquet", "huggingface"])
def test_data(source, path):
    with pytest.raises(MnemosError):
        load(load_experiment({"data": {"name": source, "path": path}}).data)


def test_encoders(path):
    with pytest.raises(MnemosError):
        load_experiment({"start": {"name": "file", "path": path}}).start.check(None, ())


def test_experiments_and_runs(path):
    with pytest.raises(MnemosError):
        load_experiment(path)
    with pytest.raises(MnemosError):
        Run.at(path)
