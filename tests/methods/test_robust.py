"""Rules for rounds with bad updates: by hand, under attack, and beside the other parts of a method."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import TrainReply, Weight
from mnemos.methods.method import methods
from mnemos.methods.part import rules
from mnemos.methods.rules.robust import GeometricMedian, Krum, MultiKrum
from mnemos.vector import Kind, Layout, Slot
from support.quadratic import digits

RANKS = {"name": "effective-rank", "linear": True}
ROBUST = [name for name in rules.names() if name != "mean"]


def fold(rule, deltas, weights=None, buffers=None):
    """What a rule makes of updates: (delta, buffers)."""
    size = len(deltas[0])
    buffers = [[0.0]] * len(deltas) if buffers is None else buffers
    layout = Layout((Slot("w", (size,), 0, Kind.OTHER),), (Slot("b", (1,), 0, Kind.BUFFER),))
    folding = rules.parse(rule).fold(layout)
    for client, delta in enumerate(deltas):
        weight = 1.0 if weights is None else weights[client]
        found = torch.tensor(buffers[client])
        update = TrainReply(client, 1, 1, 1, 0.0, torch.tensor(delta), found, {}, {})
        folding.add(update, weight if isinstance(weight, Weight) else Weight.of(weight))
    result = folding.result()
    assert result.clients == len(deltas)
    return result.delta.tolist(), result.buffers.tolist()


# by hand


def test_a_median_of_three_and_of_four():
    """By parameter: 2 of (1, 2, 100) and 0 of (−5, 0, 7); of four, the mean of the two in the middle."""
    rows = [[1.0, 0.0], [2.0, -5.0], [100.0, 7.0]]
    assert fold("median", rows, buffers=[[1.0], [5.0], [3.0]]) == ([2.0, 0.0], [3.0])
    assert fold("median", [*rows, [4.0, 1.0]])[0] == [3.0, 0.5]


def test_a_median_goes_by_weight():
    """Half of 7 is 3.5, which 9 alone has behind it; where two share the middle, who has no weight is not
    between them; per parameter, where nobody has any, nothing moves."""
    assert fold("median", [[1.0], [2.0], [9.0]], [1.0, 1.0, 5.0])[0] == [9.0]
    assert fold("median", [[1.0], [2.5], [3.0]], [1.0, 0.0, 1.0])[0] == [2.0]
    by_layer = [Weight(torch.tensor(one), 1.0) for one in ([1.0, 0.0], [0.0, 0.0], [0.0, 0.0])]
    assert fold("median", [[5.0, 5.0], [6.0, 6.0], [7.0, 7.0]], by_layer)[0] == [5.0, 0.0]


def test_a_trimmed_mean():
    """β = 0.2 of 5 cuts one at each end: the weighted mean of 2, 3 and 4 is (1·2 + 2·3 + 5·4) / 8 = 3.5.
    Of 6, ⌈1.2⌉ = 2 are cut, of two none can be."""
    rows = [[100.0], [2.0], [3.0], [4.0], [-9.0]]
    rule = {"name": "trimmed-mean", "trim": 0.2}
    assert fold(rule, rows)[0] == [3.0]
    assert fold(rule, rows, [9.0, 1.0, 2.0, 5.0, 9.0])[0] == [3.5]
    assert fold(rule, [*rows, [50.0]])[0] == [3.5]
    assert fold(rule, [[2.0], [4.0]])[0] == [3.0]


def test_a_geometric_median_by_hand():
    """On a line it is the median; whoever has more than half of the weight is it himself; in a triangle with
    an angle of at least 120° it is that corner, otherwise the point that sees all sides under 120°: in an
    equilateral one the centre."""
    rule = {"name": "geometric-median", "iterations": 2000}
    assert fold(rule, [[0.0], [1.0], [10.0]])[0] == pytest.approx([1.0], abs=1e-3)
    assert fold(rule, [[0.0], [1.0], [10.0]], [1.0, 1.0, 5.0])[0] == pytest.approx([10.0], abs=1e-3)
    assert fold(rule, [[0.0, 0.0], [2.0, 0.0], [1.0, 0.1]])[0] == pytest.approx([1.0, 0.1], abs=1e-3)
    corners = [[math.cos(t), math.sin(t)] for t in (0.0, 2 * math.pi / 3, 4 * math.pi / 3)]
    assert fold(rule, corners)[0] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_one_step_of_weiszfeld():
    """From the median of 0, 1, 3 and 10, which is 2, the distances are 2, 1, 1 and 8: shares of 4, 8, 8 and 1
    parts in 21."""
    rows, weights = torch.tensor([[0.0], [1.0], [3.0], [10.0]]), torch.ones(4).double()
    shares = GeometricMedian(iterations=1).shares(rows, weights)
    assert shares.tolist() == pytest.approx([4 / 21, 8 / 21, 8 / 21, 1 / 21])


def test_krum_takes_the_one_among_its_neighbours():
    """Of five, f = 1: the squared distances from the two nearest are 1 + 2.25, 0.25 + 1, 0.25 + 2.25,
    2.25 + 4 and (97)² + (98.5)². The second wins; without the worst, the mean is 5.5 / 4. Buffers are the
    median of all five."""
    rows = [[0.0], [1.0], [1.5], [3.0], [100.0]]
    scores = Krum().scores(torch.tensor(rows)).tolist()
    assert scores == [3.25, 1.25, 2.5, 6.25, 97.0**2 + 98.5**2]
    statistics = [[1.0], [2.0], [3.0], [4.0], [math.inf]]
    assert fold("krum", rows, buffers=statistics) == ([1.0], [3.0])
    assert fold("multi-krum", rows, buffers=statistics) == ([1.375], [3.0])
    assert fold("multi-krum", rows, [1.0, 1.0, 0.0, 2.0, 50.0])[0] == [7 / 4]


def test_krum_with_few_clients_bears_what_they_can():
    """K ≥ 2f + 3: nobody can be bad among four; of one or two, there is no telling."""
    assert [Krum(bad=0.4).tolerated(count) for count in (1, 2, 3, 4, 5, 7, 10)] == [0, 0, 0, 0, 1, 2, 3]
    assert fold("krum", [[3.0]])[0] == [3.0]
    assert fold("multi-krum", [[3.0], [5.0]])[0] == [4.0]


def test_bounded_norms():
    """Norms 5, 1 and 10, of which 5 is the median: (6, 8) becomes (3, 4). With a bound of 1 the first and the
    last become (0.6, 0.8). Buffers are their median."""
    rows, statistics = [[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], [[1.0], [2.0], [1e30]]
    assert fold("norm-bounded", rows, buffers=statistics) == (pytest.approx([2.0, 3.0]), [2.0])
    short = {"name": "norm-bounded", "bound": 1.0}
    assert fold(short, rows)[0] == pytest.approx([0.4, 2.6 / 3])
    assert fold(short, rows, [1.0, 2.0, 0.0])[0] == pytest.approx([0.2, 2.8 / 3])


@pytest.mark.parametrize("rule", ["geometric-median", "krum", "multi-krum"])
def test_an_update_like_any_other_is_no_way_in_for_buffers(rule):
    """Client 1 has the best place of all, and lies about its statistics: they are 2, the median of
    1, −1e30, 2, 4 and 3; the last client, who has twice the weight, makes it 2.5, half of 2 and 3."""
    rows = [[0.0], [1.0], [1.5], [3.0], [2.0]]
    statistics = [[1.0], [-1e30], [2.0], [4.0], [3.0]]
    assert fold(rule, rows, buffers=statistics)[1] == [2.0]
    assert fold(rule, rows, [1.0, 1.0, 1.0, 1.0, 2.0], statistics)[1] == [2.5]


# what holds for all


@pytest.mark.parametrize("rule", rules.names())
def test_what_all_agree_on_stays(rule):
    row = torch.linspace(-1, 1, 7).tolist()
    assert fold(rule, [row] * 6, buffers=[[3.0]] * 6)[0] == pytest.approx(row, abs=1e-6)


@pytest.mark.parametrize("rule", ROBUST)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_two_of_nine_cannot_move_it_far(rule, data):
    """Whatever two of nine clients send, the result stays near the honest ones: within their range for rules
    that go by parameter, and within a small multiple of their largest norm for the others. A mean is carried
    off by any of them."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    honest = torch.randn(7, 4, generator=generator)
    size = st.floats(-(2.0**100), 2.0**100, width=32)
    bad = torch.tensor(data.draw(st.lists(st.lists(size, min_size=4, max_size=4), min_size=2, max_size=2)))
    places = data.draw(st.permutations(range(9)))
    rows = torch.cat([honest, bad])[list(places)]
    options = {"trimmed-mean": {"trim": 2 / 9}, "krum": {"bad": 2 / 9}, "multi-krum": {"bad": 2 / 9}}
    found = torch.tensor(fold({"name": rule, **options.get(rule, {})}, rows.tolist())[0])
    assert found.isfinite().all()
    if rule in ("median", "trimmed-mean"):
        assert (found <= honest.max(0).values + 1e-5).all()
        assert (found >= honest.min(0).values - 1e-5).all()
    else:  # the geometric median's constant is 2 (1 − s) / (1 − 2 s) for a share s of bad ones: 2.8
        assert found.norm() <= 2.8 * honest.norm(dim=1).max() + 1e-4


@pytest.mark.parametrize("rule", ROBUST)
def test_the_order_of_clients_does_not_matter(rule):
    rows = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    weights = [1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 5.0]
    turned = fold(rule, rows.flip(0).tolist(), weights[::-1])[0]
    assert fold(rule, rows.tolist(), weights)[0] == pytest.approx(turned, abs=1e-6)


def test_numbers_are_sorted_in_chunks(monkeypatch):
    rows = torch.randn(5, 101, generator=torch.Generator().manual_seed(1)).tolist()
    whole = [fold(rule, rows) for rule in ("median", "trimmed-mean")]
    monkeypatch.setattr("mnemos.methods.rules.robust._CHUNK", 50)
    assert [fold(rule, rows) for rule in ("median", "trimmed-mean")] == whole


def test_all_of_multi_krum_without_weight_count_alike():
    assert MultiKrum().shares(torch.zeros(3, 1), torch.zeros(3)).tolist() == pytest.approx([1 / 3] * 3)


# in a method


UNIFORM = {"name": "fedavg", "weighting": "uniform"}


@pytest.mark.parametrize(
    ("rule", "method"),
    [
        *((rule, UNIFORM) for rule in ROBUST),
        ("median", {"name": "fedopt", "loss": "wsm"}),
        ("median", {"name": "feddyn"}),
    ],
)
def test_it_combines_with_methods_that_send_a_model(rule, method):
    federation, _ = digits(method | {"rule": rule}, 1)
    plain, _ = digits(method, 1)
    assert federation.server.model.isfinite().all()
    assert not torch.equal(federation.server.model, plain.server.model)


def test_layers_can_be_weighed():
    federation, _ = digits({"name": "fedavg", "weighting": RANKS, "rule": "median"}, 1)
    assert federation.server.model.isfinite().all()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"name": "scaffold"}, "with scaffold a client also sends scaffold.c"),
        ({"name": "fedcurv"}, "with curvature a client also sends"),
        ({"name": "gma"}, "found krum; gma has a mean of its own"),
        ({"name": "fednova"}, "found krum; fednova has a mean of its own"),
        (
            {"name": "fedavg", "weighting": RANKS},
            "found krum, which can't weigh by effective-rank",
        ),
        ({"name": "fedavg", "weighting": "label-owners"}, "found krum, which can't weigh by label-owners"),
    ],
)
def test_what_does_not_fit_is_refused(method, words):
    with pytest.raises(ConfigError, match=f"method.rule: .*{words}"):
        Federation(Experiment.parse({"method": {**method, "rule": "krum"}}))


@pytest.mark.parametrize("name", methods.names())
def test_parts_say_what_they_send(name):
    changes = {"method": name, "participation": 0.01}
    if name == "feder":
        changes["method.weighting"] = RANKS
    if name == "uga":
        changes["local.epochs"] = 2
    federation = Federation(Experiment().override(changes))
    with federation.open() as runner:
        (update,) = runner.run(federation.requests(1, runner))
    federation.close()
    expected = federation.method.sends(federation.layout)
    assert {name: (sent.shape, sent.dtype) for name, sent in update.change.items()} == {
        name: (example.shape, example.dtype) for name, example in expected.items()
    }
