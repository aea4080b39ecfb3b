"""Shapes of samples: of numbers, and of token ids."""

import copy
import pickle

import torch

from mnemos.common.shapes import TokenShape, blank, sample_input


def test_a_shape_of_tokens_is_a_tuple_that_knows_its_ids():
    shape = TokenShape((5,), ids=9)
    assert shape == (5,)
    assert str(shape) == "(5,) of token ids below 9"
    for twin in (copy.deepcopy(shape), pickle.loads(pickle.dumps(shape))):
        assert (twin, twin.ids) == (shape, 9)


def test_trial_samples_are_of_the_right_type():
    tokens, numbers = TokenShape((5,), ids=9), (1, 2, 2)
    assert blank(tokens).dtype == torch.int32
    assert blank(tokens).shape == (2, 5)
    assert blank(numbers).dtype == torch.float32
    assert 0 <= int(sample_input(tokens).min()) <= int(sample_input(tokens).max()) < 9
    assert torch.equal(sample_input(tokens), sample_input(tokens))
    assert sample_input(numbers).shape == (2, 1, 2, 2)
