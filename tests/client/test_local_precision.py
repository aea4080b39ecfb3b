"""The precision of local training, against numbers rounded by hand."""

import json
import math
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

import mnemos
from mnemos.client import precision, step
from mnemos.client.precision import check_precision, lowered, tf32
from mnemos.common.devices import CPU
from mnemos.data.dataset import Dataset, Source, Split
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.methods.exchange import Batch, Client
from mnemos.methods.presets.fedavg import FedAvg
from mnemos.models.batchnorm import MaskedBatchNorm
from mnemos.models.functional import Functional
from mnemos.optim.local import Local
from support.play import play, small

ENGINES = ["serial", {"name": "threads", "workers": 2}, "vmap"]
LOWER = {"steps": 2, "batch": 16, "lr": 0.1, "precision": "bf16"}

# A linear model with w = (1/3, 1.01) for its first class and 0 for its second, and one sample x = (3, 1).
# bfloat16 has 8 binary digits: 1/3 is 171/512 there, and 1.01 is 129/128. The first logit is
# 3 · 171/512 + 129/128 = 2.009765625; between 2 and 4 numbers are 1/64 apart: it becomes 129/64.
SAMPLE = [3.0, 1.0]
MODEL = torch.tensor([1 / 3, 1.01, 0.0, 0.0, 0.0, 0.0])
LOGIT = 129 / 64
# The gradient of its loss is −p and p, p = 1 / (1 + e^(129/64)) = 0.11757; between 1/16 and 1/8 numbers are
# 1/2048 apart: it becomes 241/2048. Times 3 it is 180.75/512, where they are 1/512 apart: 181/512.
P, P3 = 241 / 2048, 181 / 512
STEP = [P3, P, -P3, -P, P, -P]
"""What a step of rate 1 changes: the weights of both classes, and the two biases."""


class OneSample(Source):
    """The sample, of the first of two classes; neither scaled nor moved."""

    def load(self):
        split = Split(torch.tensor([[SAMPLE]]).to(torch.uint8)[None], torch.tensor([0]))
        return Dataset("one", split, split, ("a", "b"), (0.0,), (1.0,))


def one_client(engine, of="bf16", **changes):
    return Experiment.parse(
        {
            "data": OneSample(),
            "partition": {"name": "iid", "clients": 1, "validation": 0.0},
            "model": "logistic",
            "participation": 1.0,
            "local": {"steps": 1, "lr": 1.0, "precision": of},
            "engine": engine,
            **changes,
        }
    )


def reply_of(experiment):
    """The reply of the client, which is sent the model above."""
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        (request,) = federation.requests(1, runner)
        (reply,) = runner.run([replace(request, model=MODEL)])
    return reply


def linear():
    return Functional(nn.Linear(2, 2)).net(MODEL, torch.zeros(0))


def test_a_product_is_rounded_by_hand():
    x = torch.tensor([SAMPLE])
    logits = lowered(linear(), "bf16", CPU)(x)
    assert logits.tolist() == [[LOGIT, 0.0]]
    assert logits.dtype == torch.float32
    assert linear()(x)[0, 0].item() == pytest.approx(2.01, abs=1e-6)
    assert lowered(linear(), "bf16", CPU).at(2 * MODEL)(x).tolist() == [[2 * LOGIT, 0.0]]


@pytest.mark.parametrize("other", ["float32", "tf32"])
def test_a_model_in_another_precision_is_the_same_object(other):
    net = linear()
    assert lowered(net, other, CPU) is net


def test_features_come_out_of_bfloat16():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    functional = Functional(net)
    parameters = torch.cat([tensor.detach().reshape(-1) for tensor in net.parameters()])
    low = lowered(functional.net(parameters, torch.zeros(0)), "bf16", CPU)
    features, logits = low.features(torch.tensor([SAMPLE]))
    assert features.dtype == logits.dtype == torch.float32
    assert torch.equal(features, features.bfloat16().float())
    assert torch.equal(low.head(features), logits)


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_a_step_by_hand(engine):
    """The weights are float32 on: 1/3 + 181/512 has no place in bfloat16."""
    reply = reply_of(one_client(engine))
    assert reply.delta.dtype == torch.float32
    assert reply.delta.tolist() == pytest.approx(STEP, abs=1e-7)
    assert reply.loss == pytest.approx(math.log1p(math.exp(-LOGIT)), abs=1e-7)
    p = 1 / (1 + math.exp(2.01))
    plain = reply_of(one_client(engine, "float32"))
    assert plain.delta.tolist() == pytest.approx([3 * p, p, -3 * p, -p, p, -p], abs=1e-6)


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("option", ["I", "II"])
def test_control_variates_are_float32(engine, option):
    """After one step from c = cᵢ = 0, cᵢ is the gradient: of the data pass (I), or of the step (II)."""
    method = {"name": "scaffold", "correction": {"name": "scaffold", "option": option}}
    reply = reply_of(one_client(engine, method=method))
    (change,), (kept,) = reply.change.values(), reply.state.values()
    assert change.dtype == kept.dtype == torch.float32
    assert (-kept).tolist() == pytest.approx(STEP, abs=1e-7)
    assert torch.equal(change, kept)


def test_wsm_of_rounded_logits():
    """With 3 and 1 samples of the classes: −z₀ + log(¾ e^z₀ + ¼ e^z₁) of z = (129/64, 0)."""
    counts = torch.tensor([3.0, 1.0])
    client = Client(MODEL, {}, {}, counts, counts, counts)
    batch = Batch(torch.tensor([SAMPLE]), torch.tensor([0]))
    losses = FedAvg(loss="wsm").batch_loss(lowered(linear(), "bf16", CPU), batch, client)
    assert losses.dtype == torch.float32
    rounded = torch.tensor([[LOGIT, 0.0]])
    assert torch.equal(losses, FedAvg(loss="wsm").loss(rounded, batch.labels, counts))
    expected = -LOGIT + math.log(0.75 * math.exp(LOGIT) + 0.25)
    assert losses.item() == pytest.approx(expected, abs=1e-6)


def test_statistics_of_many_clients_are_sums_in_float32():
    norm = MaskedBatchNorm(nn.BatchNorm1d(3))
    norm.mask = torch.tensor([1.0] * 40 + [0.0] * 8)
    x = torch.randn(48, 3, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected, statistics = norm(x.float()), norm.updated
    norm.updated = {}
    assert torch.equal(norm(x), expected.bfloat16())
    assert all(torch.equal(value, statistics[name]) for name, value in norm.updated.items())


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_float32_enters_no_autocast(engine, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("autocast")

    monkeypatch.setattr(torch, "autocast", refused)
    play(small(engine=engine, rounds=1, method={"name": "scaffold", "correction": {"option": "I"}}))
    with pytest.raises(Exception, match="autocast"):
        play(small(engine=engine, rounds=1, local=LOWER))


SEEN = set()


class Watched(nn.Module):
    """A linear model that notes in which mode and precision it runs."""

    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        SEEN.add((self.training, torch.is_autocast_enabled("cpu")))
        return self.last(x.flatten(1))


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_evaluation_is_float32(engine):
    federation = Federation(small(model="test_local_precision:Watched", engine=engine, rounds=1, local=LOWER))
    with closing(federation), federation.open() as runner:
        SEEN.clear()  # models are tried out before a run
        federation.advance(runner)
    assert sorted(SEEN) == [(False, False), (True, True)]


NORMED = {"name": "mlp", "hidden": [8], "norm": "batch"}
CASES = {
    "terms": {"method": "moon"},
    "every sample's gradient": {"method": "fedcurv"},
    "after a step": {"method": "fedreg"},
    "traced steps": {"method": "uga"},
    "prototypes": {"method": "fedspace"},
    "distilled features": {"method": "pass"},
    "batch-norm": {"model": NORMED},
    "convolutions": {"model": {"name": "cnn", "width": 0.5, "norm": "group"}},
    "kept moments": {"local": {**LOWER, "optimizer": "adam", "optimizer_state": "kept", "lr": 0.01}},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_everything_that_lasts_is_float32_on_every_engine(changes):
    """And engines come as near to each other as roundings of 8 digits let them."""
    start = Federation(small(**changes)).server.model
    moved = []
    for engine in ENGINES:
        replies = []
        federation, _ = play(
            small(**{"local": LOWER, **changes, "engine": engine, "rounds": 2}),
            checks=(lambda reply, _, replies=replies: replies.append(reply),),
        )
        kept = [federation.server.tensors, *(reply.state | reply.change for reply in replies)]
        assert not any(tensor.dtype == torch.bfloat16 for tensors in kept for tensor in tensors.values())
        assert federation.server.model.dtype == torch.float32
        moved.append(federation.server.model - start)
    assert torch.equal(moved[0], moved[1])
    assert (moved[2] - moved[0]).norm() < 0.25 * moved[0].norm()


def test_a_run_records_its_precision(tmp_path):
    run = mnemos.run(small(local=LOWER, rounds=1), out=tmp_path)
    assert json.loads(run.file("engine.json").read_text())["arithmetic"]["precision"] == "bf16"
    shown = small(local=LOWER).show().splitlines()
    (line,) = [line for line in shown if line.startswith("  precision:")]
    assert line.startswith("  precision: bf16")
    assert "float32" in line.partition("#")[2]


@pytest.mark.parametrize("engine", ["auto", *ENGINES], ids=str)
def test_tf32_is_refused_where_there_is_none(engine):
    with (
        closing(Federation(small(engine=engine, local={"precision": "tf32"}))) as federation,
        pytest.raises(
            ConfigError,
            match=r"local\.precision: found tf32, which the device cpu doesn't have; allowed: float32, bf16$",
        ),
    ):
        federation.open()


def test_fp16_is_refused():
    with pytest.raises(
        ConfigError, match=r"local\.precision: found fp16, .* skips steps, .*; allowed: float32, bf16, tf32$"
    ):
        small(local={"precision": "fp16"})
    with pytest.raises(ConfigError, match=r"local\.precision: .*int8"):
        small(local={"precision": "int8"})


def _flags():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def test_flags_of_tf32_are_set_and_restored():
    before, cuda = _flags(), torch.device("cuda", 0)
    for allowed in (True, False):
        with tf32(allowed, cuda):
            assert _flags() == (allowed, allowed)
        assert _flags() == before
    with tf32(True, CPU):
        assert _flags() == before


@pytest.mark.parametrize("engine", ENGINES, ids=str)
def test_tf32_is_for_the_training_of_clients_alone(engine, monkeypatch):
    """Not for what lies between them: aggregation, screens, evaluation."""
    inside = []

    @contextmanager
    def noted(allowed, device):
        inside.append((allowed, device))
        yield
        inside.append("left")

    monkeypatch.setitem(precision._HAVE, "tf32", lambda _: True)
    monkeypatch.setattr(step, "tf32", noted)
    federation = Federation(small(engine=engine, local={**LOWER, "precision": "tf32"}))
    with closing(federation), federation.open() as runner:
        for _ in runner.run(federation.requests(1, runner)):
            assert inside.count("left") >= 1
            if engine == "serial":
                assert inside[-1] == "left"
    assert inside.count((True, CPU)) == inside.count("left") == (1 if engine == "vmap" else 8)


@pytest.mark.parametrize(("generation", "hip", "has"), [(8, None, True), (7, None, False), (9, "6.0", False)])
def test_tf32_takes_a_device_that_has_it(monkeypatch, generation, hip, has):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (generation, 0))
    monkeypatch.setattr(torch.version, "hip", hip)
    cuda = torch.device("cuda", 0)
    if has:
        check_precision("tf32", [cuda])
        return
    with pytest.raises(ConfigError, match=r"found tf32, which the device cuda:0 doesn't have; allowed: "):
        check_precision("tf32", [cuda])


def test_the_default_is_float32():
    assert Local().precision == "float32"
