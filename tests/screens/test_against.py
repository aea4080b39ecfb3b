"""Claims beside those of the cohort, by numbers worked out by hand."""

import pytest
import torch

from mnemos.methods.exchange import Cohort, Update
from mnemos.screens.against import Norms, SampleCounts
from mnemos.vector import Layout


def cohort(lengths, samples=None):
    layout = Layout.of(torch.nn.Linear(1, 1))
    counts = samples or [1] * len(lengths)
    updates = tuple(
        Update(10 + k, 1, n, 1, 0.0, torch.tensor([3.0, 4.0]) * length / 5, torch.zeros(0), {}, {})
        for k, (length, n) in enumerate(zip(lengths, counts, strict=True))
    )
    return Cohort(torch.zeros(2), updates, layout)


@pytest.mark.parametrize(
    ("lengths", "most", "found"),
    [
        ([1.0, 2.0, 3.0], 1.4, [12]),  # median 2: up to 2.8
        ([1.0, 2.0, 3.0], 1.6, []),
        ([1.0, 1.0, 1e30], 5.0, [12]),
        ([0.0, 0.0, 1.0], 5.0, [12]),  # who moved where most didn't
        ([1.0, 1e6], 5.0, []),  # two can't outvote each other
    ],
)
def test_norms(lengths, most, found):
    judged = Norms(most=most).judge(cohort(lengths), torch.zeros(2))
    assert judged == dict.fromkeys(found, "norm")


def test_norms_are_measured_beyond_the_range_of_single_precision():
    assert Norms().judge(cohort([1.0, 1.0, 2e38, 1.0]), torch.zeros(2)) == {12: "norm"}


def test_sample_counts():
    """Median 10: up to 200 are believed."""
    judged = SampleCounts().judge(cohort([1.0] * 4, [5, 10, 10, 201]), torch.zeros(2))
    assert judged == {13: "sample count"}
    assert SampleCounts().judge(cohort([1.0] * 4, [5, 10, 10, 200]), torch.zeros(2)) == {}
