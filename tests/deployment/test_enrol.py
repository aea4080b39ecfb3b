"""What owners say of themselves is believed as far as it can be true."""

import pytest

from mnemos.data.sources.elsewhere import Owner
from mnemos.deployment.enrol import _told, described
from mnemos.errors import DataError


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("[[0, 2]]", "north has 3 training samples, and says tasks of others"),
        ("[[10, 3]]", "north names tasks of classes that don't exist: there are 10"),
        ("[[1e30, 3]]", "north describes its data wrongly: tasks.0.0"),
        ("[]", "north describes its data wrongly: tasks"),
    ],
)
def test_tasks_that_can_not_be(tasks, words):
    owner = Owner(owner="north", train=3)
    with pytest.raises(DataError, match=words):
        _told(owner, f'{{"tasks": {tasks}}}'.encode(), 10)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b"\xff", b'{"train": 1e999}', b"[" * 10**5])
def test_descriptions_that_are_none(answer):
    with pytest.raises(DataError, match=r"^north (has answered something|describes its data wrongly)"):
        described("north", answer)
