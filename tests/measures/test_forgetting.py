"""The forgetting of a round: by hand, against a plain loop, at the rounds asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mnemos
from mnemos.client.trainer import fresh_model
from mnemos.data.augment import normalise
from mnemos.data.partition import Assignment
from mnemos.data.stream import Setting
from mnemos.data.streams.static import Still
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.measures.forgetting import Forgetting, is_due
from mnemos.measures.measure import Opening, Record, Scores
from mnemos.runs.execute import Silent, resume
from mnemos.vector import Layout
from support.bits import assert_same_bits, trained_bits

NOTHING = torch.zeros(0)
NAMES = {"before_accuracy", "after_accuracy", "forgetting", "forgetting_caused", "own_accuracy"}


# --- by hand ------------------------------------------------------------------------------------------

LABELS = torch.tensor([0, 0, 0, 0, 0, 0, 1, 3, 1, 1, 1, 1, 2, 3, 3, 3, 0])
ASSIGNMENT = Assignment(np.arange(17), np.array([0, 8, 12, 13, 17]), 0.5)
"""Held out: labels 0 0 1 3 by client 0, 1 1 by client 1, nothing by client 2, 3 0 by client 3."""


def table(*predicted: int) -> torch.Tensor:
    """A linear model without bias; samples of a class are all alike: the class as a one-hot vector."""
    return F.one_hot(torch.tensor(predicted), 4).float().flatten()


def evaluate(model: torch.Tensor, buffers: torch.Tensor, indices: torch.Tensor) -> Scores:
    labels = LABELS[indices]
    logits = F.one_hot(labels, 4).float() @ model.view(4, 4)
    return Scores(logits, labels, torch.zeros(len(labels)))


BEFORE = table(0, 1, 0, 0)
"""Right on classes 0 and 1, so Acc = (3/4, 1, 1/2) on the data of clients 0, 1 and 3."""
AFTER = {0: table(0, 0, 0, 0), 1: table(1, 1, 1, 1), 2: table(0, 1, 2, 3), 3: table(0, 3, 3, 3)}
"""Acc = (1/2, 0, 1/2), (1/4, 1, 0), (1, 1, 1), (3/4, 0, 1)."""

FLOW = Still(Setting(ASSIGNMENT, LABELS.numpy(), 4, 10, 0, lambda eligible, round: eligible))
OPENING = Opening(
    7,
    10,
    BEFORE,
    NOTHING,
    Layout((), ()),
    FLOW,
    np.array([0, 1, 2, 3]),
    evaluate,
    lambda model, buffers: pytest.fail("nothing is to be tested"),
)


def watched(opening: Opening, clients: list[int]) -> list[Record]:
    watch = Forgetting(rounds=(7,)).watch(opening)
    assert watch is not None
    for client in clients:
        watch.see(client, AFTER[client], NOTHING)
    return list(watch.records())


def found(records: list[Record], name: str) -> dict[tuple[int | None, int | None, int | None], float]:
    """Values by model, client and class."""
    return {(row.model, row.client, row.cls): row.value for row in records if row.name == name}


def test_every_number_by_hand():
    """F = (1/4, 1, 0), (1/2, 0, 1/2), (−1/4, 0, −1/2), (0, 1, −1/2) in the rows of models 0 to 3.

    F_0 = (1/2 − 1/4 + 0)/3 = 1/12, F_1 = (1 + 0 + 1)/3 = 2/3, F_3 = (0 + 1/2 − 1/2)/3 = 0; their mean is
    1/4. Nobody holds out class 2.
    """
    records = watched(OPENING, [0, 1, 2, 3])
    assert {record.round for record in records} == {7}
    assert {record.name for record in records} == NAMES
    before = {(0, None): 3 / 4, (1, None): 1, (3, None): 1 / 2, (None, 0): 1, (None, 1): 1, (None, 3): 0}
    assert found(records, "before_accuracy") == {(None, *key): value for key, value in before.items()}
    after = {
        0: {(0, None): 1 / 2, (1, None): 0, (3, None): 1 / 2, (None, 0): 1, (None, 1): 0, (None, 3): 0},
        1: {(0, None): 1 / 4, (1, None): 1, (3, None): 0, (None, 0): 0, (None, 1): 1, (None, 3): 0},
        2: {(0, None): 1, (1, None): 1, (3, None): 1, (None, 0): 1, (None, 1): 1, (None, 3): 1},
        3: {(0, None): 3 / 4, (1, None): 0, (3, None): 1, (None, 0): 1, (None, 1): 0, (None, 3): 1},
    }
    assert found(records, "after_accuracy") == {
        (model, *key): value for model, row in after.items() for key, value in row.items()
    }
    assert found(records, "forgetting") == pytest.approx(
        {(None, 0, None): 1 / 12, (None, 1, None): 2 / 3, (None, 3, None): 0, (None, None, None): 1 / 4}
    )
    assert found(records, "forgetting_caused") == pytest.approx(
        {(0, None, None): 1 / 2, (1, None, None): 1 / 2, (2, None, None): -1 / 4, (3, None, None): 1 / 2}
    )
    assert found(records, "own_accuracy") == pytest.approx({(None, None, None): (1 / 2 + 1 + 1) / 3})


def test_an_update_put_aside_counts_for_nothing():
    """Without model 2: F_0 = 1/4, F_1 = 1, F_3 = 1/4; without model 1 too, nobody meets its own 1 1."""
    forgotten = found(watched(OPENING, [0, 1, 3]), "forgetting")
    assert forgotten == {(None, 0, None): 1 / 4, (None, 1, None): 1, (None, 3, None): 1 / 4,
                         (None, None, None): 1 / 2}  # fmt: skip
    assert found(watched(OPENING, [0, 3]), "own_accuracy") == {(None, None, None): 3 / 4}


def test_a_cohort_of_one_has_nobody_to_forget():
    records = watched(replace(OPENING, cohort=np.array([1])), [1])
    assert {record.name for record in records} == {"before_accuracy", "after_accuracy", "own_accuracy"}
    assert found(records, "own_accuracy") == {(None, None, None): 1.0}


def test_a_cohort_without_validation_data_records_nothing():
    assert watched(replace(OPENING, cohort=np.array([2])), [2]) == []


def test_a_round_without_updates_records_nothing():
    assert watched(OPENING, []) == []


# --- when ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "due"),
    [((), []), (0, []), ((2, 9, 99), [2, 9]), (1, list(range(1, 11))), (4, [1, 4, 8, 10]), (50, [1, 10])],
)
def test_when_a_round_is_due(rounds, due):
    assert [number for number in range(1, 11) if is_due(rounds, number, last=10)] == due
    watches = {n: Forgetting(rounds=rounds).watch(replace(OPENING, round=n)) for n in range(1, 11)}
    assert [number for number, watch in watches.items() if watch is not None] == due


def asking(tiny, forgetting, **changes):
    return {**tiny, **changes, "evaluate": {**tiny["evaluate"], "forgetting": forgetting}}


@pytest.mark.parametrize(("forgetting", "rounds"), [([3], {3}), (3, {1, 3, 4}), ((), set())])
def test_it_is_recorded_for_the_rounds_asked_for(tiny, tmp_path, forgetting, rounds):
    metrics = mnemos.run(asking(tiny, forgetting), out=tmp_path).metrics
    for name in NAMES:
        assert set(metrics[metrics["name"] == name]["round"]) == rounds


class Stop(Silent):
    """Interrupts a run after its second round."""

    def round(self, outcome):
        if outcome.round == 2:
            raise KeyboardInterrupt


def test_a_resumed_run_has_the_same_metrics(tiny, tmp_path):
    whole = mnemos.run(asking(tiny, 2), out=tmp_path / "whole")
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(asking(tiny, 2), out=tmp_path / "part", observer=stop)
    resumed = resume(stop.run.path)
    assert resumed.file("metrics.jsonl").read_bytes() == whole.file("metrics.jsonl").read_bytes()


def test_measuring_changes_nothing_else(tiny, tmp_path):
    plain = mnemos.run(tiny, out=tmp_path)
    measured = mnemos.run(asking(tiny, 1), out=tmp_path)
    assert trained_bits(measured) == trained_bits(plain)
    rest = measured.metrics[~measured.metrics["name"].isin(NAMES)].reset_index(drop=True)
    assert rest.equals(plain.metrics)


@pytest.mark.parametrize("forgetting", [2, [1]])
def test_it_needs_validation_data(tiny, forgetting):
    tiny["partition"]["validation"] = 0
    with pytest.raises(ConfigError, match=r"^evaluate\.forgetting: .* raise partition\.validation$"):
        Federation(Experiment.parse(asking(tiny, forgetting)))


# --- by its registered name ---------------------------------------------------------------------------


def named(tiny, rounds, **changes):
    return {**tiny, **changes, "measures": [{"name": "forgetting", "rounds": rounds}]}


@pytest.mark.parametrize(
    ("measure", "rounds"), [("forgetting", 10), ({"name": "forgetting", "rounds": [2, 9]}, (2, 9))]
)
def test_it_is_a_registered_measure(measure, rounds):
    """By hand: of rounds 1 to 10, 10 asks for 1 and 10, and [2, 9] for those two."""
    experiment = Experiment.parse({"measures": [measure], "rounds": 10})
    assert experiment.watching == (Forgetting(rounds=rounds),)
    assert experiment.forgetting_rounds == rounds
    (measure,) = experiment.watching
    due = [round for round in range(1, 11) if measure.watch(replace(OPENING, round=round)) is not None]
    assert due == ([1, 10] if rounds == 10 else [2, 9])


@pytest.mark.parametrize("rounds", [2, [1, 3]])
def test_both_spellings_record_the_same_bytes(tiny, tmp_path, rounds):
    short = mnemos.run(asking(tiny, rounds), out=tmp_path / "short")
    long = mnemos.run(named(tiny, rounds), out=tmp_path / "long")
    assert_same_bits([short, long])
    assert long.experiment.hash() != short.experiment.hash()


def test_the_short_spelling_keeps_its_hash(tiny):
    """It is a field of `evaluate`, and no measure is added to what is hashed."""
    experiment = Experiment.parse(asking(tiny, 2))
    assert experiment.watching == (Forgetting(rounds=2),)
    assert experiment.measures == ()
    assert experiment.model_dump(mode="json")["evaluate"]["forgetting"] == 2
    assert Experiment.parse(tiny).watching == ()


@pytest.mark.parametrize("rounds", [-1, [0], "all", True])
def test_both_spellings_take_the_same_rounds(tiny, rounds):
    with pytest.raises(
        ConfigError, match=r"^evaluate\.forgetting: found .* list of rounds from 1 on"
    ) as short:
        Experiment.parse(asking(tiny, rounds))
    with pytest.raises(ConfigError, match=r"^measures\.0\.rounds: ") as long:
        Experiment.parse(named(tiny, rounds))
    assert long.value.message == short.value.message


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"evaluate": {"forgetting": 3}}, "found forgetting in measures and in evaluate.forgetting"),
        ({"partition": {"validation": 0}}, "measures.forgetting: forgetting is measured on validation data"),
        ({"clock": "fedasync"}, "measures.forgetting: found a measure which needs"),
        ({"model": {"name": "mixed", "of": [{"model": "mlp"}, {"model": "logistic"}]}},
         "measures.forgetting: forgetting compares clients"),
    ],
)  # fmt: skip
def test_what_it_does_not_go_with(tiny, changes, sentence):
    with pytest.raises(ConfigError) as error:
        Federation(Experiment.parse(named({**tiny, **changes}, 2)))
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("rounds", [0, []])
def test_a_measure_in_no_round_is_refused(tiny, rounds):
    with pytest.raises(
        ConfigError, match=r"^measures\.forgetting\.rounds: found .*, so it would be measured in"
    ):
        Federation(Experiment.parse(named(tiny, rounds)))


# --- in a federation ----------------------------------------------------------------------------------


def first_round(experiment):
    """The federation, its model before the first round, the updates, and what was recorded."""
    federation = Federation(experiment)
    before, updates = federation.server, []
    with federation.open() as runner:
        run = runner.run

        def keeping(tasks):
            for update in run(tasks):
                updates.append(update)
                yield update

        runner.run = keeping
        records = federation.advance(runner).records
    federation.close()
    return federation, before, updates, records


def accuracy(federation, model, buffers, indices):
    """Of an ordinary module, sample by sample."""
    module = fresh_model(federation.experiment.plan, federation.dataset)
    module.load_state_dict(federation.layout.state_dict(model, buffers), strict=False)
    module.eval()
    split, data = federation.dataset.train, federation.dataset
    samples = normalise(split.samples[indices], torch.tensor(data.mean), torch.tensor(data.std))
    with torch.no_grad():
        right = [
            int(module(x[None]).argmax()) == int(y)
            for x, y in zip(samples, split.labels[indices], strict=True)
        ]
    return sum(right) / len(right)


def test_it_equals_a_plain_loop(tiny):
    """With batch-norm, whose statistics are each client's own too."""
    model = {"name": "mlp", "hidden": [8], "norm": "batch"}
    tiny["partition"]["validation"] = 0.3
    federation, before, updates, records = first_round(Experiment.parse(asking(tiny, [1], model=model)))
    cohort = federation.cohort(1).tolist()
    assert [update.client for update in updates] == cohort
    held = {k: torch.from_numpy(federation.assignment.held_out(k)) for k in cohort}
    old = {k: accuracy(federation, before.model, before.buffers, held[k]) for k in cohort}
    new = {
        (u.client, k): accuracy(federation, before.model + u.delta, u.buffers, held[k])
        for u in updates
        for k in cohort
    }
    recorded = found(records, "before_accuracy")
    assert {k: recorded[None, k, None] for k in cohort} == pytest.approx(old)
    recorded = found(records, "after_accuracy")
    assert {(i, k): recorded[i, k, None] for i in cohort for k in cohort} == pytest.approx(new)
    of = {k: np.mean([old[k] - new[i, k] for i in cohort if i != k]) for k in cohort}
    recorded = found(records, "forgetting")
    assert {k: recorded[None, k, None] for k in cohort} == pytest.approx(of)
    assert recorded[None, None, None] == pytest.approx(np.mean(list(of.values())))
    union = torch.cat(list(held.values()))
    labels = federation.dataset.train.labels[union]
    recorded = found(records, "after_accuracy")
    for update in updates:
        classes = {
            c: accuracy(federation, before.model + update.delta, update.buffers, union[labels == c])
            for c in labels.unique().tolist()
        }
        assert {c: recorded[update.client, None, c] for c in classes} == pytest.approx(classes)


def test_clients_without_validation_data_are_left_out(tiny):
    """Their data, that is; what their models forget of the others' data counts."""
    uneven = {"name": "quantity", "clients": 100, "alpha": 0.5, "validation": 0.1}
    federation, _, updates, records = first_round(Experiment.parse(asking(tiny, [1], partition=uneven)))
    cohort = federation.cohort(1).tolist()
    holding = [k for k in cohort if len(federation.assignment.held_out(k))]
    assert 0 < len(holding) < len(cohort)
    before, after = found(records, "before_accuracy"), found(records, "after_accuracy")
    assert [k for _, k, _ in before if k is not None] == holding
    trained = [update.client for update in updates]
    assert [(i, k) for i, k, _ in after if k is not None] == [(i, k) for i in trained for k in holding]
    assert [i for i, _, _ in found(records, "forgetting_caused")] == trained


def test_a_federation_whose_rounds_have_one_client(tiny):
    *_, records = first_round(Experiment.parse(asking(tiny, 1, participation=0.1)))
    names = {record.name for record in records}
    assert "own_accuracy" in names
    assert not names & {"forgetting", "forgetting_caused"}
