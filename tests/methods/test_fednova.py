"""FedNova against numbers worked out by hand (Wang et al., 2020)."""

import pytest
import torch

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.presets.fednova import effective_steps
from mnemos.optim.optimizer import Optimizer
from mnemos.optim.sgd import Sgd
from support.quadratic import near, on_digits, play


class Signs(Optimizer):
    """A step that isn't linear in the gradient."""

    def step(self, parameters, gradient, state, lr, decay):
        parameters.sub_(gradient.sign(), alpha=lr)


def test_unequal_steps_by_hand():
    """h = 1, a = (0, 128), η = ½, samples 1 and 3 in batches of 2: p = (¼, ¾), τ = (1, 2) steps.

    One step halves y − a: Δ₀ = −½ (x − a₀) and Δ₁ = −¾ (x − a₁).
    Plain SGD has ‖aᵢ‖₁ = τᵢ, so τ_eff = Σ pᵢ τᵢ = ¼ + 6/4 = 7/4 and
    x ← x + τ_eff Σ pᵢ Δᵢ / τᵢ = x − 7/4 [¼ · ½ x + ¾ · ⅜ (x − 128)] = x − 28/128 x − 63/128 (x − 128)
    = 37/128 x + 63. (FedAvg: x − ⅛ x − 9/16 (x − 128) = 5/16 x + 72.)

    x = 0 → 63 → 2331/128 + 8064/128 = 10395/128 → (37 · 10395 + 63 · 16384) / 16384 = 1416807/16384.
    """
    played = play({"name": "fednova"}, {"lr": 0.5, "batch": 2}, h=[1, 1], a=[0, 128], samples=[1, 3])
    assert played.models == near([63, 10395 / 128, 1416807 / 16384])


def test_unequal_steps_with_momentum_by_hand():
    """As above with local momentum ρ = ½, which starts at 0 in every round, and a = (0, 320).

    v ← ½ v + (y − a), y ← y − ½ v. With e = x − a:
    one step: v = e, y − a = ½ e; two: v = ½ e + ½ e = e, y − a = 0. So Δ₀ = −½ e₀ and Δ₁ = −e₁.
    The k-th of τ gradients counts (1 − ρ^(τ − k + 1)) / (1 − ρ): ‖a₀‖₁ = 1 and ‖a₁‖₁ = 3/2 + 1 = 5/2.
    τ_eff = ¼ · 1 + ¾ · 5/2 = 17/8, and
    x ← x + 17/8 [¼ Δ₀ + ¾ Δ₁ / (5/2)] = x − 17/8 [⅛ x + 3/10 (x − 320)] = x − 85/320 x − 204/320 (x − 320)
    = 31/320 x + 204.

    x = 0 → 204 → 6324/320 + 204 = 17901/80 → 31 · 17901/25600 + 204 = 5777331/25600.
    """
    local = {"lr": 0.5, "batch": 2, "optimizer": {"name": "sgd", "momentum": 0.5}}
    played = play({"name": "fednova"}, local, h=[1, 1], a=[0, 320], samples=[1, 3])
    assert played.models == near([204, 17901 / 80, 5777331 / 25600])


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 100])
def test_effective_steps(momentum, steps):
    """‖a‖₁ = [τ − ρ (1 − ρ^τ) / (1 − ρ)] / (1 − ρ), and τ without momentum."""
    left = momentum * (1 - momentum**steps) / (1 - momentum)
    expected = (steps - left) / (1 - momentum)
    assert effective_steps(Sgd(momentum=momentum), ((steps, 1.0),)) == pytest.approx(expected, rel=1e-9)


def test_equal_steps_are_fedavg():
    """Where all clients take the same number of steps, τ_eff / τᵢ = 1."""
    local = {"steps": 3, "batch": 16, "lr": 0.1}
    models = torch.stack(on_digits("fednova", **local))
    assert torch.allclose(models, torch.stack(on_digits("fedavg", **local)), rtol=0, atol=1e-6)


def test_unequal_steps_are_not_fedavg():
    local = {"epochs": 2, "batch": 16, "lr": 0.1}
    assert not torch.allclose(on_digits("fednova", **local)[0], on_digits("fedavg", **local)[0], atol=1e-4)


def test_it_takes_linear_optimisers_only():
    experiment = Experiment.parse({"method": "fednova", "local": {"optimizer": "test_fednova:Signs"}})
    with pytest.raises(ConfigError, match=r"local\.optimizer.*test_fednova:Signs; allowed: sgd"):
        Federation(experiment)


def test_rates_that_change_by_hand():
    """h = 1, a = (0, 128), samples 1 and 3 in batches of 2, two epochs, with η = ½ and then ¼.

    The second epoch's steps count half: a₀ = 1 + ½ = 3/2 and a₁ = 2 + 1 = 3, τ_eff = ¼ · 3/2 + ¾ · 3 = 21/8.
    Steps take y − a to ½ and ¾ of it: Δ₀ = 0 and Δ₁ = (1 − ½² · ¾²) · 128 = 55/64 · 128 = 110.
    x = 21/8 · ¾ · 110 / 3 = 1155/16.
    """
    schedule = {"name": "step", "size": 1, "gamma": 0.5, "over": "epochs"}
    local = {"lr": 0.5, "batch": 2, "epochs": 2, "schedule": schedule}
    played = play({"name": "fednova"}, local, h=[1, 1], a=[0, 128], samples=[1, 3], rounds=1)
    assert played.models == near([1155 / 16])


@pytest.mark.parametrize(
    ("momentum", "state", "said"), [(0.5, "kept", 1), (0.5, "fresh", 0), (0.0, "kept", 0)]
)
def test_a_momentum_that_is_kept_is_said(momentum, state, said):
    local = {"optimizer": {"name": "sgd", "momentum": momentum}, "optimizer_state": state}
    federation = Federation(Experiment.parse({"method": "fednova", "local": local}))
    assert sum("momentum to begin at zero" in sentence for sentence in federation.warnings) == said
    federation.close()
