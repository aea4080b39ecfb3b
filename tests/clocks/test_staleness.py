"""How much late updates count, against numbers worked out by hand."""

import pytest

from mnemos.clocks.asynchronous import AsynchronousClock
from mnemos.clocks.clock import clocks
from mnemos.clocks.staleness import staleness


@pytest.mark.parametrize(
    ("part", "weights"),
    [
        ("constant", [1, 1, 1, 1]),
        ("polynomial", [1, 2**-0.5, 3**-0.5, 0.5]),
        ({"name": "polynomial", "a": 2}, [1, 1 / 4, 1 / 9, 1 / 16]),
        ({"name": "hinge", "a": 3, "b": 1}, [1, 1, 1 / 4, 1 / 7]),
        ({"name": "hinge", "a": 10, "b": 0}, [1, 1 / 11, 1 / 21, 1 / 31]),
    ],
)
def test_weights_by_hand(part, weights):
    """Of updates that are 0, 1, 2 and 3 moves of the server late."""
    assert [staleness.parse(part).weight(late) for late in range(4)] == pytest.approx(weights)


def test_an_update_that_is_not_late_counts_fully():
    """To the last bit: on this rests that a synchronous federation is a special case."""
    assert all(part().weight(0) == 1.0 for part in staleness)


def test_mixing_is_a_factor_of_all_weights():
    clock = AsynchronousClock.parse({"mixing": 0.6, "staleness": {"name": "polynomial", "a": 1}})
    assert [clock.weight(late) for late in (0, 1, 2)] == pytest.approx([0.6, 0.3, 0.2])


def test_presets():
    fedasync, fedbuff = clocks["fedasync"](), clocks["fedbuff"]()
    assert (fedasync.buffer, fedasync.applies, fedasync.mixing) == (1, "model", 0.6)
    assert (fedbuff.buffer, fedbuff.applies, fedbuff.mixing) == (10, "change", 1.0)
