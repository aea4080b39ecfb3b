"""What owners say of themselves is believed as far as it can be true."""

import pytest

from mnemos.data.owned import Described
from mnemos.data.sources.elsewhere import Owner
from mnemos.deployment.enrol import _told, described
from mnemos.errors import ConfigError, DataError
from mnemos.experiment.experiment import Experiment
from mnemos.studies.advise.description import describe
from support.owners import folders, joined


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


def federation(paths, **changes):
    return Experiment.parse(
        {
            "data": {"name": "owners", "paths": [str(path) for path in paths]},
            "partition": {"name": "natural", "validation": 0.2},
            "rounds": 4,
            "participation": 0.7,
            **changes,
        }
    )


@pytest.mark.parametrize("changes", [{}, {"stream": {"name": "tasks", "tasks": 3}}])
def test_what_a_federation_is_like_by_the_counts_of_its_owners(changes, tmp_path):
    """The same numbers as of a simulation that has all their samples."""
    paths = folders(tmp_path)
    simulated = federation(paths, **changes)
    remote, _ = joined(simulated, paths, tmp_path / "own", sharing="abc")
    expected, found = describe(simulated).facts, describe(remote).facts
    assert {**found, "data": "", "sentences": ""} == {**expected, "data": "", "sentences": ""}
    assert found["sentences"][1:] == expected["sentences"][1:]


def test_owners_share_their_counts_only_if_they_agree(tmp_path):
    """Without consent nothing about single classes is sent, and the federation isn't described."""
    paths = folders(tmp_path)
    remote, _ = joined(federation(paths), paths, tmp_path / "own", sharing="b")
    assert [bool(owner.counts) for owner in remote.data.owners] == [False, True, False]
    with pytest.raises(DataError, match=r"data: a, c \(2 of 3 owners\) have not agreed to share how many"):
        describe(remote)


@pytest.mark.parametrize("counts", [(1,), (1, 1), (4, -1), (2, 2, -1)])
def test_counts_that_can_not_be(counts):
    """Three training samples of two classes."""
    told = {"shape": [1], "kind": "float32", "classes": ["x", "y"], "train": 3, "test": 0}
    told |= {"mean": [0.0], "variance": [1.0]}
    assert Described.parse({**told, "counts": (2, 1)}).counts == (2, 1)
    with pytest.raises(ConfigError, match="counts"):
        Described.parse({**told, "counts": counts})
