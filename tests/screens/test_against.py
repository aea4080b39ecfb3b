"""Claims beside those of the cohort, by numbers worked out by hand; and in federations that are lied to."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import nn

import mnemos
from mnemos.clocks.in_flight import screened
from mnemos.engines.engine import Lost
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Cohort, TrainReply
from mnemos.runs.execute import resume
from mnemos.screens.against import Norms, SampleCounts
from mnemos.vector import Layout
from support.interrupt import Stop

NOTHING = torch.zeros(0)


def cohort(lengths, samples=None, buffers=None, change=None, server=NOTHING, layout=None):
    counts, count = samples or [1] * len(lengths), len(lengths)
    updates = tuple(
        TrainReply(10 + k, 1, n, 1, 0.0, torch.tensor([3.0, 4.0]) * length / 5, found, beside, {})
        for k, (length, n, found, beside) in enumerate(
            zip(lengths, counts, buffers or [NOTHING] * count, change or [{}] * count, strict=True)
        )
    )
    return Cohort(torch.zeros(2), server, updates, layout or Layout.of(nn.Linear(1, 1)))


def judged(screen, *args, memory=None, **options):
    return screen.judge(cohort(*args, **options), torch.zeros(2), memory or {})


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
    assert judged(Norms(most=most), lengths) == dict.fromkeys(found, "norm")


def test_norms_are_measured_beyond_the_range_of_single_precision():
    assert judged(Norms(), [1.0, 1.0, 2e38, 1.0]) == {12: "norm"}


def test_sample_counts():
    """Median 10: up to 200 are accepted."""
    assert judged(SampleCounts(), [1.0] * 4, [5, 10, 10, 201]) == {13: "sample count"}
    assert judged(SampleCounts(), [1.0] * 4, [5, 10, 10, 200]) == {}


def test_statistics_are_judged_by_their_distance_from_the_servers():
    """A mean, a variance and a counter; the server has (7, 1, 90). Distances are 1, 2 and 10.1, of which the
    median believes 5 · 2; what the counter says isn't one."""
    layout = Layout.of(nn.BatchNorm1d(1))
    buffers = [torch.tensor(one) for one in ([8.0, 1.0, 1e6], [7.0, 3.0, 93.0], [-3.1, 1.0, 91.0])]
    options = {"buffers": buffers, "server": torch.tensor([7.0, 1.0, 90.0]), "layout": layout}
    assert judged(Norms(beside=5), [1.0] * 3, **options) == {12: "norm of buffers"}
    assert judged(Norms(beside=5.1), [1.0] * 3, **options) == {}


def says(*norms):
    """What clients send beside the model: a vector of each norm, and something that isn't compared."""
    vector = torch.tensor([0.6, 0.8])
    return [{"m.c": vector * norm, "m.n": torch.tensor(10**k)} for k, norm in enumerate(norms)]


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([1.0, 2.0, 3.0, 251.0], [13]),  # median 2.5: up to 250
        ([1.0, 2.0, 3.0, 249.0], []),
        ([0.0, 0.0, 0.0, 1.0, 2.0, 500.0], [15]),  # whoever sends nothing isn't compared: median 2
        ([0.0, 0.0, 0.0, 1.0, 500.0], []),  # two can't outvote each other
        ([0.0, 0.0, 0.0], []),
    ],
)
def test_what_is_beside_the_model_is_believed_for_longer(norms, found):
    judgement = judged(Norms(beside=100), [1.0] * len(norms), change=says(*norms))
    assert judgement == dict.fromkeys(found, "norm of m.c")


def test_the_first_reason_is_given():
    assert judged(Norms(), [1.0, 1.0, 9.0], change=says(1.0, 1.0, 1e9)) == {12: "norm"}


# with a memory


def test_the_last_ten_that_counted_are_remembered():
    """2, 3, …, 12 and, of the next round, 20: the oldest two are forgotten. Sample counts alike."""
    screen, memory = Norms(), {}
    for lengths in ([2.0, 3.0], [float(k) for k in range(4, 13)], [20.0]):
        memory |= screen.remember(cohort(lengths), memory)
    assert memory["screens.norms.norm"].tolist() == pytest.approx([*range(4, 13), 20])
    counts = SampleCounts().remember(cohort([1.0] * 2, [7, 8]), {})
    assert {name: values.tolist() for name, values in counts.items()} == {
        "screens.samples.sample count": [7.0, 8.0]
    }


def test_few_are_judged_beside_what_is_remembered():
    """With 2 and 2 remembered, of 2, 2, 1 and 11 the median is 2: up to 10. Three have a median of their own,
    and with one remembered and one to judge there are too few."""
    memory = {"screens.norms.norm": torch.tensor([2.0, 2.0], dtype=torch.float64)}
    assert judged(Norms(), [1.0, 11.0], memory=memory) == {11: "norm"}
    assert judged(Norms(), [11.0], memory=memory) == {10: "norm"}
    assert judged(Norms(), [1.0, 9.0], memory=memory) == {}
    assert judged(Norms(), [11.0, 11.0, 11.0], memory=memory) == {}
    one = {"screens.norms.norm": torch.tensor([2.0], dtype=torch.float64)}
    assert judged(Norms(), [11.0], memory=one) == {}


# in federations


def experiment(**changes):
    return Experiment.parse(
        {
            "partition": {"name": "iid", "clients": 6},
            "model": {"name": "mlp", "hidden": [6]},
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "participation": 1.0,
            "rounds": 4,
            "screens": ["norms"],
            "guard": {"enabled": False},  # which would be there first
            "evaluate": {"every": 100, "test_last": 0},
            "engine": "serial",
            **changes,
        }
    )


def play(tell, **changes):
    """Who was put aside in each round, by what is made of the updates as they come."""
    federation = Federation(experiment(**changes))
    found = []
    with closing(federation), federation.open() as runner:
        run = runner.run
        runner.run = lambda tasks: map(tell, run(tasks))
        for _ in range(federation.experiment.rounds):
            records = federation.advance(runner).records
            found.append({one.client: one.name for one in records if one.name.startswith("rejected")})
            server = federation.server
            looked_at = replace(server, protocol=screened(server.protocol))
            for kept in looked_at.tensors.values():
                assert (kept.abs() < 1e3).all()
    return found


BATCH_NORM = {"name": "mlp", "hidden": [6], "norm": "batch"}


def test_statistics_are_no_way_around_the_screen():
    def tell(update):
        return replace(update, buffers=update.buffers + 1e7) if update.client == 2 else update

    assert play(tell, model=BATCH_NORM) == [{2: "rejected: norm of buffers"}] * 4


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ({"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}, "scaffold.c"),
        ("fedcurv", "fedcurv.fisher"),
        ({"name": "fedavg", "terms": ["prototypes"]}, "prototypes.vectors"),
    ],
)
def test_nor_is_what_is_sent_beside_the_model(method, name):
    def tell(update):
        if update.client != 2:
            return update
        return replace(update, change={**update.change, name: torch.full_like(update.change[name], 1e30)})

    assert play(tell, method=method) == [{2: f"rejected: norm of {name}"}] * 4


def test_an_owner_who_is_offline_does_not_switch_it_off():
    """Of three, one is gone from the second round on, and another lies: it is known from the first."""

    def tell(update):
        if update.round == 1 or update.client == 0:
            return update
        return Lost(1, "gone") if update.client == 1 else replace(update, delta=1e6 * update.delta)

    assert play(tell, partition={"name": "iid", "clients": 3}) == [{}] + [{2: "rejected: norm"}] * 3


CLOCK = {"name": "fedasync", "speeds": {"times": {k: 1 + k / 10 for k in range(6)}}}


def test_an_asynchronous_server_goes_by_its_memory():
    """One update at a time, of clients 0 to 5 in turns at first: the third, who lies, is the first to be
    judged, and each time it comes back. Others never are."""

    def tell(update):
        return replace(update, delta=1e6 * update.delta) if update.client == 2 else update

    found = play(tell, clock=CLOCK, rounds=20)
    assert found[:6] == [{}, {}, {2: "rejected: norm"}, {}, {}, {}]
    later = [one for one in found[6:] if one]
    assert len(later) > 1
    assert later == [{2: "rejected: norm"}] * len(later)


@pytest.mark.parametrize("clock", ["rounds", CLOCK])
def test_what_is_remembered_outlives_an_interruption(clock, tmp_path):
    """Rounds of two of six clients, one of which scales its updates, on every engine and after a resume."""
    description = experiment(
        clock=clock,
        participation=1 / 3,
        rounds=12,
        retries=20,
        faults=[{"name": "attack", "kind": "scaled", "share": 0.1, "scale": 100.0}],
        seed=1,
    )
    whole = mnemos.run(description, out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(description, out=tmp_path / "part", observer=(stop := Stop(5)))
    part = resume(stop.run.path)
    assert b"rejected: norm" in whole.file("metrics.jsonl").read_bytes()
    for name in ("model.safetensors", "metrics.jsonl"):
        assert part.file(name).read_bytes() == whole.file(name).read_bytes()
