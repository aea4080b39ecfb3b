"""What messages may say."""

import pytest

from mnemos.client.evaluation import EvaluateReply
from mnemos.errors import DataError


def test_a_tally_whose_loss_would_overflow_in_a_sum_is_none():
    assert EvaluateReply.from_bytes(EvaluateReply(3, 2, -1e30).to_bytes()) == EvaluateReply(3, 2, -1e30)
    for loss in (1.1e30, -1e308):
        with pytest.raises(DataError, match="2 of 3 right with a loss of"):
            EvaluateReply.from_bytes(EvaluateReply(3, 2, loss).to_bytes())
