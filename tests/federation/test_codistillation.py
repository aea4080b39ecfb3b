"""The whole exchange against an independent one, in double precision with plain modules and autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mnemos.data.batches
from mnemos.client.trainer import fresh_model
from mnemos.data.augment import normalise
from mnemos.data.load import load
from mnemos.experiment.experiment import Experiment
from mnemos.methods.server_learning import Student, codistil, server_batches
from mnemos.models.dropout import without_dropout
from mnemos.models.functional import Functional
from mnemos.models.mixed import CoDistillation
from mnemos.vector import Layout

MODELS = (
    {"name": "mlp", "hidden": [6]},
    {"name": "mlp", "hidden": [9], "norm": "batch"},
    "test_mixed:Forgetful",
)


@pytest.mark.parametrize("buffers", ["average", "leave-out"])
def test_an_exchange_is_that_of_plain_modules(buffers, monkeypatch):
    """Three models, two of them with dropout or batch-norm, three steps at a temperature of 2.5."""
    monkeypatch.setattr(mnemos.data.batches, "_CHUNK", 40)  # two chunks of 30
    plans = [
        Experiment.parse({"model": model, "method": {"name": "fedavg", "buffers": buffers}}).plan
        for model in MODELS
    ]
    dataset = load(plans[0].data)
    options = CoDistillation(samples=60, lr=0.3, steps=3, temperature=2.5)
    samples = np.arange(7, 1207, 20)
    inputs = [batch.x for batch in server_batches(dataset, samples)]
    assert [len(x) for x in inputs] == [30, 30]
    models, modules = [], []
    for which, plan in enumerate(plans):
        module = fresh_model(plan, dataset)
        layout = Layout.of(module)
        model, stats = layout.gather(module.state_dict())
        model = model + 0.3 * torch.randn(len(model), generator=torch.Generator().manual_seed(which))
        stats = stats + torch.rand(len(stats), generator=torch.Generator().manual_seed(which))
        functional = Functional(without_dropout(fresh_model(plan, dataset)))
        models.append(Student(functional, model, stats))
        module.load_state_dict(layout.state_dict(model, stats))
        module.double().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d) and buffers == "leave-out":
                part.train()
                part.track_running_stats, part.running_mean, part.running_var = False, None, None
        modules.append(module)
    raw = dataset.train.samples[torch.from_numpy(samples)]
    x = normalise(raw, torch.tensor(dataset.mean), torch.tensor(dataset.std)).double()
    chunks = torch.split(x, 30)

    def logits(module):
        return torch.cat([module(chunk) for chunk in chunks]) / 2.5

    with torch.no_grad():
        said = [logits(module).softmax(-1) for module in modules]
    learnt = codistil(models, inputs, options, in_batches=buffers == "leave-out")
    for place, (module, after) in enumerate(zip(modules, learnt, strict=True)):
        teacher = (sum(said) - said[place]) / 2
        for _ in range(3):
            module.zero_grad()
            (2.5**2 * F.kl_div(logits(module).log_softmax(-1), teacher, reduction="batchmean")).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.3 * parameter.grad
        expected = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
        torch.testing.assert_close(after.double(), expected, rtol=0, atol=2e-6)
        assert (after - models[place].model).abs().max() > 1e-3
