from dataclasses import replace

import pytest
import torch

from mnemos.data.stream import Flow, Stream, streams
from mnemos.errors import ConfigError, DivergedError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support.play import play


def advance(federation, rounds=1):
    return play(federation, rounds)[1]


def values(outcome, name):
    return [record.value for record in outcome.records if record.name == name and record.client is None]


def test_rounds_are_recorded_and_evaluated_when_asked(tiny):
    """Four rounds, validation every second, test in the last two."""
    outcomes = advance(Federation(Experiment.parse(tiny)), 4)
    assert [outcome.round for outcome in outcomes] == [1, 2, 3, 4]
    assert [outcome.validation is not None for outcome in outcomes] == [False, True, False, True]
    assert [outcome.test is not None for outcome in outcomes] == [False, False, True, True]
    cohort = [
        record for record in outcomes[0].records if record.name == "train_loss" and record.client is not None
    ]
    assert len(cohort) == 4  # a third of twelve clients


def test_bytes_sent_by_hand(tiny):
    """MLP 64-8-10: 64·8 + 8 + 8·10 + 10 = 610 parameters of 4 bytes, 4 clients: 9,760 bytes each way."""
    outcome = advance(Federation(Experiment.parse(tiny)))[0]
    assert values(outcome, "bytes_up") == [9760.0]
    assert values(outcome, "bytes_down") == [9760.0]


def test_the_overall_loss_is_weighted_by_samples(tiny):
    federation = Federation(Experiment.parse(tiny))
    outcome = advance(federation)[0]
    sizes = federation.assignment.train_sizes()
    losses = {r.client: r.value for r in outcome.records if r.name == "train_loss" and r.client is not None}
    expected = sum(losses[k] * sizes[k] for k in losses) / sum(sizes[k] for k in losses)
    assert outcome.loss == pytest.approx(expected)


def test_the_cohort_depends_on_seed_and_round_alone(tiny):
    one, two = Federation(Experiment.parse(tiny)), Federation(Experiment.parse(tiny))
    assert one.cohort(7).tolist() == two.cohort(7).tolist()
    assert len({tuple(one.cohort(number).tolist()) for number in range(1, 20)}) > 5
    other = Federation(Experiment.parse({**tiny, "seed": 1}))
    assert [one.cohort(n).tolist() for n in range(9)] != [other.cohort(n).tolist() for n in range(9)]


def test_a_screen_puts_an_update_aside_and_the_round_goes_on(tiny):
    federation = Federation(Experiment.parse(tiny))
    bad = int(federation.cohort(1)[0])
    federation.checks = (lambda update, layout: "too large" if update.client == bad else None,)
    outcome = advance(federation)[0]
    rejected = [record for record in outcome.records if record.name.startswith("rejected")]
    assert [(record.client, record.name) for record in rejected] == [(bad, "rejected: too large")]
    trained = {r.client for r in outcome.records if r.name == "train_loss"} - {None}
    assert trained == set(federation.cohort(1).tolist()) - {bad}


def test_what_the_server_keeps_must_be_finite_like_its_model(tiny):
    """Two control variates of 3e38 are finite, and their sum isn't: the round isn't committed."""
    method = {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}
    federation = Federation(Experiment.parse({**tiny, "method": method, "guard": {"enabled": False}}))
    bad = federation.cohort(1)[:2].tolist()
    with federation.open() as runner:
        run = runner.run

        def lying(tasks):
            for update in run(tasks):
                c = update.change["scaffold.c"]
                yield replace(update, change={"scaffold.c": c + 3e38}) if update.client in bad else update

        runner.run = lying
        with pytest.raises(DivergedError, match=r"what the server keeps as scaffold\.c is not finite"):
            federation.advance(runner)
    federation.close()
    assert federation.round == 0
    assert not federation.server.state["scaffold.c"].any()


def test_a_round_without_any_update_does_not_touch_the_model(tiny):
    federation = Federation(Experiment.parse(tiny), checks=(lambda update, layout: "no",))
    before = federation.server.model.clone()
    with pytest.raises(PausedError, match="round 1 came to too few updates in 3 attempts"):
        advance(federation)
    assert torch.equal(federation.server.model, before)
    assert federation.round == 0


@streams.register("test-halves")
class Halves(Stream):
    """The first half of a client's samples in odd rounds, the second in even ones."""

    def open(self, setting):
        return Halved(setting)


class Halved(Flow):
    def samples(self, client: int, round: int):
        own = self.assignment.train(client)
        return own[: len(own) // 2] if round % 2 else own[len(own) // 2 :]


def test_a_stream_decides_what_a_client_holds(tiny):
    federation = Federation(Experiment.parse({**tiny, "stream": "test-halves"}))
    with federation.open() as runner:
        for number in (1, 2):
            for task in federation.requests(number, runner):
                own = federation.assignment.train(task.client)
                half = own[: len(own) // 2] if number == 1 else own[len(own) // 2 :]
                assert task.samples.tolist() == half.tolist()
    federation.close()


@streams.register("test-holiday")
class Holiday(Stream):
    """Clients with an even number have nothing in the first round."""

    def open(self, setting):
        return Away(setting)


class Away(Flow):
    def samples(self, client: int, round: int):
        own = self.assignment.train(client)
        return own[:0] if round == 1 and client % 2 == 0 else own


def test_a_client_without_samples_in_a_round_sits_it_out(tiny):
    federation = Federation(Experiment.parse({**tiny, "stream": "test-holiday", "participation": 1}))
    first, second = advance(federation, 2)
    trained = [
        {r.client for r in o.records if r.name == "train_loss" and r.client is not None}
        for o in (first, second)
    ]
    assert trained == [{1, 3, 5, 7, 9, 11}, set(range(12))]
    model = 4 * federation.layout.size
    assert [values(outcome, "bytes_down") for outcome in (first, second)] == [[6 * model], [12 * model]]


def test_without_validation_only_the_test_is_evaluated(tiny):
    tiny["partition"]["validation"] = 0
    outcomes = advance(Federation(Experiment.parse(tiny)), 4)
    assert all(outcome.validation is None for outcome in outcomes)
    assert outcomes[-1].test is not None


def test_clients_who_hold_everything_differ_in_the_order_they_see_it_in(tiny):
    """The same samples and the same model, yet another loss each; and all have the same held-out samples."""
    whole = {"name": "whole", "clients": 3, "validation": 0.1}
    changes = {"partition": whole, "participation": 1.0, "measures": ["client-accuracy"]}
    federation = Federation(Experiment.parse({**tiny, **changes}))
    last = advance(federation, 2)[-1]
    losses = {r.value for r in last.records if r.name == "train_loss" and r.client is not None}
    assert len(losses) == 3
    accuracies = [r.value for r in last.records if r.name == "validation_accuracy"]
    assert accuracies == [last.validation.accuracy] * 4  # of all, and of each client


def test_clients_without_samples_are_never_selected(tiny):
    tiny["partition"] = {"name": "label-dirichlet", "clients": 300, "alpha": 0.005, "allow_empty": True}
    tiny["participation"] = 0.1
    federation = Federation(Experiment.parse(tiny))
    sizes = federation.assignment.train_sizes()
    assert (sizes == 0).any()
    assert all(sizes[federation.cohort(number)].min() > 0 for number in range(1, 30))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": {"clients": 2_000}}, "partition.clients: found 2000"),
        ({"model": {"name": "mlp", "norm": "batch"}, "local": {"batch": 1}}, "local.batch: found 1"),
        ({"model": "lenet"}, "model: it takes images of at least 16"),
        ({"partition": {"name": "natural"}}, "partition"),
    ],
)
def test_contradictions_are_found_before_training(tiny, changes, sentence):
    with pytest.raises(ConfigError) as caught:
        Federation(Experiment.parse({**tiny, **changes}))
    assert sentence in str(caught.value)
