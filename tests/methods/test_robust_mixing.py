"""What is done to updates before a rule, and centred clipping: by hand, by properties, and in rounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemos.common import rng
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Occasion, TrainReply, Weight
from mnemos.methods.part import rules
from mnemos.methods.rules.mixing import mixings
from mnemos.vector import Kind, Layout, Slot, square_distances, square_sum
from support.interrupt import assert_repeatable
from support.quadratic import digits

ROBUST = [name for name in rules.names() if name != "mean"]
MIXINGS = ["none", {"name": "nearest", "bad": 2 / 9}, "bucketing"]
CENTRE = "centred-clipping.centre"


def fold(rule, deltas, weights=None, buffers=None, centre=None, clients=None, number=1, seed=0):
    """What a rule makes of updates: (delta, buffers)."""
    size = len(deltas[0])
    layout = Layout((Slot("w", (size,), 0, Kind.OTHER),), (Slot("b", (1,), 0, Kind.BUFFER),))
    state = {} if centre is None else {CENTRE: torch.as_tensor(centre)}
    folding = rules.parse(rule).during(Occasion(state, seed, number)).fold(layout)
    for place, delta in enumerate(deltas):
        statistics = torch.tensor([0.0] if buffers is None else buffers[place])
        client = place if clients is None else clients[place]
        update = TrainReply(client, 1, 1, 1, 0.0, torch.as_tensor(delta), statistics, {}, {})
        weight = 1.0 if weights is None else weights[place]
        folding.add(update, weight if isinstance(weight, Weight) else Weight.of(weight))
    result = folding.result()
    return result.delta.tolist(), result.buffers.tolist()


def mixed(mixing, rows, weights=None, clients=None, number=1):
    """Rows and weights after the mixing."""
    weights = torch.ones(len(rows), 1) if weights is None else torch.tensor(weights)
    clients = list(range(len(rows))) if clients is None else clients
    found, after = mixings.parse(mixing).mix(torch.tensor(rows), weights, clients, Occasion({}, 0, number))
    return found.tolist(), after.tolist()


# nearest-neighbour mixing by hand


def test_each_update_becomes_the_mean_of_its_neighbours():
    """Of 0, 1, 3 and 100 with f = 1: the three nearest of 0, 1 and 3 are these three, with the mean 4/3;
    those of 100 are 100, 3 and 1, with the mean 104/3."""
    nearest, updates = {"name": "nearest", "bad": 0.25}, [[0.0], [1.0], [3.0], [100.0]]
    rows, weights = mixed(nearest, updates)
    assert [row[0] for row in rows] == pytest.approx([4 / 3, 4 / 3, 4 / 3, 104 / 3])
    assert weights == [[1.0]] * 4
    assert fold({"name": "median", "before": nearest}, updates)[0] == pytest.approx([4 / 3])


def test_neighbours_count_by_their_weights():
    """Of 0, 2 and 9 with f = 1 and weights 1, 3 and 4: 0 and 2 have each other, (0 + 6) / 4; 9 has 2 beside
    it, (6 + 36) / 7. Each row has its own client's weight, whatever it was mixed from."""
    rows, weights = mixed({"name": "nearest", "bad": 0.3}, [[0.0], [2.0], [9.0]], [[1.0], [3.0], [4.0]])
    assert [row[0] for row in rows] == pytest.approx([1.5, 1.5, 6.0])
    assert weights == [[1.0], [3.0], [4.0]]
    by_parameter = [[1.0, 0.0], [3.0, 0.0], [4.0, 2.0]]
    rows, _ = mixed({"name": "nearest", "bad": 0.3}, [[0.0, 0.0], [2.0, 2.0], [9.0, 9.0]], by_parameter)
    assert rows[0] == pytest.approx([1.5, 0.0])  # of the second parameter neither has a say
    assert rows[2] == pytest.approx([6.0, 9.0])


def test_a_share_that_leaves_no_majority_is_what_it_can_be():
    """Of three f is 1 at most: the mean of two. Of two or one nobody can be bad."""
    nearest = {"name": "nearest", "bad": 0.49}
    assert [row[0] for row in mixed(nearest, [[0.0], [1.0], [3.0]])[0]] == [0.5, 0.5, 2.0]
    assert mixed(nearest, [[0.0], [4.0]])[0] == [[2.0], [2.0]]
    assert mixed(nearest, [[4.0]])[0] == [[4.0]]


# bucketing by hand


def test_buckets_are_drawn_by_seed_and_round():
    """Clients in the order of their numbers are permuted by the key, and every two of them make a bucket; the
    fifth has one of its own. A bucket has the weights of its clients together."""
    rows, weights = [[0.0], [1.0], [2.0], [3.0], [4.0]], [[1.0], [2.0], [3.0], [4.0], [5.0]]
    order = torch.randperm(5, generator=rng.generator(0, "buckets", 7)).tolist()
    first, second, last = order[:2], order[2:4], order[4]
    found, after = mixed({"name": "bucketing", "size": 2}, rows, weights, number=7)

    def mean(some):
        return sum(rows[k][0] * weights[k][0] for k in some) / sum(weights[k][0] for k in some)

    assert [row[0] for row in found] == pytest.approx([mean(first), mean(second), rows[last][0]])
    assert [w[0] for w in after] == [sum(weights[k][0] for k in some) for some in (first, second, [last])]
    others = {str(mixed({"name": "bucketing", "size": 2}, rows, weights, number=n)) for n in range(1, 9)}
    assert len(others) > 1


def test_buckets_do_not_depend_on_who_is_back_first():
    rows = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).tolist()
    clients = [4, 9, 1, 30, 2, 8, 5]
    turned = [6, 2, 0, 5, 1, 4, 3]
    found = sorted(mixed("bucketing", rows, clients=clients)[0])
    again = sorted(mixed("bucketing", [rows[k] for k in turned], clients=[clients[k] for k in turned])[0])
    torch.testing.assert_close(torch.tensor(found), torch.tensor(again))


def test_a_rule_behind_buckets_bears_as_many_bad_clients_as_before():
    """Two of ten may be bad, and spoil two of five buckets at most: as many are cut at each end, not the one
    that a fifth of five would be. What is left is the middle bucket."""
    rows = [[float(k)] for k in range(10)]
    rule = {"name": "trimmed-mean", "trim": 0.2, "before": "bucketing"}
    middle = sorted(row[0] for row in mixed("bucketing", rows)[0])[2]
    assert fold(rule, rows)[0] == [middle]
    assert rules.parse({"name": "krum", "bad": 0.2}).of(10).tolerated(7) == 2
    assert rules.parse({"name": "krum", "bad": 0.2}).tolerated(7) == 2
    assert rules.parse({"name": "krum", "bad": 0.2}).of(10).tolerated(5) == 1  # K ≥ 2 f + 3


def test_a_bucket_of_everybody_is_the_mean_and_is_warned_of():
    rule = rules.parse({"name": "median", "before": {"name": "bucketing", "size": 4}})
    assert fold(rule, [[0.0], [1.0], [5.0]])[0] == [2.0]
    assert rule.fewest == 9  # three buckets: two full ones, and one more
    assert rules.parse({"name": "median", "before": "nearest"}).fewest == 3


@pytest.mark.parametrize("mixing", ["nearest", "bucketing"])
def test_buffers_are_not_mixed(mixing):
    """One client has an update like any other, and statistics that aren't: mixed, they would be in most rows.
    Their median is 3, of 1, 2, 3, 4 and 1e30."""
    rows = [[1.0], [1.1], [0.9], [1.2], [1.0]]
    statistics = [[1.0], [2.0], [1e30], [3.0], [4.0]]
    for rule in ("median", "geometric-median", "centred-clipping"):
        assert fold({"name": rule, "before": mixing}, rows, buffers=statistics)[1] == [3.0]


# centred clipping by hand


def test_updates_are_clipped_around_the_last_aggregate():
    """v = (1, 0). The gaps of (4, 4), (1, 1) and (1, −10) are (3, 4), (0, 1) and (0, −10), of length 5, 1 and
    10. With τ = 5, the last is halved: the mean is (3, 4 + 1 − 5) / 3 = (1, 0), and v becomes (2, 0). The
    median of the lengths is 5, too. With weights 1, 1 and 2 it is (3, 4 + 1 − 10) / 4."""
    rows, centre = [[4.0, 4.0], [1.0, 1.0], [1.0, -10.0]], [1.0, 0.0]
    for rule in ("centred-clipping", {"name": "centred-clipping", "radius": 5.0}):
        assert fold(rule, rows, centre=centre)[0] == pytest.approx([2.0, 0.0])
        weighted = fold(rule, rows, [1.0, 1.0, 2.0], centre=centre)[0]
        assert weighted == pytest.approx([1.75, -1.25])
    by_parameter = [Weight(torch.tensor(one), 1.0) for one in ([1.0, 0.0], [1.0, 0.0], [2.0, 0.0])]
    assert fold("centred-clipping", rows, by_parameter, centre=centre)[0] == pytest.approx([1.75, 0.0])


def test_of_an_even_number_the_lower_median_is_the_radius():
    """From 0, lengths 1, 2, 3 and 8: τ = 2, and (1 + 2 + 2 + 2) / 4."""
    assert fold("centred-clipping", [[1.0], [2.0], [3.0], [8.0]])[0] == pytest.approx([1.75])


def test_a_second_iteration_starts_where_the_first_has_led():
    """1, 2 and 9 from 0 with τ = 2: (1 + 2 + 2) / 3 = 5/3. Then the gaps are −2/3, 1/3 and 22/3, of which the
    median is 2/3: 5/3 + (−2/3 + 1/3 + 2/3) / 3 = 16/9. With τ = 2 given: 5/3 + (−2/3 + 1/3 + 2) / 3."""
    rows = [[1.0], [2.0], [9.0]]
    assert fold({"name": "centred-clipping", "iterations": 2}, rows)[0] == pytest.approx([16 / 9])
    given_radius = {"name": "centred-clipping", "iterations": 2, "radius": 2.0}
    assert fold(given_radius, rows)[0] == pytest.approx([5 / 3 + 5 / 9])


def test_the_centre_is_the_last_aggregate_and_is_kept():
    federation, _ = digits({"name": "fedavg", "weighting": "uniform", "rule": "centred-clipping"}, 2)
    start, _ = digits({"name": "fedavg", "weighting": "uniform", "rule": "centred-clipping"}, 1)
    moved = federation.server.model - start.server.model
    torch.testing.assert_close(federation.server.state[CENTRE], moved, rtol=1e-4, atol=1e-6)


def test_a_radius_that_is_given_holds_for_one_client():
    assert rules.parse("centred-clipping").fewest == 3
    assert rules.parse({"name": "centred-clipping", "radius": 1.0}).fewest == 1
    assert fold({"name": "centred-clipping", "radius": 1.0}, [[7.0]])[0] == [1.0]


# what holds for all


def combinations():
    return [
        pytest.param(
            {"name": rule, "before": before}, id=f"{before if isinstance(before, str) else 'nearest'}-{rule}"
        )
        for rule in ROBUST
        for before in MIXINGS
    ]


def without_ties():
    """Neighbours that share their neighbours become equal rows, between which Krum's scores can't choose."""
    return [one for one in combinations() if one.id not in ("nearest-krum", "nearest-multi-krum")]


@pytest.mark.parametrize("rule", without_ties())
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999), data=st.data())
def test_the_order_of_clients_does_not_matter(rule, seed, data):
    """Mixed rows may be equal, and which of them is cut or left out is open: there all weigh the same."""
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(seed))
    cuts = rule["name"] in ("trimmed-mean", "multi-krum")
    weights = [2.0] * 9 if cuts else [1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 5.0, 1.5, 2.5]
    order = data.draw(st.permutations(range(9)))
    centre = torch.ones(4) / 3
    plain = fold(rule, rows.tolist(), weights, centre=centre)[0]
    turned = fold(rule, rows[order].tolist(), [weights[k] for k in order], centre=centre, clients=order)[0]
    # Steps towards a geometric median that is at one of the updates are short: the last ones aren't made.
    assert turned == pytest.approx(plain, abs=1e-3 if rule["name"] == "geometric-median" else 1e-5)


@pytest.mark.parametrize("rule", [one for one in combinations() if "norm-bounded" not in one.id])
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999), shift=st.lists(st.floats(-8, 8, width=16), min_size=4, max_size=4))
def test_updates_that_are_moved_move_the_result(rule, seed, shift):
    """By the same; centred clipping, if its centre is moved, too. A bound of norms is around 0 by design."""
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(seed))
    by = torch.tensor(shift)
    if rule["name"] == "geometric-median":
        rule = {**rule, "smoothing": 1e-3, "iterations": 2000}  # it depends on the norms, but for rounding
    here = torch.tensor(fold(rule, rows.tolist(), centre=torch.ones(4) / 3)[0])
    there = torch.tensor(fold(rule, (rows + by).tolist(), centre=torch.ones(4) / 3 + by)[0])
    torch.testing.assert_close(there, here + by, rtol=0, atol=2e-2 if "smoothing" in rule else 1e-4)


@pytest.mark.parametrize("rule", combinations())
@settings(deadline=None, max_examples=25)
@given(row=st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=3, max_size=3))
def test_what_all_agree_on_stays(rule, row):
    found = fold(rule, [row] * 9, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])[0]
    assert found == pytest.approx(row, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize("rule", combinations())
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_two_of_nine_cannot_move_it_far(rule, data):
    """Whatever they send, up to 2¹⁰⁰. A row of honest clients alone is no longer than their longest update;
    of five buckets two at most have a bad client; and of nine mixed rows, those of the seven honest clients
    are means of seven updates, each of which is honest, or nearer to an honest one than another honest one
    is, and so no longer than three times the longest. The rules' own constants come on top."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    honest = torch.randn(7, 4, generator=generator)
    size = st.floats(-(2.0**100), 2.0**100, width=32)
    bad = torch.tensor(data.draw(st.lists(st.lists(size, min_size=4, max_size=4), min_size=2, max_size=2)))
    places = data.draw(st.permutations(range(9)))
    rows = torch.cat([honest, bad])[list(places)]
    options = {"trimmed-mean": {"trim": 2 / 9}, "krum": {"bad": 2 / 9}, "multi-krum": {"bad": 2 / 9}}
    if rule["name"] in ("krum", "multi-krum") and rule["before"] == "bucketing":
        return  # five rows bear one bad one: K ≥ 2 f + 3
    found = torch.tensor(fold({**rule, **options.get(rule["name"], {})}, rows.tolist())[0])
    longest = float(honest.norm(dim=1).max())
    # The geometric median's constant is 2 (1 − s) / (1 − 2 s): 2.8 for two of nine, 6 for two of five.
    constant = {"none": 2.8, "bucketing": 6.0}.get(
        rule["before"] if isinstance(rule["before"], str) else "", 8.4
    )
    assert found.isfinite().all()
    assert found.norm() <= constant * longest + 1e-4


@given(st.integers(1, 6), st.integers(1, 9))
def test_distances_are_the_same_in_one_piece_and_row_by_row(count, size):
    rows = torch.randn(count, size, generator=torch.Generator().manual_seed(count * 10 + size))
    apart = square_distances(rows)
    for one in range(count):
        for other in range(count):
            assert apart[one, other] == square_sum(rows[one] - rows[other])


def test_large_cohorts_are_compared_row_by_row(monkeypatch):
    rows = torch.randn(5, 1000, generator=torch.Generator().manual_seed(1))
    whole = square_distances(rows)
    monkeypatch.setattr("mnemos.vector._AT_ONCE", 100)
    assert torch.equal(square_distances(rows), whole)


# in a method


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "centred-clipping", "before": "nearest"},
        {"name": "median", "before": {"name": "bucketing", "size": 2}},
        {"name": "krum", "before": {"name": "nearest", "bad": 0.1}},
    ],
)
def test_it_is_the_same_on_every_engine_and_after_a_resume(rule, tmp_path):
    """The centre is in the checkpoint, and buckets go by the round."""
    description = Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 10},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 0.7,
            "method": {"name": "fedavg", "rule": rule},
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 4,
            "engine": "serial",
        }
    )
    assert_repeatable(description, tmp_path)


def test_layers_can_be_weighed_behind_a_mixing():
    ranks = {"name": "effective-rank", "linear": True}
    for rule in (
        {"name": "median", "before": "nearest"},
        {"name": "centred-clipping", "before": "bucketing"},
    ):
        federation, _ = digits({"name": "fedavg", "weighting": ranks, "rule": rule}, 1)
        assert federation.server.model.isfinite().all()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"name": "median", "before": "nearby"}, "method.rule.before: there is no mixing 'nearby'"),
        ({"name": "median", "before": {"name": "nearest", "bad": 0.5}}, "method.rule.before.bad: found 0.5"),
        ({"name": "median", "before": {"name": "bucketing", "size": 0}}, "method.rule.before.size: found 0"),
        ({"name": "mean", "before": "nearest"}, "method.rule.before"),
        ({"name": "centred-clipping", "radius": 0}, "method.rule.radius: found 0"),
    ],
)
def test_wrong_options_are_one_sentence(rule, words):
    with pytest.raises(ConfigError, match=words):
        Experiment.parse({"method": {"name": "fedavg", "rule": rule}})


def test_peers_have_no_centre():
    of = [{"model": {"name": "mlp", "hidden": [8]}}]
    description = Experiment.parse(
        {
            "model": {"name": "mixed", "of": of, "peers": True},
            "method": {"name": "fedavg", "rule": "centred-clipping"},
        }
    )
    with pytest.raises(ConfigError, match=r"method\.rule: found centred-clipping; it takes a server"):
        Federation(description)


def test_numbers_that_only_doubles_can_hold():
    """Two updates at opposite ends of what a float can hold: their distance from the centre is none."""
    rows = [[3e38], [-3e38], [1.0], [2.0], [3.0]]
    assert math.isfinite(fold("centred-clipping", rows, centre=[-3e38])[0][0])
