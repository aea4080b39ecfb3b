"""Results that are kept while their tensors live: on a device alone, and not for changed tensors."""

import gc
import weakref

import pytest
import torch
from torch.func import vmap

from mnemos.common.kept import kept
from support import pretend

pretend.install()


@pytest.fixture
def counting():
    """A kept function of one or two tensors that adds 1 to the first, and what it was called with."""
    calls = []

    def plus_one(*tensors):
        calls.append(tensors)
        return tensors[0] + 1

    function = kept(plus_one)
    yield function, calls
    calls.clear()


def test_once_for_the_same_tensor(counting):
    function, calls = counting
    here, other = torch.zeros(2).to("pretend"), torch.zeros(2).to("pretend")
    assert function(here) is function(here)
    assert len(calls) == 1
    assert function(other) is not function(here)
    assert len(calls) == 2


def test_again_after_a_change_in_place(counting):
    function, _ = counting
    here = torch.zeros(2).to("pretend")
    function(here)
    here.add_(1)
    assert function(here).tolist() == [2, 2]


def test_again_for_another_second_tensor_or_a_changed_one(counting):
    function, calls = counting
    here, second, third = (torch.zeros(2).to("pretend") for _ in range(3))
    function(here, second)
    function(here, second)
    assert len(calls) == 1
    function(here, third)
    third.add_(1)
    function(here, third)
    function(here)
    assert len(calls) == 4


def test_always_on_the_cpu_and_in_a_transform(counting):
    function, calls = counting
    here, rows = torch.zeros(2), torch.zeros(3, 2).to("pretend")
    function(here)
    function(here)
    assert len(calls) == 2
    assert torch.equal(vmap(function)(rows).cpu(), torch.ones(3, 2))
    assert torch.equal(vmap(function)(rows).cpu(), torch.ones(3, 2))
    assert len(calls) == 4


def test_nothing_outlives_its_tensor(counting):
    function, calls = counting
    here, second = torch.zeros(2).to("pretend"), torch.zeros(2).to("pretend")
    gone = [weakref.ref(second), weakref.ref(function(here, second))]
    calls.clear()
    del second
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is not None
    del here
    gc.collect()
    assert gone[1]() is None
