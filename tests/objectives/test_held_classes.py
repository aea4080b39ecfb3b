"""Losses that ask which classes a client holds, not how many samples of each: tce and masked-ce."""

import math

import pytest

from mnemos.objectives.masked_ce import MaskedCrossEntropy
from mnemos.objectives.tce import TruncatedCrossEntropy


@pytest.mark.parametrize("counts", [[2, 0, 4], [1, 0, 900]])
@pytest.mark.parametrize(
    ("objective", "label", "value", "gradient"),
    [
        (TruncatedCrossEntropy(), 2, 4 / 3, [1 / 4, 0, -1 / 4]),
        (TruncatedCrossEntropy(), 0, 4, [-3 / 4, 0, 3 / 4]),
        (MaskedCrossEntropy(), 2, 5 / 3, [1 / 5, 0, -2 / 5]),
        (MaskedCrossEntropy(), 0, 5, [-4 / 5, 0, 3 / 5]),
    ],
)
def test_values_and_gradients_by_hand(solve, objective, label, value, gradient, counts):
    """Logits (log 1, log 2, log 3), class 1 absent; the losses are the logarithms of the table's fractions.

    tce leaves class 1 out: (1, 3)/4 for classes 0 and 2. Class 2: −log 3/4; class 0: −log 1/4.

    masked-ce sets its logit to 0, and exp 0 = 1 stays in the sum: (1, 1, 3)/5, with no gradient for the
    constant. Class 2: −log 3/5; class 0: −log 1/5. Its gradient doesn't add up to 0.
    """
    loss, found = solve(objective, [1, 2, 3], label, counts)
    assert loss == pytest.approx(math.log(value))
    assert found == pytest.approx(gradient)
