"""Clients on a Ray cluster: the same bits as in one process, whoever dies.

The cluster is started once, and has room for the two workers that most tests share and for two more.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from mnemos.common.cores import VARIABLE
from mnemos.data.load import load
from mnemos.engines.engine import ClientError, Lost, Runner, Work
from mnemos.engines.ray.connection import Connection, library, reach
from mnemos.engines.ray.crew import Member
from mnemos.engines.ray.ray_engine import Job, Ray, takes
from mnemos.engines.ray.worker import Data, Worker, find
from mnemos.errors import ConfigError, PausedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.run import Run
from support.processes import LONG, Command, mnemos, started, wait_for

ray = library(local=True)
BASE = {
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [16]},
    "local": {"epochs": 1, "batch": 16, "lr": 0.05},
    "participation": 0.5,
    "rounds": 4,
    "evaluate": {"every": 2, "test_last": 1},
    "engine": {"name": "threads", "workers": 2},
}


def experiment(**changes):
    return Experiment.parse({**BASE, **changes})


@pytest.fixture(scope="module")
def runner():
    """Two workers that any federation on the digits can use, in a cluster of their own."""
    plain = experiment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "4")
        opened = Ray(workers=2).open(plain.plan, load(plain.data), Work(6, 4))
    with opened:
        assert len(opened.crew.members) == 2
        yield opened
    assert not ray.is_initialized()


def play(runner=None, checks=(), **changes):
    """(the federation, outcomes) after all rounds; on threads, unless there is a runner."""
    federation = Federation(experiment(**changes), checks)
    with closing(federation):
        if runner is not None:
            return federation, [federation.advance(runner) for _ in range(federation.experiment.rounds)]
        with federation.open() as opened:
            return federation, [federation.advance(opened) for _ in range(federation.experiment.rounds)]


def assert_same(one, other):
    (first, outcomes), (second, others) = one, other
    assert torch.equal(first.server.model, second.server.model)
    assert torch.equal(first.server.buffers, second.server.buffers)
    assert first.server.tensors.keys() == second.server.tensors.keys()
    assert all(
        torch.equal(value, second.server.tensors[name]) for name, value in first.server.tensors.items()
    )
    assert [outcome.records for outcome in outcomes] == [outcome.records for outcome in others]


BATCH_NORM = {"name": "mlp", "hidden": [16], "norm": "batch"}
CASES = {
    "kept state": {
        "method": "scaffold",
        "local": {"batch": 16, "optimizer": "adam", "optimizer_state": "kept"},
    },
    "data passes": {"method": "precision"},
    "every sample's gradient": {"method": "fedcurv", "rounds": 2},
    "batch-norm": {"model": BATCH_NORM},
    "own buffers": {"model": BATCH_NORM, "method": {"name": "fedavg", "buffers": "local"}},
    "dropout": {"model": "test_engines:Dropping"},
    "augmentation": {
        "model": {"name": "cnn", "width": 0.125},
        "local": {"steps": 2, "batch": 8, "augment": ["crop", "flip"]},
    },
    "tasks": {"stream": {"name": "tasks", "tasks": 2}, "method": {"name": "fedavg", "loss": "masked-ce"}},
    "asynchronous": {"clock": {"name": "asynchronous", "buffer": 2, "speeds": {"spread": 0.7}}},
    "mixed": {"model": {"name": "mixed", "of": [{"model": "logistic"}, {"model": BATCH_NORM}]}},
    "peers": {
        "model": {"name": "mixed", "of": [{"model": "logistic"}, {"model": BATCH_NORM}], "peers": True}
    },
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_the_same_bits_as_on_threads(runner, changes):
    assert_same(play(runner, **changes), play(**changes))


def test_what_a_round_shares_is_sent_once(runner):
    """Also where clients of one cohort were sent different models; and nothing of it is kept."""
    before = runner.broadcasts
    play(runner)
    assert runner.broadcasts == before + BASE["rounds"]
    play(runner, **CASES["own buffers"])
    assert runner.broadcasts == before + 2 * BASE["rounds"]
    assert runner.sent is None
    with closing(Federation(experiment(participation=1))) as federation:
        tasks = list(federation.requests(1, runner))
        other = list(federation.requests(2, runner))
        before = runner.broadcasts
        assert len(list(runner.run([*tasks, *other]))) == 24
        assert runner.broadcasts == before + 2


def test_few_tasks_are_taken_ahead_of_the_updates(runner):
    with closing(Federation(experiment(participation=1))) as federation:
        taken = 0

        def watched():
            nonlocal taken
            for task in federation.requests(1, runner):
                taken += 1
                yield task

        for given, _ in enumerate(runner.run(watched())):
            assert taken <= given + 4
    assert taken == 12


def test_a_round_that_is_broken_off_leaves_nothing_behind(runner):
    with closing(Federation(experiment())) as federation:
        updates = runner.run(federation.requests(1, runner))
        next(updates)
        updates.close()
    assert not any(member.jobs for member in runner.crew.members)
    assert not runner.queue
    assert_same(play(runner), play())


def test_a_worker_killed_in_the_middle_of_a_round_loses_nothing(runner):
    """A round's updates may be checked when all are there: so a thread watches for a worker that is busy."""
    begun, killed, over = threading.Event(), [], []

    def watch(update, layout):
        begun.set()  # the first round's updates are there

    def kill():
        begun.wait(60)
        end = time.monotonic() + 60
        while not (killed or over) and time.monotonic() < end:
            for member in list(runner.crew.members):
                if member.jobs and not killed:
                    os.kill(member.pid, signal.SIGKILL)
                    killed.append(member.pid)
            time.sleep(0.001)

    killer = threading.Thread(target=kill)
    changes = {"local": {"epochs": 5, "batch": 4}}  # so that it takes a moment
    killer.start()
    try:
        found = play(runner, (watch,), **changes)
    finally:
        begun.set()
        over.append(True)
        killer.join(70)
    assert_same(found, play(**changes))
    assert killed
    assert killed[0] not in [member.pid for member in runner.crew.members]


class Without(Runner):
    """Another runner that never hears of one client."""

    def __init__(self, runner, client, reason):
        super().__init__(runner.engine, runner.plan)
        self._runner, self._lost = runner, Lost(client, reason)

    def run(self, cohort):
        for task in cohort:
            if task.client == self._lost.client:
                yield self._lost
            else:
                yield from self._runner.run([task])


def victim():
    """A client of the first round, and how many samples of each class it trains on."""
    with closing(Federation(experiment())) as federation:
        client = int(federation.cohort(1)[1])
        labels = federation.dataset.train.labels[federation.assignment.train(client)]
    return client, torch.bincount(labels, minlength=10).tolist()


def without(client, reason):
    with closing(Federation(experiment(rounds=1))) as federation, federation.open() as opened:
        return federation, [federation.advance(Without(opened, client, reason))]


@pytest.mark.parametrize(("kind", "reason"), [("death", "worker died"), ("sleep", "timeout")])
def test_a_client_that_takes_its_worker_along_is_given_up(runner, monkeypatch, capfd, kind, reason):
    """The others of the round count as ever, and the loss is on record, and nowhere else."""
    monkeypatch.setattr(runner, "retries", 1)
    monkeypatch.setattr(runner, "timeout", 20.0 if kind == "sleep" else None)
    client, held = victim()
    term = {"name": "support.mishaps:Mishap", "held": held, "kind": kind}
    # Its own part of the plan alone is different: without the client, it does nothing.
    lost = play(runner, rounds=1, method={"name": "fedavg", "terms": [term]})
    assert_same(lost, without(client, reason))
    (record,) = [record for record in lost[1][0].records if record.name.startswith("dropped")]
    assert (record.name, record.client) == (f"dropped: {reason}", client)
    assert capfd.readouterr() == ("", "")


def test_of_several_clients_of_a_worker_that_died_none_is_blamed(runner, monkeypatch):
    """Each has a worker to itself from then on; whose own dies, too, is given up."""
    monkeypatch.setattr(runner, "retries", 0)
    monkeypatch.setattr(runner.crew, "replace", lambda member: member.jobs.clear())
    jobs = [Job(SimpleNamespace(client=client), None, None) for client in (1, 2)]
    plain, member = Job(SimpleNamespace(client=3), None, None), Member(None, None)
    member.jobs.extend(jobs)
    runner.died(member)
    assert list(runner.queue) == jobs
    assert [(job.alone, job.deaths, job.outcome) for job in jobs] == [(True, 0, None)] * 2
    runner.queue.clear()
    assert takes(member, jobs[0])
    member.jobs.append(jobs[0])
    assert not takes(member, jobs[1])
    assert not takes(member, plain)
    runner.died(member)
    assert jobs[0].outcome == Lost(1, "worker died")
    assert not runner.queue
    member.jobs.append(plain)
    assert not takes(member, jobs[1])
    assert takes(member, replace(plain))


def test_an_error_in_a_client_is_raised_and_not_tried_again(runner):
    client, held = victim()
    term = {"name": "support.mishaps:Mishap", "held": held, "kind": "error"}
    pids = [member.pid for member in runner.crew.members]
    with pytest.raises(
        ClientError, match=f"client {client} failed in round 1: ZeroDivisionError: no way"
    ) as raised:
        play(runner, method={"name": "fedavg", "terms": [term]})
    assert "mishaps.py" in raised.value.__cause__.__notes__[0]  # where it happened, at the worker
    assert [member.pid for member in runner.crew.members] == pids
    assert_same(play(runner), play())


def resident():
    """Bytes of this process's own in memory; what it shares with others is the object store's."""
    (found,) = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found)


def references():
    return ray._private.worker.global_worker.core_worker.get_all_reference_counts()


def stored():
    """Bytes in the object store."""
    address = ray.get_runtime_context().gcs_address
    state = ray._private.internal_api.get_state_from_address(address)
    return ray._private.internal_api.get_memory_info_reply(state).store_stats.object_store_bytes_used


def test_thirty_rounds_take_no_more_memory_than_ten(runner):
    """A model has 2 MB. If each round kept one, medians that are 15 rounds apart would differ by 30 MB.

    What is resident goes up and down by as much from one round to the next, so single rounds say nothing.
    """
    changes = {
        "model": {"name": "mlp", "hidden": [6600]},
        "method": "scaffold",
        "local": {"steps": 1, "batch": 8},
        "partition": {"name": "iid", "clients": 4},
        "participation": 1.0,
        "evaluate": {"every": 30, "test_last": 0},
        "rounds": 30,
    }
    with closing(Federation(experiment(**changes))) as federation:
        assert 4 * len(federation.server.model) > 1.9e6
        memory, known = [], []
        for _ in range(30):
            federation.advance(runner)
            memory.append(resident())
            known.append(len(references()))
    assert median(memory[20:]) - median(memory[5:15]) < 20e6
    assert known[-1] - known[9] < 10  # a worker that is just being replaced has some
    wait_for(lambda: stored() <= 4e6, "the store to take back what was let go of")


# clusters that are there already, and those that aren't


def test_a_command_uses_a_cluster_is_interrupted_and_goes_on(runner, tmp_path):
    address = ray.get_runtime_context().gcs_address
    changes = {"evaluate": {"every": 1, "test_last": 1}}
    (tmp_path / "experiment.yaml").write_text(experiment(**changes).to_yaml())
    words = ["experiment.yaml", f"engine={{name: ray, workers: 1, address: '{address}'}}"]
    with Command("run", *words, "rounds=100000", "--json", cwd=tmp_path) as command:
        said = [command.line(number, "err") for number in (1, 2)]
        os.killpg(command.process.pid, signal.SIGINT)  # as a terminal does
        done = command.ended()
    assert done.code == 130, done.err
    assert said[0] == f"engine ray, workers 1, cpus 1.0, device auto, address {address}, retries 2"
    assert said[1].startswith("round 1/100000")
    facts = json.loads(done.out)
    assert facts["status"] == "interrupted"
    run = Run(tmp_path / facts["run"])
    assert run.saved_rounds >= 1
    after = run.saved_rounds + 2
    mnemos("resume", run.path, "--rounds", after, cwd=tmp_path)
    told = (tmp_path / "err").read_text().splitlines()
    assert all(line.startswith(("round", str(run.path))) for line in told)
    federation, _ = play(**changes, rounds=after)
    expected = federation.layout.state_dict(federation.server.model, federation.server.buffers)
    assert all(torch.equal(value, expected[name]) for name, value in run.model().state_dict().items())


def test_a_cluster_of_its_own_lets_in_only_who_has_the_token(runner):
    address = ray.get_runtime_context().gcs_address
    script = f"from ray._raylet import GcsClient; GcsClient('{address}'); print('welcome')"
    stranger = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    for who, welcome in ((dict(os.environ), True), (stranger, False)):
        done = subprocess.run(
            [sys.executable, "-c", script], env=who, capture_output=True, text=True, timeout=LONG
        )
        assert (done.stdout == "welcome\n") == welcome
    assert "AuthenticationError" in done.stderr


def test_a_node_that_dies_loses_nothing(tmp_path):
    """Two nodes of a cluster that is there already; the second one has read the data from its own files."""
    script = """
        import ray
        from contextlib import closing
        from ray.cluster_utils import Cluster
        from mnemos.federation.federation import Federation
        from test_ray import BASE, assert_same, experiment, play

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            second = cluster.add_node(num_cpus=1)
            described = experiment(engine={"name": "ray", "address": cluster.address})
            with closing(Federation(described)) as federation:
                with federation.open() as runner:
                    members = list(runner.crew.members)
                    assert len({member.node for member in members}) == 2
                    (place,) = [place for place in runner.crew.places.values() if place.here]
                    assert ray.get(place.here[0])
                    outcomes = [federation.advance(runner) for _ in range(2)]
                    cluster.remove_node(second, allow_graceful=False)
                    outcomes += [federation.advance(runner) for _ in range(2)]
                    assert [member.ready for member in runner.crew.members].count(True) == 1
                assert not ray.is_initialized()
            assert_same((federation, outcomes), play())
            print("the same")
        finally:
            cluster.shutdown()
    """
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([folder, *sys.path]),
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the same"


def test_data_are_taken_from_a_nodes_own_files_only_if_they_are_the_same(monkeypatch):
    source = experiment().data
    data = Data.of(load(source))
    monkeypatch.setenv("MNEMOS_OFFLINE", "1")
    found, same = find(json.dumps(source.dump()), data.fingerprint(), [])
    assert found
    assert (same.samples == data.samples).all()
    assert find(json.dumps(source.dump()), "another", []) == (False, None)
    assert find(json.dumps({"name": "npz", "path": "nowhere.npz"}), data.fingerprint(), []) == (False, None)


def test_a_wrong_address_is_one_sentence(tmp_path):
    with started(["run", "engine={name: ray, address: '127.0.0.1:1'}"], tmp_path) as process:
        process.join(LONG)
    assert process.exitcode == 2
    (line,) = (tmp_path / "err").read_text().splitlines()
    assert line.startswith("error: engine.address: there is no Ray cluster to be had at '127.0.0.1:1'")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["err", "out"]


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "http://host:port"])
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(
        ConfigError, match=r"engine\.address: found .*; allowed: auto, HOST:PORT, ray://HOST:PORT"
    ):
        reach(address)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match=r"engine: it needs the package ray .* the extra 'ray' of Mnemos installs it"
    ):
        Connection(None, 1)


def test_a_cluster_without_room_for_a_worker_is_refused(runner):
    plain = experiment()
    with pytest.raises(
        ConfigError, match=r"engine\.cpus: found 64; no machine of the cluster has as many CPUs"
    ):
        Ray(cpus=64).open(plain.plan, load(plain.data), Work(6, 4))
    assert ray.is_initialized()  # which is the other runner's


def test_a_run_pauses_when_no_worker_is_left(runner, monkeypatch):
    """And none can be started, such as one with more CPUs than any machine has: there may be others later."""
    actor = ray.remote(Worker).options(num_cpus=1000).remote(runner.crew.path)
    monkeypatch.setattr("mnemos.engines.ray.ray_engine.PATIENCE", 1.0)
    monkeypatch.setattr(runner.crew, "members", [Member(actor, actor.greet.remote())])
    wait = ray.wait

    def bounded(references, *, num_returns, timeout):
        assert references  # for none it wouldn't wait
        assert timeout == 1.0  # and for ever can't be broken off
        return wait(references, num_returns=num_returns, timeout=timeout)

    monkeypatch.setattr(ray, "wait", bounded)
    federation = Federation(experiment())
    with pytest.raises(PausedError, match=r"the cluster has had no worker for 1 s: all have died"):
        federation.advance(runner)
    federation.close()
    ray.kill(actor)


def test_a_part_that_workers_cannot_import_is_refused(runner):
    """One that is known to this process alone, as those of a notebook are."""
    plain = experiment()
    part = plain.model
    part = type("Mine", (type(part),), {"__module__": "__main__", "__qualname__": "Mine"})()
    with pytest.raises(ConfigError, match=r"engine: its workers can't make .* '__main__:Mine' .*import path"):
        Ray(workers=1).open(plain.plan.model_copy(update={"model": part}), load(plain.data), Work(6, 4))
