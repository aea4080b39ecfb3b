"""FedER, stable-rank and blended weights against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Cohort, Server, TrainReply
from mnemos.methods.part import weightings
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.methods.presets.feder import FedEr
from mnemos.optim.local import Local
from mnemos.vector import Layout
from support.play import play

LN2 = math.log(2)


class ThreeLayers(nn.Module):
    """Three convolutions with kernels of one, batch-norms after the first and the last, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Parameter(torch.zeros(2))
        self.a = nn.Conv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 1, bias=False)
        self.c = nn.Conv2d(8, 8, 1)
        self.late = nn.BatchNorm2d(8)
        self.classifier = nn.Linear(8, 3)


LAYOUT = Layout.of(ThreeLayers())


def diagonal(*values):
    return torch.diag(torch.tensor([*map(float, values), *[0.0] * (8 - len(values))]))


def model(a, b, c, others):
    """A model's vector with these diagonals, and one number for all that isn't a convolution."""
    state = {slot.name: torch.full(slot.shape, float(others)) for slot in LAYOUT.parameters}
    state |= {"a.weight": diagonal(*a), "b.weight": diagonal(*b), "c.weight": diagonal(*c)}
    return torch.cat([state[slot.name].reshape(-1) for slot in LAYOUT.parameters])


def update(client, end, start, buffers=0.0, samples=1):
    delta = end - start
    return TrainReply(client, 1, samples, 1, 0.0, delta, torch.full((LAYOUT.buffer_size,), buffers), {}, {})


def aggregate(method, ends, start=None, buffers=(0.0, 0.0, 0.0), samples=(1, 1, 1)):
    """The server after one round from these models."""
    start = torch.zeros(LAYOUT.size) if start is None else start
    updates = tuple(update(k, end, start, buffers[k % 3], samples[k % 3]) for k, end in enumerate(ends))
    fold = method.fold(LAYOUT)
    cohort = Cohort(start, torch.zeros(0), updates, LAYOUT)
    for one, weight in zip(updates, method.weighting.weigh_cohort(cohort), strict=True):
        fold.add(one, weight)
    before = Server(start, torch.zeros(LAYOUT.buffer_size), {})
    return method.server_step(before, fold.result())


CLIENTS = [model((4, 4), (2, 1, 1), (), 1), model((1,), (3, 3), (), 5)]
"""Exactly low rank, which EVBMF leaves as it is. Effective ranks (entropies) of the layers:

a: ½, ½ → ln 2; a single value → 0.   b: ½, ¼, ¼ → 1.5 ln 2; ½, ½ → ln 2.   c: nothing → 0; 0.
"""


@pytest.mark.parametrize("start", [0.0, 0.7])
def test_algorithm_4_by_hand(start):
    """Ranks are floored at 0.001, so α of client 0 is, with r = ln 2 / (ln 2 + 0.001):

    a: r; b: 1.5 / 2.5 = 0.6; c: ½. What follows a convolution takes its α: a's bias and the batch-norm r,
    c's bias and the classifier ½. What comes before the first is averaged.
    Client 0's other tensors are 1 and client 1's 5, so they become 5 − 4 α.
    """
    r = LN2 / (LN2 + 0.001)
    server = aggregate(FedEr(), CLIENTS, torch.full((LAYOUT.size,), start), buffers=(1.0, 5.0, 0.0))
    found = LAYOUT.views(server.model)
    expected = {
        "a.weight": [4 * r + (1 - r), 4 * r, 0],
        "b.weight": [0.6 * 2 + 0.4 * 3, 0.6 * 1 + 0.4 * 3, 0.6 * 1],
        "c.weight": [0, 0, 0],
    }
    for name, values in expected.items():
        assert torch.diagonal(found[name][:, :, 0, 0])[:3].tolist() == pytest.approx(values, abs=1e-6)
    others = {"early": 0.5, "a.bias": r, "norm.weight": r, "norm.bias": r, "c.bias": 0.5, "late.weight": 0.5}
    others |= {"classifier.weight": 0.5, "classifier.bias": 0.5}
    for name, alpha in others.items():
        assert found[name].flatten().tolist() == pytest.approx([5 - 4 * alpha] * found[name].numel())
    half = LAYOUT.buffer_size // 2
    assert server.buffers.tolist() == pytest.approx([5 - 4 * r] * half + [5 - 4 * 0.5] * half)


def test_algorithm_3_by_hand():
    """No floor: a is client 0's alone, b as before; c, where nobody has a rank, and the rest are means."""
    server = aggregate(FedEr.parse({"weighting": {"name": "effective-rank", "form": "initial"}}), CLIENTS)
    found = LAYOUT.views(server.model)
    assert torch.diagonal(found["a.weight"][:, :, 0, 0])[:2].tolist() == [4, 4]
    assert float(found["b.weight"][0, 0, 0, 0]) == pytest.approx(0.6 * 2 + 0.4 * 3)
    for name in ("early", "a.bias", "norm.weight", "c.bias", "classifier.weight"):
        assert torch.equal(found[name], torch.full_like(found[name], 3.0))


def test_the_letter_of_the_thesis_by_hand():
    """The floor in the denominator alone: α = ln 2 / (ln 2 + 0.001) and 0 for a, so a shrinks by that much;
    c's α are 0 / 0.002, so c and all that follows it become zero, whatever the model was before; statistics
    are a mean."""
    letter = FedEr.parse({"weighting": {"name": "effective-rank", "floor_in": "denominator"}})
    r = LN2 / (LN2 + 0.001)
    server = aggregate(letter, CLIENTS, torch.full((LAYOUT.size,), 0.7), buffers=(1.0, 5.0, 0.0))
    found = LAYOUT.views(server.model)
    assert torch.diagonal(found["a.weight"][:, :, 0, 0])[:2].tolist() == pytest.approx([4 * r, 4 * r])
    assert found["a.bias"].tolist() == pytest.approx([r * 1] * 8)
    assert float(found["b.weight"][0, 0, 0, 0]) == pytest.approx(0.6 * 2 + 0.4 * 3)
    for name in ("c.weight", "c.bias", "late.weight", "classifier.weight"):
        assert not found[name].any()
    assert server.buffers[-1].tolist() == 3.0


def test_the_letter_in_a_blend_shrinks_once():
    """Both metrics by the letter, half and half. Of a, α is r and 0 by effective rank, and by stable rank,
    Σd/(8 d₁) = ¼ and ⅛, it is ⅔ and ⅓; so a's mass is ½ (r + 1). Of b, client 0's are 0.6 and ½."""
    metrics = [{"name": name, "floor_in": "denominator"} for name in ("effective-rank", "stable-rank")]
    blend = {"name": "blend", "of": [{"weighting": metric, "share": 1} for metric in metrics]}
    found = LAYOUT.views(aggregate(FedEr.parse({"weighting": blend}), CLIENTS).model)
    r = LN2 / (LN2 + 0.001)
    assert found["a.weight"][1, 1].item() == pytest.approx(4 * (r + 2 / 3) / 2)
    assert found["a.bias"].tolist() == pytest.approx([(r * 1 + (2 / 3 * 1 + 1 / 3 * 5)) / 2] * 8)
    assert found["b.weight"][0, 0].item() == pytest.approx(0.55 * 2 + 0.45 * 3)


def test_the_letter_is_for_the_plain_server_step():
    letter = {"name": "effective-rank", "floor_in": "denominator"}
    with pytest.raises(ConfigError, match=r"method\.server: found adam"):
        FedEr.parse({"weighting": letter, "server": "adam"}).check(LAYOUT, Local(), 3)


@pytest.mark.parametrize(
    ("options", "alpha"),
    [
        # b: Σd/d₁ is 2 for client 0 and 2 for client 1; Σd²/d₁² is 1.5 and 2
        ({"name": "stable-rank"}, 0.5),
        ({"name": "stable-rank", "definition": "textbook"}, 1.5 / 3.5),
        ({"name": "effective-rank", "exponential": True}, 2**1.5 / (2**1.5 + 2)),
    ],
)
def test_other_metrics_by_hand(options, alpha):
    server = aggregate(FedEr.parse({"weighting": options}), CLIENTS)
    found = float(LAYOUT.views(server.model)["b.weight"][0, 0, 0, 0])
    assert found == pytest.approx(alpha * 2 + (1 - alpha) * 3)


@pytest.mark.parametrize(
    ("options", "ratio"),
    [
        ({}, math.sqrt(3.25)),
        ({"log": True, "floor": 0.01}, 1.0),  # both logarithms are negative, and so at the floor
        ({"linear": True}, math.sqrt(3.25)),  # a classifier of equal numbers has rank one, and so entropy 0
    ],
)
def test_one_number_for_a_whole_model_by_hand(options, ratio):
    """Equation 2.10 before its logarithm. Of d = 6 sides, client 0 has ln 2 and 1.5 ln 2 twice each, and
    client 1 has ln 2 twice: √(2 · 3.25 ln² 2 / 6) and √(2 ln² 2 / 6), so α₀ / α₁ = √3.25 for every tensor."""
    method = FedAvg.parse({"weighting": {"name": "network-rank", **options}})
    server = aggregate(method, CLIENTS, torch.full((LAYOUT.size,), 0.7), buffers=(1.0, 5.0, 0.0))
    alpha = ratio / (ratio + 1)
    found = LAYOUT.views(server.model)
    assert float(found["a.weight"][0, 0, 0, 0]) == pytest.approx(4 * alpha + (1 - alpha))
    for name in ("early", "a.bias", "classifier.weight"):
        assert found[name].flatten().tolist() == pytest.approx([5 - 4 * alpha] * found[name].numel())
    assert server.buffers.tolist() == pytest.approx([5 - 4 * alpha] * LAYOUT.buffer_size)


def test_the_logarithm_of_a_models_number_by_hand():
    """Eight equal singular values have the entropy ln 8 = 3 ln 2 = 2.08, and four of them ln 4 = 1.39, on all
    sides: logarithms of 0.732 and 0.327."""
    equal = [model(*[(2,) * count] * 3, 0) for count in (8, 4)]
    method = FedAvg.parse({"weighting": {"name": "network-rank", "log": True, "noisy": True}})
    updates = tuple(update(k, end, torch.zeros(LAYOUT.size)) for k, end in enumerate(equal))
    cohort = Cohort(torch.zeros(LAYOUT.size), torch.zeros(0), updates, LAYOUT)
    logs = [math.log(math.log(8)), math.log(math.log(4))]
    found = [weight.parameters for weight in method.weighting.weigh_cohort(cohort)]
    assert found == pytest.approx([2 * one / sum(logs) for one in logs])


@pytest.mark.parametrize("count", [2, 3, 7, 49])
@pytest.mark.parametrize(
    "weighting",
    ["effective-rank", "stable-rank", {"name": "effective-rank", "form": "initial"},
     {"effective-rank": 0.3, "uniform": 0.7}],
)  # fmt: skip
def test_with_equal_ranks_it_is_the_plain_mean_bit_for_bit(count, weighting):
    """Ranks don't change with a scale, so clients with the same weights times a number have equal ranks."""
    generator = torch.Generator().manual_seed(count)
    one = torch.randn(LAYOUT.size, generator=generator)
    # Powers of two: scaled without rounding, so that ranks are equal to the last bit.
    ends = [one * 2.0 ** (k % 5) for k in range(count)]
    start = torch.zeros(LAYOUT.size)
    by_rank = aggregate(FedEr.parse({"weighting": weighting}), ends, start)
    mean = aggregate(FedAvg.parse({"weighting": "uniform"}), ends, start)
    assert torch.equal(by_rank.model, mean.model)


numbers = st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, math.inf, math.nan])


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=5),
    name=st.sampled_from(["effective-rank", "stable-rank"]),
    form=st.sampled_from(["improved", "initial"]),
    noisy=st.booleans(),
)
def test_weights_sum_to_one_for_any_input(rows, name, form, noisy):
    layout = Layout.of(nn.Sequential(nn.Conv2d(2, 2, 1, bias=False), nn.BatchNorm2d(2)))
    rest = [1.0] * (layout.size - 4)
    start = torch.zeros(layout.size)
    buffers = torch.zeros(layout.buffer_size)
    updates = tuple(
        TrainReply(k, 1, 1, 1, 0.0, torch.tensor(row + rest), buffers, {}, {}) for k, row in enumerate(rows)
    )
    weighting = weightings.parse({"name": name, "form": form, "noisy": noisy})
    weights = list(weighting.weigh_cohort(Cohort(start, torch.zeros(0), updates, layout)))
    for column in zip(*weights, strict=True):
        shares = torch.stack(column) / len(rows)
        assert (shares >= 0).all()
        torch.testing.assert_close(shares.sum(0), torch.ones_like(shares[0]), rtol=0, atol=1e-6)


def test_a_blend_by_hand():
    """Half by effective rank, b's being 0.6 and 0.4; half by samples, 1 of 4 and 3 of 4: 0.425, 0.575."""
    blend = FedEr.parse({"weighting": {"effective-rank": 0.5, "samples": 0.5}})
    server = aggregate(blend, CLIENTS, samples=(1, 3, 0))
    assert float(LAYOUT.views(server.model)["b.weight"][0, 0, 0, 0]) == pytest.approx(0.425 * 2 + 0.575 * 3)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (2, 2)])
def test_only_the_ratio_of_a_blends_shares_counts(shares):
    rank, samples = shares
    blend = FedEr.parse({"weighting": {"effective-rank": rank, "samples": samples}})
    again = FedEr.parse(blend.model_dump(mode="json"))
    assert again == blend
    server = aggregate(blend, CLIENTS, samples=(1, 3, 0))
    assert float(LAYOUT.views(server.model)["b.weight"][0, 0, 0, 0]) == pytest.approx(0.425 * 2 + 0.575 * 3)


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        ({"effective-rank": 0.5, "sample": 0.5}, "did you mean 'samples'"),
        ({"effective-rank": -1, "samples": 0.5}, "allowed: > 0"),
        ({"effective-rank": 0.5, "blend": 0.5}, "must be given"),
        ({"name": "blend", "of": 2 * [{"weighting": "samples", "share": 1}]}, "each weighting once"),
        ({"name": "blend", "of": []}, "at least 1"),
        ({"name": "effective-rank", "form": "better"}, "improved"),
        ({"name": "effective-rank", "samples": 0.5}, "method.weighting.samples: unknown field"),
    ],
)
def test_a_wrong_weighting_is_one_sentence(weighting, words):
    with pytest.raises(ConfigError, match=words) as error:
        Experiment.parse({"method": {"name": "feder", "weighting": weighting}})
    assert str(error.value).startswith("method.weighting")


def test_a_model_without_convolutions_needs_linear_layers():
    layout = Layout.of(nn.Linear(4, 3))
    with pytest.raises(ConfigError, match="linear: true"):
        FedEr().check(layout, Local(), 3)
    FedEr.parse({"weighting": {"name": "effective-rank", "linear": True}}).check(layout, Local(), 3)


def test_weights_are_recorded_for_each_client_and_layer():
    federation = Federation(
        Experiment.parse(
            {
                "model": {"name": "cnn"},
                "method": "feder",
                "partition": {"clients": 3},
                "participation": 1.0,
                "rounds": 1,
                "engine": "serial",
            }
        )
    )
    outcome = play(federation, 1)[1][0]
    found = [record for record in outcome.records if record.name == "weight"]
    layers = {record.layer for record in found}
    assert len(layers) >= 2
    assert {record.client for record in found} == {0, 1, 2}
    for layer in layers:
        assert sum(record.value for record in found if record.layer == layer) == pytest.approx(1)
