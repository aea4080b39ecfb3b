"""FedProx against numbers worked out by hand (Li et al., 2020, algorithm 2)."""

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from support.quadratic import near, on_digits, play


def test_three_rounds_by_hand():
    """h = (1, ½), a = (0, 16), η = ½, μ = ½, two steps, samples 1 : 3.

    A client minimises ½ h (y − a)² + ½ μ (y − x)²: y ← y − ½ [h (y − a) + ½ (y − x)] from y = x.
    The first step doesn't feel the pull.

    Client 0: y = x − ½ x = ½ x; then y = ½ x − ½ [½ x + ½ (−½ x)] = ½ x − ⅛ x = ⅜ x.
    Client 1, with e = x − 16: y = x − ¼ e; then y = x − ¼ e − ½ [½ · ¾ e − ½ · ¼ e] = x − ⅜ e = ⅝ x + 6.
    Mean: x ← ¼ · ⅜ x + ¾ (⅝ x + 6) = 9/16 x + 9/2.

    x = 0 → 9/2 → 81/32 + 144/32 = 225/32 → 2025/512 + 2304/512 = 4329/512.
    """
    played = play(
        {"name": "fedprox", "mu": 0.5}, {"lr": 0.5, "steps": 2}, h=[1, 0.5], a=[0, 16], samples=[1, 3]
    )
    assert played.models == near([9 / 2, 225 / 32, 4329 / 512])


def test_without_a_pull_it_is_fedavg():
    """μ = 0; and with μ > 0 it is something else."""
    local = {"epochs": 2, "lr": 0.1}
    fedavg = on_digits("fedavg", **local)
    assert torch.equal(torch.stack(on_digits({"name": "fedprox", "mu": 0}, **local)), torch.stack(fedavg))
    assert not torch.allclose(on_digits({"name": "fedprox", "mu": 1}, **local)[0], fedavg[0], atol=1e-4)


def test_it_is_fedavg_with_the_term():
    """The method is made of the term: `fedavg` with `proximal` is the same."""
    method = {"name": "fedavg", "terms": [{"name": "proximal", "mu": 0.3}]}
    with_term = on_digits(method, rounds=1, epochs=2)
    assert torch.equal(with_term[0], on_digits({"name": "fedprox", "mu": 0.3}, rounds=1, epochs=2)[0])


@pytest.mark.parametrize(("name", "terms"), [("fedprox", ["proximal"]), ("scaffold", ["proximal"] * 2)])
def test_a_term_can_be_there_once(name, terms):
    with pytest.raises(ConfigError, match="the term 'proximal' is there twice"):
        Experiment.parse({"method": {"name": name, "terms": terms}})
