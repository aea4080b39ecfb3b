"""A planted culprit is ranked first: one of the ten settings of benchmarks/culprit.py."""

from culprit import JOINS, TEN, find


def test_it_is_ranked_first(tmp_path):
    found = find("flips-fedavg", tmp_path, JOINS)
    assert (found.culprit, found.shapley) == (0, 1)


def test_there_are_ten():
    """Five clients with flipped labels of the class, and five without it and with 20 times the steps."""
    kinds = [name.partition("-")[0] for name in TEN]
    assert sorted(kinds) == ["flips"] * 5 + ["greedy"] * 5
