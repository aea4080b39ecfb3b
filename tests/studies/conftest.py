"""What tests of killed sweeps share."""

import pytest


@pytest.fixture
def gate(tmp_path):
    """A folder of `support.gate`: runs wait at a known round until the file `open` is in it."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder
