"""A federation whose owners are asked in the same process: all but Flower."""

import math
import re
import shutil
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mnemos.client.evaluation import EvaluateReply, EvaluateRequest
from mnemos.client.messages import reply_from_bytes, reply_to_bytes
from mnemos.client.packing import pack, unpack
from mnemos.data.sources.npz import Npz
from mnemos.data.trigger import Trigger
from mnemos.deployment.enrol import check
from mnemos.deployment.holder import DeclinedError, Holder, _fingerprint, _read
from mnemos.engines.flower import ROUND
from mnemos.errors import ConfigError, DataError, MnemosError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.measures.counting import Groups
from mnemos.measures.measure import Measure
from mnemos.runs.execute import resume, start
from support.interrupt import Stop
from support.owners import folders, joined
from support.play import play

CASES = {
    "fedavg": {},
    "scaffold": {"method": "scaffold"},
    "wsm": {"method": {"name": "fedavg", "loss": "wsm"}},
    "fedcurv": {"method": "fedcurv"},
    "batch-norm": {"model": {"name": "mlp", "hidden": [8], "norm": "batch"}},
    "own statistics": {
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "method": {"name": "fedavg", "buffers": "local"},
    },
    "kept momentum": {
        "local": {"steps": 2, "optimizer": {"name": "sgd", "momentum": 0.9}, "optimizer_state": "kept"}
    },
    "tasks": {"stream": {"name": "tasks", "tasks": 3}, "method": {"name": "fedavg", "loss": "task-ce"}},
    "accuracies": {
        "stream": {"name": "tasks", "tasks": 3},
        "evaluate": {"every": 2, "test_every": 2},
        "measures": [
            "class-accuracy",
            "continual",
            "personalised",
            {"name": "task-forgetting", "on": "validation"},
        ],
    },
    "ledger": {"measures": [{"name": "ledger", "every": 2}]},
    "accuracies on validation": {
        "stream": {"name": "tasks", "tasks": 3},
        "measures": ["class-accuracy", {"name": "continual", "on": "validation"}, "task-forgetting"],
    },
}


class Single(Measure):
    """A measure that doesn't say that it can do with what owners tell."""


def experiment(paths, **changes):
    return Experiment.parse(
        {
            "data": {"name": "owners", "paths": [str(path) for path in paths]},
            "partition": {"name": "natural", "validation": 0.2},
            "model": {"name": "mlp", "hidden": [8]},
            "participation": 0.7,
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 4,
            "evaluate": {"every": 2, "forgetting": [2]},
            "measures": ["client-accuracy"],
            "engine": "serial",
            **changes,
        }
    )


def asked_for(record):
    """Not forgetting by class, nor personalised inference on samples of others."""
    by_class = record.cls is not None and record.name in {"before_accuracy", "after_accuracy"}
    return not by_class and not record.name.startswith(("personalised_test", "plain_test"))


def start_and_stop(description, folder, after):
    observer = Stop(after)
    with pytest.raises(KeyboardInterrupt):
        start(description, folder, observer)
    return observer.run


@pytest.mark.parametrize("case", CASES)
def test_owners_come_to_the_same_model_bit_for_bit(case, tmp_path):
    """And to the same records, but for what nobody is asked."""
    paths = folders(tmp_path)
    description = experiment(paths, **CASES[case])
    here, expected = play(description)
    there, found = play(joined(description, paths, tmp_path)[0])
    assert torch.equal(here.server.model, there.server.model)
    assert torch.equal(here.server.buffers, there.server.buffers)
    for one, other in zip(expected, found, strict=True):
        wanted = [record for record in one.records if asked_for(record)]
        assert [(r.name, r.client, r.model, r.round, r.task, r.cls) for r in other.records] == [
            (r.name, r.client, r.model, r.round, r.task, r.cls) for r in wanted
        ]
        assert [r.value for r in other.records] == pytest.approx([r.value for r in wanted])


def test_owners_know_whose_model_they_evaluate(tmp_path):
    """Forgetting has them evaluate each client's model: the accuracy that they see is the server's."""
    paths = folders(tmp_path)
    description, link = joined(experiment(paths, rounds=2), paths, tmp_path)
    told = [[] for _ in link.holders]
    for holder, seen in zip(link.holders, told, strict=True):

        def evaluated(part, right, samples, *, clients_model, seen=seen):
            seen.append(clients_model)

        holder.diary.evaluated = evaluated
    play(description)
    cohort = [seen for seen in told if any(seen)]
    assert len(cohort) == 2
    # Before round 2 the server's model, then those of two clients; at the end validation and test.
    assert cohort == [[False, True, True, False, False]] * 2


def test_a_round_that_the_server_forgets_is_done_again_from_the_same_state(tmp_path):
    """The server is killed after its clients have trained, and before the round is saved."""
    paths = folders(tmp_path)
    description = joined(experiment(paths, method="scaffold"), paths, tmp_path)[0]
    expected, _ = play(description)
    again = joined(experiment(paths, method="scaffold"), paths, tmp_path / "again")[0]
    run = start_and_stop(again, tmp_path / "runs", after=2)
    shutil.copytree(run.path, tmp_path / "doomed")
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "doomed", observer=Stop(3), engine=again.engine)  # so clients remember round 3
    resume(run.path, engine=again.engine)
    model = load_file(run.file("model.safetensors"))
    wanted = expected.layout.state_dict(expected.server.model, expected.server.buffers)
    assert all(torch.equal(model[name], wanted[name]) for name in wanted)


def test_who_is_lost_in_a_round_takes_part_in_the_next_with_what_it_remembers(tmp_path):
    """With the same bits as where the client vanishes in one process."""
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths, method="scaffold", participation=1.0), paths, tmp_path)
    federation = Federation(remote)
    with federation.open() as runner:
        federation.advance(runner)
        link.gone = {1}
        outcome = federation.advance(runner)
        link.gone = set()
        after = federation.advance(runner)
    federation.close()
    assert [r.client for r in outcome.records if r.name == "dropped: timeout"] == [1]
    assert {r.client for r in after.records if r.name == "train_loss"} == {0, 1, 2, None}
    memories = sorted(file.stem for file in (tmp_path / "b/run/1").iterdir())
    assert memories == ["1", "3"]


def test_a_client_whose_answers_are_late_again_and_again_is_not_locked_out(tmp_path):
    """It has trained each time, and goes on from the round that has counted last."""
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths, method="scaffold", participation=1.0), paths, tmp_path)
    federation = Federation(remote)
    with federation.open() as runner:
        federation.advance(runner)
        link.late = {1}
        late = [federation.advance(runner) for _ in range(3)]
        link.late = set()
        after = federation.advance(runner)
    federation.close()
    reasons = [r.name for one in late for r in one.records if r.client == 1 and r.name.startswith("dropped")]
    assert reasons == ["dropped: timeout"] * 3
    assert {r.client for r in after.records if r.name == "train_loss"} == {0, 1, 2, None}
    memories = sorted(file.stem for file in (tmp_path / "b/run/1").iterdir())
    assert memories == ["1", "5"]


def test_clients_remember_as_far_back_as_the_server_may_go(tmp_path, monkeypatch):
    """The machine goes down: the newest checkpoint that surely is on disk is several rounds old."""
    monkeypatch.setattr("mnemos.runs.checkpoint.time", SimpleNamespace(monotonic=lambda: 100.0))
    paths = folders(tmp_path)
    changes = {"method": "scaffold", "rounds": 6}
    expected, _ = play(joined(experiment(paths, **changes), paths, tmp_path)[0], 6)
    again = joined(experiment(paths, **changes), paths, tmp_path / "again")[0]
    run = start_and_stop(again, tmp_path / "runs", after=5)
    saved = sorted(file.name for file in run.file("checkpoints").iterdir())
    assert saved == [f"round-{number:08d}.safetensors" for number in (1, 4, 5)]
    monkeypatch.setattr("mnemos.runs.checkpoint._boot", lambda: "another start of the machine")
    resume(run.path, engine=again.engine)
    model = load_file(run.file("model.safetensors"))
    wanted = expected.layout.state_dict(expected.server.model, expected.server.buffers)
    assert all(torch.equal(model[name], wanted[name]) for name in wanted)


def test_a_round_has_all_answers_before_anybody_looks_at_one(tmp_path):
    """To look may take as long as a round: by then, those that aren't fetched have expired."""
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths, participation=1.0), paths, tmp_path)
    federation = Federation(remote)
    with federation.open() as runner:
        ask = link.ask
        link.ask = lambda kind, questions, timeout: ask(
            kind, dict(reversed(list(questions.items()))), timeout
        )
        updates = runner.run(federation.requests(1, runner))
        assert next(updates).client == 0
        assert [client for _, client, _ in link.asked] == [0, 1, 2]
        assert [update.client for update in updates] == [1, 2]
    federation.close()


def test_a_round_is_over_when_as_many_have_answered_as_it_takes(tmp_path):
    """Three are asked for two; the first comes last, and the round is that of the others."""
    paths = folders(tmp_path)
    changes = {"method": "scaffold", "rounds": 2, "evaluate": {"every": 9}}
    engine = {"name": "flower", "over_selection": 0.5}
    remote, link = joined(experiment(paths, **changes, engine=engine), paths, tmp_path)
    there, outcomes = play(remote, 2)
    for outcome in outcomes:
        assert [r.client for r in outcome.records if r.name == "dropped: enough others"] == [0]
    assert [client for kind, client, _ in link.asked if kind == "train"] == [2, 1, 2, 1]
    changes["participation"] = 1.0
    without, link = joined(experiment(paths, **changes), paths, tmp_path / "again")
    link.gone = {0}
    assert torch.equal(play(without, 2)[0].server.model, there.server.model)


def broken(change):
    """A holder's answers to tasks, changed."""

    def answer(holder, kind, run, body):
        said = Holder.answer(holder, kind, run, body)
        return reply_to_bytes(change(reply_from_bytes(said))) if kind == "train" else said

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda *_: b"nothing", "dropped: unreadable"),
        (broken(lambda one: replace(one, delta=one.delta * math.nan)), "rejected: not finite"),
        (broken(lambda one: replace(one, delta=one.delta[:1])), "rejected: wrong shape"),
        (broken(lambda one: replace(one, round=9)), "rejected: of another round"),
    ],
)
def test_answers_that_can_not_be_used_are_not_enough(tmp_path, monkeypatch, answer, reason):
    paths = folders(tmp_path)
    engine = {"name": "flower", "over_selection": 0.5}
    remote, link = joined(experiment(paths, engine=engine), paths, tmp_path)
    monkeypatch.setattr(link.holders[2], "answer", partial(answer, link.holders[2]))
    _, (outcome,) = play(remote, 1)
    assert {r.client for r in outcome.records if r.name == "train_loss"} == {0, 1, None}
    assert [r.client for r in outcome.records if r.name == reason] == [2]


def test_without_over_selection_a_cohort_of_any_size_is_waited_for(tmp_path):
    """Drawn one client at a time, it may be larger than a round takes as a rule: nobody is too late then."""
    paths = folders(tmp_path)
    description = experiment(
        paths, participation=0.34, selection="poisson", rounds=12, evaluate={"every": 20}
    )
    here, _ = play(description, 12)
    there, outcomes = play(joined(description, paths, tmp_path)[0], 12)
    assert max(sum(r.name == "train_loss" for r in one.records) for one in outcomes) > 2
    assert torch.equal(here.server.model, there.server.model)


@pytest.mark.parametrize("method", ["fednova", "fedprox"])
def test_who_is_out_of_time_sends_what_it_has_done(tmp_path, monkeypatch, method):
    """By a clock of which every look takes a second: after the third step, three seconds are over."""
    schedule = {"name": "step", "over": "epochs", "size": 1}
    changes = {
        "method": method,
        "local": {"epochs": 2, "batch": 24, "lr": 0.1, "schedule": schedule},
        "engine": {"name": "flower", "deadline": 3.0},
    }
    holder, task = asked(tmp_path, **changes)
    assert task.seconds == 3
    wanted = holder.answer("train", "run", replace(task, seconds=None, steps=3).to_bytes())
    ticks = count()
    monkeypatch.setattr("mnemos.client.trainer.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    found = holder.answer("train", "run", task.to_bytes())
    assert found == wanted
    assert reply_from_bytes(found).steps == 3
    paths = folders(tmp_path)
    _, (outcome,) = play(joined(experiment(paths, **changes), paths, tmp_path)[0], 1)
    assert not [r.name for r in outcome.records if r.name.startswith(("dropped", "rejected"))]


def test_validation_is_that_of_the_owners_who_answer(tmp_path):
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths, evaluate={"every": 1}, participation=1.0), paths, tmp_path)
    federation = Federation(remote)
    with federation.open() as runner:
        everybody = federation.advance(runner)
        link.gone = {0, 2}
        one = federation.advance(runner)
        link.gone = {0, 1, 2}
        with pytest.raises(PausedError):
            federation.advance(runner)
    federation.close()
    by_client = {r.client: r.value for r in one.records if r.name == "validation_accuracy"}
    assert by_client.keys() == {None, 1}
    assert by_client[None] == by_client[1]
    assert len([r for r in everybody.records if r.name == "validation_accuracy"]) == 4


def test_whose_owners_are_not_the_same_as_before_is_not_compared(tmp_path):
    """Task by task, the second client's model would be judged by fewer samples than the first's."""
    paths = folders(tmp_path)
    changes = {
        "stream": {"name": "tasks", "tasks": 3},
        "measures": [{"name": "task-forgetting", "on": "validation"}],
        "participation": 1.0,
    }
    remote, link = joined(experiment(paths, **changes), paths, tmp_path)
    federation = Federation(remote)
    ask, exams = link.ask, []

    def losing(kind, questions, timeout):
        if kind == "evaluate":
            exams.append(set(questions))
            link.gone = {1} if len(exams) == 6 else set()  # counts before, of clients 0, 1 and 2
        return ask(kind, questions, timeout)

    link.ask = losing
    with federation.open() as runner:
        records = federation.advance(runner).records
    federation.close()
    assert exams == [{0, 1, 2}] * 8
    assert {r.model for r in records if r.name == "after_accuracy"} == {0, 2}


def test_counts_that_nobody_has_asked_for_or_that_can_not_be_are_not_listened_to(tmp_path, monkeypatch):
    """By class one owner counts too few classes, another more than it has samples: they are left out."""
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths), paths, tmp_path)
    federation = Federation(remote)

    def lies(holder, change):
        def answer(kind, run, body):
            tally = EvaluateReply.from_bytes(Holder.answer(holder, kind, run, body))
            return replace(tally, counts=tally.counts and change(tally.counts)).to_bytes()

        monkeypatch.setattr(holder, "answer", answer)

    lies(link.holders[0], lambda counts: replace(counts, sizes=counts.sizes[1:], right=counts.right[:, 1:]))
    lies(link.holders[1], lambda counts: replace(counts, sizes=counts.sizes + 1))
    with federation.open():
        held_out = torch.from_numpy(federation.assignment.union_held_out())
        train = federation.dataset.train
        scores = federation.evaluation.evaluate(federation.servers, train, held_out).together
        counts = scores.counts(Groups.of_classes(scores.classes))
        assert len(federation.flow.assignment.held_out(2)) == counts.samples == int(counts.sizes.sum())
    federation.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"measures": [f"{__name__}:Single"]},
            f"measures: found {__name__}:Single, which needs single labels or answers",
        ),
        ({"stream": "drift"}, "stream: found drift, which is a simulation's"),
        ({"faults": [{"name": "drop-outs", "rate": 0.5}]}, "faults: found some, which are a simulation's"),
        ({"clock": "fedasync", "evaluate": {}}, "clock: found an asynchronous one"),
        (
            {"method": {"name": "fedavg", "meta": {"samples": 5}}},
            "method.meta: the server of a federation holds no samples",
        ),
        ({"method": "centralised"}, "method: found centralised, which takes everybody's samples"),
        ({"partition": {"name": "natural", "clients": 2}}, "partition: each owner is a client"),
        (
            {"privacy": "gaussian", "method": {"name": "fedavg", "weighting": "uniform"}},
            "privacy.secret: found false: noise and cohorts would be drawn with the seed that all owners",
        ),
        (
            {
                "privacy": {"name": "gaussian", "secret": True},
                "method": {"name": "fedavg", "weighting": "uniform"},
                "engine": {"name": "flower", "over_selection": 0.5},
            },
            "engine.over_selection: found some: one client's speed would decide",
        ),
        (
            {"engine": {"name": "flower", "deadline": 60}},
            "engine.deadline: found 60, and fedavg's clients have to be through",
        ),
    ],
)
def test_what_a_federation_can_not_do_is_refused_before_anybody_has_joined(changes, words):
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        check(experiment([], **changes))


def asked(tmp_path, **changes):
    """A holder, and the bytes of a task for it."""
    paths = folders(tmp_path)
    remote, link = joined(experiment(paths, **changes), paths, tmp_path)
    federation = Federation(remote)
    with federation.open() as runner:
        task = next(federation.requests(1, runner))
        federation.close()
        return link.holders[task.client], runner._own(task)


def test_nothing_is_run_that_the_server_names_by_import_path(tmp_path):
    holder, task = asked(tmp_path)
    exam = EvaluateRequest(task.plan, task.model, task.buffers, "train", task.samples)
    paths = (
        ("method", "terms", [{"name": "antigravity:fly"}]),
        ("method", "terms", ["antigravity:fly"]),
        ("plan", "model", "antigravity:fly"),
        ("plan", "data", "antigravity:fly"),
        ("local", "optimizer", {"name": "library", "path": "antigravity:fly"}),
    )
    # An evaluation needs no optimiser.
    for kind, question, tried in (("train", task, paths), ("evaluate", exam, paths[:-1])):
        for part, field, value in tried:
            header, tensors, states = unpack(question.to_bytes())
            plan = header["plan"]
            (plan if part == "plan" else plan[part])[field] = value
            with pytest.raises(MnemosError, match="'antigravity:fly' is named by import path, which isn't"):
                holder.answer(kind, "run", pack(tensors, states, header))
    assert "antigravity" not in sys.modules


def test_a_run_is_no_way_out_of_the_folder(tmp_path):
    holder, task = asked(tmp_path)
    for run in ("..", "../up", "/root", "", "a/b", ".hidden", "a" * 201):
        with pytest.raises(DataError, match="which is no name for a folder"):
            holder.answer("train", run, task.to_bytes())


def test_samples_that_there_are_not_are_refused(tmp_path):
    holder, task = asked(tmp_path)
    for samples in ([-1], [10**6], [[0, 1]], [0.5]):
        wrong = replace(task, samples=torch.tensor(samples))
        with pytest.raises(DataError, match=r"samples that don't exist|samples: found"):
            holder.answer("train", "run", wrong.to_bytes())


def test_the_server_can_not_have_a_client_change_its_samples(tmp_path):
    """Neither take classes for others, nor put the mark of a backdoor on some of them."""
    holder, task = asked(tmp_path)
    for changes in ({"label_map": torch.tensor([1, 0])}, {"trigger": Trigger()}):
        with pytest.raises(DataError, match="the server asks for labels that the samples don't have"):
            holder.answer("train", "run", replace(task, **changes).to_bytes())


def test_the_server_can_not_have_a_client_read_other_data(tmp_path):
    holder, task = asked(tmp_path)
    plan = task.plan.model_copy(update={"data": Npz(path="/etc/passwd")})
    with pytest.raises(DataError, match="the server names data of its own"):
        holder.answer("train", "run", replace(task, plan=plan).to_bytes())


def test_an_owner_whose_data_has_changed_takes_no_part_in_the_run(tmp_path):
    """Its samples have other numbers by then: held-out ones would be trained on."""
    holder, task = asked(tmp_path)
    (own,) = task.plan.data.owners
    data = task.plan.data.model_copy(update={"owners": (own.model_copy(update={"train": own.train - 1}),)})
    plan = task.plan.model_copy(update={"data": data})
    for kind, question in (
        ("train", replace(task, plan=plan)),
        ("evaluate", EvaluateRequest(plan, task.model, task.buffers, "train", task.samples)),
    ):
        with pytest.raises(DataError, match="its data has changed since the run began"):
            holder.answer(kind, "run", question.to_bytes())


def test_other_samples_of_the_same_number_are_noticed(tmp_path):
    """Also by a client that was started again; a run that begins anew goes by what there is then."""
    holder, task = asked(tmp_path)
    holder.answer("train", "run", task.to_bytes())
    path = Path(holder.path)
    with np.load(path) as arrays:
        changed = {**arrays, "x_train": arrays["x_train"][::-1]}
    np.savez(path, **changed)
    _read.cache_clear()
    _fingerprint.cache_clear()
    later = replace(task, round=2, state={ROUND: torch.tensor(1.0)})
    with pytest.raises(DeclinedError, match="its data has changed since the run began: the samples differ"):
        holder.answer("train", "run", later.to_bytes())
    holder.answer("train", "run", task.to_bytes())
    holder.answer("train", "run", later.to_bytes())


def test_a_memory_that_is_gone_is_said_to_be(tmp_path):
    holder, task = asked(tmp_path, method="scaffold")
    with pytest.raises(DataError, match="the state after round 7 is gone"):
        holder.answer("train", "run", replace(task, state={ROUND: torch.tensor(7.0)}).to_bytes())


def test_an_update_has_what_the_method_uploads_and_nothing_else(tmp_path):
    """The change of a control variate; not itself, nor statistics that the server has of its own."""
    changes = {**CASES["batch-norm"], "method": {"name": "scaffold", "buffers": "server"}}
    holder, task = asked(tmp_path, **changes)
    update = reply_from_bytes(holder.answer("train", "run", task.to_bytes()))
    assert update.state == {}
    assert len(update.buffers) == 0
    assert update.change.keys() == {"scaffold.c"}


def test_questions_that_are_none(tmp_path):
    holder, _ = asked(tmp_path)
    for body in (b"", b"{", b"[]", b'{"x": 1}', b'{"tasks": [["a"]]}'):
        with pytest.raises(MnemosError):
            holder.answer("query", "run", body)
    for kind in ("train", "evaluate"):
        with pytest.raises(MnemosError):
            holder.answer(kind, "run", b"nothing")
