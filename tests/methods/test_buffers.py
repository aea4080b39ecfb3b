"""What happens to batch-norm's statistics, by hand and in a federation."""

import pytest
import torch
from torch import nn

from mnemos.data.augment import normalise
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.part import buffer_policies
from mnemos.models.model import Classifier

POLICIES = ["average", "leave-out", "local", "mix", "server"]
ENGINES = ["serial", "vmap"]
PARAMETERS = 64 * 8 + 8 + 2 * 8 + 8 * 10 + 10
STATISTICS = 8 + 8 + 1
ROUNDS = 4


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("average", [3.0, 4.0]),
        ("local", [3.0, 4.0]),
        ("mix", [2.0, 3.0]),
        ({"name": "mix", "rho": 0.75}, [2.5, 3.5]),
        ("server", [1.0, 2.0]),
        ("leave-out", [1.0, 2.0]),
    ],
)
def test_the_servers_next_statistics_by_hand(policy, expected):
    """The server has (1, 2), the clients' mean is (3, 4)."""
    part = buffer_policies.parse(policy)
    assert part.next(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])).tolist() == expected


def test_all_policies_are_tested_here():
    own = [part.name for part in buffer_policies if part.__module__.startswith("mnemos.")]
    assert own == POLICIES


class Watched(Federation):
    """A federation that keeps what clients received and sent in each round."""

    def __init__(self, policy, engine, **changes):
        self.received, self.sent, self.statistics, self.outcomes = [], [], [], []
        super().__init__(
            Experiment.parse(
                {
                    "partition": {"name": "label-dirichlet", "clients": 8, "alpha": 0.5},
                    "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
                    "method": {"name": "fedavg", "buffers": policy},
                    "local": {"steps": 4, "batch": 16, "lr": 0.1},
                    "participation": 0.5,
                    "rounds": ROUNDS,
                    "evaluate": {"every": 1, "test_last": 0},
                    "engine": engine,
                    **changes,
                }
            ),
            checks=(self._see,),
        )
        self.statistics.append(self.server.buffers.clone())
        with self.open() as runner:
            for number in range(1, ROUNDS + 1):
                self.received.append({task.client: task.buffers for task in self.requests(number, runner)})
                self.sent.append({})
                self.outcomes.append(self.advance(runner))
                self.statistics.append(self.server.buffers.clone())
        self.close()

    def _see(self, update, layout):
        self.sent[-1][update.client] = update

    def mean(self, number):
        """Σ nₖ bₖ / Σ nₖ over the clients of a round."""
        updates = self.sent[number].values()
        return sum(one.samples * one.buffers for one in updates) / sum(one.samples for one in updates)


def value(outcome, name):
    (found,) = [record.value for record in outcome.records if record.name == name and record.client is None]
    return found


@pytest.fixture(scope="module")
def watched():
    """One federation for each policy and engine, made when it is first asked for."""
    made = {}

    def get(policy, engine):
        if (policy, engine) not in made:
            made[policy, engine] = Watched(policy, engine)
        return made[policy, engine]

    return get


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", POLICIES)
def test_clients_measure_their_own_statistics(watched, policy, engine):
    """The premise of all that follows: they differ, and each has counted its four batches."""
    for received, sent in zip(watched(policy, engine).received, watched(policy, engine).sent, strict=True):
        assert received.keys() == sent.keys()
        means = [update.buffers[:8] for update in sent.values()]
        assert all(not torch.allclose(means[0], other, atol=1e-2) for other in means[1:])
        for client, update in sent.items():
            assert float(update.buffers[-1]) == pytest.approx(float(received[client][-1]) + 4)


@pytest.mark.parametrize("engine", ENGINES)
def test_average(watched, engine):
    """Everyone gets the server's, and the server's are the mean by samples of what comes back."""
    federation = watched("average", engine)
    for number in range(ROUNDS):
        assert all(
            torch.equal(b, federation.statistics[number]) for b in federation.received[number].values()
        )
        torch.testing.assert_close(federation.statistics[number + 1], federation.mean(number))


@pytest.mark.parametrize("engine", ENGINES)
def test_local(watched, engine):
    """Who has been there before gets its own of that time, and never the server's."""
    federation = watched("local", engine)
    own, returned = {}, 0
    for number in range(ROUNDS):
        for client, buffers in federation.received[number].items():
            if client in own:
                assert torch.equal(buffers, own[client])
                assert not torch.allclose(buffers, federation.statistics[number], atol=1e-2)
                returned += 1
            else:
                assert torch.equal(buffers, federation.statistics[number])
        own |= {client: update.buffers for client, update in federation.sent[number].items()}
        torch.testing.assert_close(federation.statistics[number + 1], federation.mean(number))
    assert returned > 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", ["server", "leave-out"])
def test_server_and_leave_out(watched, policy, engine):
    """The statistics of the beginning, mean 0, variance 1 and no batch, for everyone and for ever."""
    federation = watched(policy, engine)
    beginning = torch.tensor([0.0] * 8 + [1.0] * 8 + [0.0])
    assert all(torch.equal(buffers, beginning) for buffers in federation.statistics)
    for received in federation.received:
        assert all(torch.equal(buffers, beginning) for buffers in received.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_training_does_not_depend_on_the_policy(watched, engine):
    """FedAvg's clients train with the statistics of their batches: running ones show in evaluation alone."""
    models = [watched(policy, engine).server.model for policy in POLICIES]
    assert all(torch.equal(model, models[0]) for model in models[1:])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("policy", "up", "down"), [("average", 1, 1), ("local", 1, 0), ("server", 0, 1), ("leave-out", 0, 0)]
)
def test_bytes_sent_by_hand(watched, policy, up, down, engine):
    """Four clients, 626 parameters and, where they are sent, 17 statistics of four bytes."""
    for outcome in watched(policy, engine).outcomes:
        assert value(outcome, "bytes_up") == 4 * 4 * (PARAMETERS + up * STATISTICS)
        assert value(outcome, "bytes_down") == 4 * 4 * (PARAMETERS + down * STATISTICS)
    assert PARAMETERS == watched(policy, engine).layout.size == 626


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", POLICIES)
def test_which_statistics_evaluation_uses(watched, policy, engine):
    """The server's running ones; with leave-out those of the evaluated samples themselves."""
    federation = watched(policy, engine)
    dataset = federation.dataset
    held_out = torch.from_numpy(federation.assignment.union_held_out())
    x = normalise(dataset.train.samples[held_out], torch.tensor(dataset.mean), torch.tensor(dataset.std))
    assert len(x) <= 512  # one chunk of evaluation
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU())
    module = Classifier(body, 8, 10)
    module.load_state_dict(
        federation.layout.state_dict(federation.server.model, federation.server.buffers), strict=True
    )
    module.train(policy == "leave-out")
    with torch.no_grad():
        expected = module(x)
        other = module.train(policy != "leave-out")(x)
    found = federation.outcomes[-1].validation.logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, other, atol=1e-2)


def test_both_engines_have_the_same_statistics(watched):
    for policy in POLICIES:
        for number in range(ROUNDS):
            one, two = (watched(policy, engine).sent[number] for engine in ENGINES)
            for client, update in one.items():
                torch.testing.assert_close(two[client].buffers, update.buffers, rtol=1e-3, atol=1e-4)
