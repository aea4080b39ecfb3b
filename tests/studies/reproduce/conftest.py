"""The papers' data sets, tiny."""

from pathlib import Path

import pytest

from support.papers_data import write_papers_data


@pytest.fixture(scope="session")
def _papers_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_papers_data(tmp_path_factory.mktemp("papers-data"))


@pytest.fixture
def papers_data(_papers_files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder has CIFAR-10, CIFAR-100 and FEMNIST in it."""
    monkeypatch.setenv("MNEMOS_DATA", str(_papers_files))
    return _papers_files
