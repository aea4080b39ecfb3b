"""The tutorial's rounds with a second pass: short, what its formulas say, and resumed bit for bit."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from mnemos.client.trainer import fresh_model
from mnemos.data.batches import Draw, Loader
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.execute import resume, start
from support.bits import assert_same_bits
from support.interrupt import Stop

PAGE = Path(__file__).parents[2] / "docs/tutorials/change-a-round.md"
BETA, RATE, STEPS = 0.5, 0.4, 2
SMALL = {
    "data": "digits",
    "model": "logistic",
    "partition": {"clients": 4, "alpha": 0.5},
    "participation": 1.0,
    "local": {"epochs": STEPS, "batch": 2000, "lr": RATE},
    "method": {"name": "fedavg", "correction": {"name": "second_pass:Momentum", "beta": BETA}},
    "clock": "second_pass:SecondPass",
    "rounds": 4,
    "engine": "serial",
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The page's file, where it can be imported from."""
    [code] = re.findall(r'^```python title="second_pass.py"\n(.*?)^```$', PAGE.read_text(), re.M | re.S)
    path = tmp_path / "second_pass.py"
    path.write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("second_pass", None)


def test_it_is_one_file_of_at_most_60_lines(file):
    assert len(file.read_text().splitlines()) <= 60


def test_it_does_what_the_formulas_say(file):
    """Round by round beside a plain loop: y ← y − η ((1 − β) ∇fₖ(y) + β m), x ← mean y,
    m ← (1 − β) ∇f(x) + β m, weighted by samples."""
    federation = Federation(Experiment.parse(SMALL))
    module, loader = fresh_model(federation.plan, federation.dataset), Loader(federation.dataset, (), False)
    clients = [torch.from_numpy(federation.flow.samples(client, 1)) for client in range(4)]
    shares = [len(samples) / sum(map(len, clients)) for samples in clients]

    def gradient(x, samples):
        nn.utils.vector_to_parameters(x, module.parameters())
        module.zero_grad()
        inputs, labels = loader(Draw(samples, samples))
        nn.functional.cross_entropy(module(inputs), labels).backward()
        return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])

    x, m = federation.server.model.clone(), torch.zeros(federation.layout.size)
    with federation.open() as runner:
        for _ in range(3):
            outcome = federation.advance(runner)
            ends = [x.clone() for _ in clients]
            for y, samples in zip(ends, clients, strict=True):
                for _ in range(STEPS):
                    y -= RATE * ((1 - BETA) * gradient(y, samples) + BETA * m)
            x = sum(share * y for share, y in zip(shares, ends, strict=True))
            g = sum(share * gradient(x, samples) for share, samples in zip(shares, clients, strict=True))
            m = (1 - BETA) * g + BETA * m
            torch.testing.assert_close(federation.server.model, x, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(federation.server.state["mime.m"], m, rtol=1e-3, atol=1e-5)
    federation.close()
    assert m.norm() > 0.01
    bytes = {record.name: record.value for record in outcome.records if record.name.startswith("bytes")}
    numbers = federation.layout.size
    assert bytes == {"bytes_up": 2 * 4 * 4 * numbers, "bytes_down": 2 * 4 * 4 * 2 * numbers}


def test_it_is_resumed_bit_for_bit(file, tmp_path):
    experiment = Experiment.parse({**SMALL, "participation": 0.5, "local": {"batch": 16, "lr": 0.1}})
    runs = [start(experiment, tmp_path / "whole")]
    with pytest.raises(KeyboardInterrupt):
        start(experiment, tmp_path / "part", stop := Stop(2))
    runs += [resume(stop.run.path), start(experiment.override({"engine": "threads"}), tmp_path / "threads")]
    assert_same_bits(runs)


def test_the_clock_says_what_it_takes(file):
    with pytest.raises(ConfigError, match=r"^clock: it takes method.correction=second_pass:Momentum$"):
        Federation(Experiment.parse({**SMALL, "method": "fedavg"}))
