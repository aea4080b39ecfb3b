"""Which runs share a process."""

from mnemos.experiment.experiment import Experiment
from mnemos.studies.bundles import MOST, Bundles, suits
from mnemos.studies.study import Case


def cases(count, **changes):
    base = Experiment.parse({"rounds": 2, "engine": "vmap", **changes})
    return [Case("v", base.override({"seed": seed})) for seed in range(count)]


def sizes(given, processes, together=True):
    return [len(bundle) for bundle in Bundles.of(given, processes, together=together).bundles]


def test_small_runs_share_processes_if_there_are_more_of_them_than_processes():
    assert sizes(cases(16), 2) == [8, 8]
    assert sizes(cases(5), 2) == [3, 2]
    assert sizes(cases(2), 2) == [1, 1]
    assert sizes(cases(40), 2) == [MOST, MOST, 8]
    assert sizes(cases(5), 2, together=False) == [1] * 5


def test_others_have_one_of_their_own_after_the_bundles():
    given = [*cases(2, engine="serial"), *cases(4)]
    work = Bundles.of(given, 2, together=True)
    assert [len(bundle) for bundle in work.bundles] == [2, 2, 1, 1]
    assert (work.at_once, work.together) == (4, 4)


def test_rates_are_of_one_kind_and_losses_are_not():
    """Two losses with three seeds: those of one loss are side by side."""
    given = [case for pair in zip(cases(3), cases(3, method={"loss": "wsm"}), strict=True) for case in pair]
    bundles = Bundles.of(given, 2, together=True).bundles
    assert [{type(case.experiment.method.loss).name for case in bundle} for bundle in bundles] == [
        {"ce"},
        {"wsm"},
    ]


def test_only_short_steps_on_the_cpu_suit():
    def suited(**changes):
        return suits(Experiment.parse({"rounds": 2, **changes}))

    assert suited()
    assert not suited(engine="serial")
    assert not suited(engine={"name": "auto", "exact": True})
    assert not suited(model={"name": "mlp", "norm": "batch"})
    assert not suited(data={"name": "npz", "path": "absent.npz"})
