"""Some inputs for everything that reads from outside; `tools/fuzz.py` tries as many as one likes."""

import pytest

from fuzzing.attempt import fuzz
from fuzzing.targets import TARGETS

MANY, FEW = 100, 30
"""Inputs of a target, beside the nasty ones: those that go through YAML or a data frame take their time."""
SLOW = ("experiment", "study", "recipe", "overrides", "sinks", "run: ")


@pytest.mark.parametrize("name", TARGETS)
def test_a_result_or_a_clean_error(name, tmp_path):
    """No other exception, no hang, no gigabytes: whatever the input."""
    target = TARGETS[name](tmp_path)
    inputs = len(target.samples) + len(target.nasty) + (FEW if name.startswith(SLOW) else MANY)
    tally = fuzz(target, inputs, seed=0)
    assert tally.failures == {}
    assert tally.inputs >= inputs
