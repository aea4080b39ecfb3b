"""Whatever looks at a model leaves it as it was: parameters, buffers, modes, gradients, random generators.

Every function of the library that is handed a module, every check of a registered part, every engine's trial
and every measure, on models whose batch-norm has statistics of its own, as pre-trained ones have.
"""

import importlib
import inspect
import pkgutil
import random
import threading
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn

import mnemos
from mnemos.client.trainer import fresh_model, has_batch_norm
from mnemos.data.dataset import Split
from mnemos.data.load import load
from mnemos.engines.auto import has_convolutions
from mnemos.engines.engine import Work, engines
from mnemos.engines.vmap import Vmap
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Measure, measures
from mnemos.methods.method import methods
from mnemos.methods.part import terms
from mnemos.models import chain
from mnemos.models.buffers import changed_buffers
from mnemos.models.chain import Chain
from mnemos.models.checks import check_features, check_model
from mnemos.models.dropout import draws_globally
from mnemos.models.encoder import Encoder, head_of, place, save_encoder
from mnemos.models.features import features_and_logits
from mnemos.models.functional import Functional
from mnemos.models.memory import channels_last_is_safe
from mnemos.models.model import build_model, check_output, models
from mnemos.models.trial import buffer_bytes, copied, trial
from mnemos.pretrain.pretraining import Pretraining
from mnemos.screens.screen import screens
from mnemos.studies.estimate import estimate
from mnemos.vector import Layout, _kinds, save_model
from support.play import play

SHAPE, CLASSES = (1, 8, 8), 10


class Body(nn.Module):
    """A convolution and batch-norm that has learned: mean −3, variance 2, 7 batches."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Linear(144, 6).requires_grad_(False)
        self.fixed = nn.BatchNorm1d(6).eval()
        self.passes = 0
        with torch.no_grad():
            for norm in (self.norm, self.fixed):
                norm.running_mean.fill_(-3.0)
                norm.running_var.fill_(2.0)
                norm.num_batches_tracked.fill_(7)

    def forward(self, x):
        self.passes += 1
        return self.fixed(self.frozen(self.norm(self.convolution(x)).relu().flatten(1)))


class Headed(nn.Module):
    """`features` and `head`."""

    def __init__(self, classes):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(6, classes)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.features(x))


class Featured(nn.Module):
    """`features` alone, which forward calls."""

    def __init__(self, classes):
        super().__init__()
        self.body, self.last = Body(), nn.Linear(6, classes)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.last(self.features(x))


class Plain(nn.Module):
    """Neither."""

    def __init__(self, classes):
        super().__init__()
        self.body, self.last = Body(), nn.Linear(6, classes)

    def forward(self, x):
        return self.last(self.body(x))


OWN = [f"{__name__}:{kind.__name__}" for kind in (Headed, Featured, Plain)]


def state(module):
    """All of a module that could have changed, as plain values."""
    return {
        "parameters": {n: p.detach().numpy().tobytes() for n, p in module.named_parameters()},
        "buffers": {n: b.numpy().tobytes() for n, b in module.named_buffers()},
        "gradients": {n: p.grad is not None for n, p in module.named_parameters()},
        "wanted": {n: p.requires_grad for n, p in module.named_parameters()},
        "modes": {n: m.training for n, m in module.named_modules()},
        "kinds": {n: type(m) for n, m in module.named_modules()},
        "hooks": {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in module.named_modules()},
        "own": {n: sorted(vars(m)) for n, m in module.named_modules()},
        "passes": [m.passes for m in module.modules() if isinstance(m, Body)],
    }


def generators():
    """Where the global random generators stand."""
    kind, key, *rest = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), kind, key.tolist(), rest, random.getstate()


def bytes_of(*tensors):
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


def pretrained(path=OWN[0]):
    return build_model(models.parse(path), SHAPE, CLASSES, torch.Generator().manual_seed(1))


X = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(2))


def _evaluate(module):
    """An `Evaluator` binds the module it is given; the vectors it is asked about are the caller's."""
    dataset = load(Experiment.parse({}).plan.data)
    model, buffers = Layout.of(module).gather(module.state_dict())
    before = bytes_of(model, buffers)
    with closing(Evaluator(pretrained(), dataset)) as evaluator:
        evaluator(model, buffers, Split(dataset.test.samples[:700], dataset.test.labels[:700]))
    assert bytes_of(model, buffers) == before


def _evaluate_in_batches(module):
    dataset = load(Experiment.parse({}).plan.data)
    vectors = Layout.of(module).gather(module.state_dict())
    before = bytes_of(*vectors)
    with closing(Evaluator(pretrained(), dataset, in_batches=True)) as evaluator:
        evaluator(*vectors, dataset.test, torch.arange(5))
    assert bytes_of(*vectors) == before


def _look_elsewhere(module):
    """`net.at(…)` of a function, in both modes."""
    vectors = Layout.of(module).gather(module.state_dict())
    before = bytes_of(*vectors)
    functional = Functional(pretrained())
    for mode in (True, False):
        with functional.training(mode), torch.no_grad():
            functional.net(*vectors).at(vectors[0])(X)
            functional.net(*vectors).at(vectors[0]).features(X)
    assert bytes_of(*vectors) == before


def _try(module):
    for mode in (True, False):
        with trial(module, training=mode) as twin:
            assert twin.training is mode
            twin(X)
            twin(X + torch.randn_like(X))
            random.random()
            np.random.rand()  # noqa: NPY002


def _copy(module):
    """Whatever is done to the copy."""
    twin = copied(module)
    for layer, own in zip(module.modules(), twin.modules(), strict=True):
        assert layer._forward_hooks is not own._forward_hooks
    twin.register_forward_hook(lambda *_: None)
    for tensor in (*twin.parameters(), *twin.buffers()):
        tensor.data.zero_()


LOOKS = {
    "mnemos.client.trainer:has_batch_norm": has_batch_norm,
    "mnemos.engines.auto:has_convolutions": has_convolutions,
    "mnemos.models.chain:Chain.of": lambda m: Chain.of(m, Layout.of(m)),
    "mnemos.models.chain:_parts": lambda m: list(chain._parts(m)),
    "mnemos.models.chain:_known": chain._known,
    "mnemos.models.chain:_hooked": chain._hooked,
    "mnemos.models.buffers:changed_buffers": lambda m: (
        changed_buffers(m, SHAPE, training=True),
        changed_buffers(m, SHAPE, training=False),
    ),
    "mnemos.models.dropout:draws_globally": lambda m: draws_globally(m, SHAPE),
    "mnemos.models.encoder:head_of": lambda m: head_of(m, SHAPE),
    "mnemos.models.memory:channels_last_is_safe": channels_last_is_safe,
    "mnemos.models.model:check_output": lambda m: check_output(m, SHAPE, CLASSES),
    "mnemos.models.trial:trial": _try,
    "mnemos.models.trial:copied": _copy,
    "mnemos.models.trial:buffer_bytes": buffer_bytes,
    "mnemos.models.checks:check_model": lambda m: check_model(m, SHAPE),
    "mnemos.models.checks:check_features": lambda m: check_features(m, SHAPE),
    "mnemos.vector:Layout.of": Layout.of,
    "mnemos.vector:_kinds": _kinds,
    "mnemos.measures.evaluate:Evaluator.__init__": _evaluate,
    "mnemos.measures.evaluate:in_batches": _evaluate_in_batches,
    "mnemos.models.functional:Functional.__init__": _look_elsewhere,
}
"""What only looks at a module, or takes vectors of one, and how it is called here."""

CHANGES = {
    "mnemos.client.trainer:_Module.__init__": "keeps it",
    "mnemos.federation.assembly:Parts._group": "tested below, as a whole",
    "mnemos.methods.head:Head.reader": "wraps it",
    "mnemos.methods.head:_Reader.__init__": "wraps it",
    "mnemos.models.batchnorm:mask_batch_norm": "replaces layers",
    "mnemos.models.convolution:fast_convolutions": "replaces layers",
    "mnemos.models.dropout:own_dropout": "replaces layers",
    "mnemos.models.dropout:set_generator": "gives it a generator",
    "mnemos.models.dropout:without_dropout": "turns dropout off",
    "mnemos.models.encoder:place": "gives it an encoder's tensors; tested below",
    "mnemos.models.features:features_and_logits": "a forward pass; tested below",
    "mnemos.models.features:_in_forward_pass": "a forward pass, likewise",
    "mnemos.models.features:_into_last_linear": "a forward pass, likewise",
    "mnemos.models.features:head": "the classifier alone, which keeps no statistics",
    "mnemos.models.functional:_Both.__init__": "wraps it",
    "mnemos.models.functional:_Top.__init__": "wraps it",
    "mnemos.models.initialise:initialise": "draws its weights",
    "mnemos.models.initialise:_reset": "draws its weights",
    "mnemos.models.mixed:Ensemble.__init__": "wraps it",
    "mnemos.models.model:Classifier.__init__": "wraps it",
    "mnemos.models.model:_materialise": "gives lazy layers their tensors",
    "mnemos.models.norm:use_batch_statistics": "drops its statistics",
    "mnemos.models.resnet:BasicBlock.__init__": "wraps it",
    "mnemos.pretrain.train:_Scale.__init__": "replaces layers",
    "mnemos.pretrain.train:_learn": "trains it",
    "mnemos.pretrain.train:_test": "evaluates what was trained here",
    "mnemos.experiment.compatibility.setup:Setup.__init__": "tested below, as a part of the federation",
    "mnemos.engines.vmap:VmapRunner._sizes": "tested below, as a part of the engine",
    "mnemos.federation.groups:Group.__init__": "tested below, as a part of the federation",
    "mnemos.runs.trained.model:TrainedModel.__init__": "keeps it",
    "mnemos.vector:Bound.__init__": "binds it",
    "mnemos.vector:load_model": "gives it a file's tensors",
    "mnemos.vector:save_model": "tested below",
}
"""What changes a module because that is what it is for, or is tested in another way."""


def _functions():
    """All functions of the library with a parameter that is a module, or a bound one."""
    for info in pkgutil.walk_packages(mnemos.__path__, "mnemos."):
        if ".templates" in info.name or info.name.endswith("__main__"):
            continue
        home = importlib.import_module(info.name)
        for name, value in vars(home).items():
            if getattr(value, "__module__", None) != home.__name__:
                continue
            own = {name: value} if inspect.isfunction(value) else {}
            if inspect.isclass(value):
                own = {f"{name}.{key}": getattr(f, "__func__", f) for key, f in vars(value).items()}
            for key, function in own.items():
                hints = getattr(function, "__annotations__", {}) if inspect.isfunction(function) else {}
                taken = [str(hint) for parameter, hint in hints.items() if parameter != "return"]
                if any("nn.Module" in hint or hint == "Bound" for hint in taken):
                    yield f"{home.__name__}:{key}"


def test_no_function_that_is_handed_a_module_is_forgotten_here():
    """A new one has to be put into one of the two lists above."""
    tried = set(LOOKS) - {"mnemos.measures.evaluate:in_batches"}
    assert tried | set(CHANGES) == set(_functions())
    assert not tried & set(CHANGES)


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("name", LOOKS)
def test_looking_at_a_module_changes_nothing(name, path, mode):
    module = pretrained(path).train(mode)
    module.body.fixed.eval()
    before, drawn = state(module), generators()
    if (name, path) == ("mnemos.models.encoder:head_of", OWN[0]):
        assert head_of(module, SHAPE) == "head"
    LOOKS[name](module)
    assert state(module) == before
    assert generators() == drawn


@pytest.mark.parametrize("path", OWN)
def test_features_come_with_one_pass_like_any_other(path):
    """After features and logits a module is what it is after logits alone, and the logits are the same."""
    one, other = pretrained(path), pretrained(path)
    (features, logits), plain = features_and_logits(one, X), other(X)
    assert torch.equal(logits, plain)
    assert torch.equal(features, pretrained(path).body(X))
    assert state(one) == state(other)


def test_saving_and_placing(tmp_path):
    """A file with other weights than the module's; and an encoder that is placed keeps its own tensors."""
    module = pretrained()
    layout, before = Layout.of(module), state(module)
    vectors = [torch.full((layout.size,), 0.5), torch.full((layout.buffer_size,), 2.0)]
    save_model(tmp_path / "model.safetensors", module, *vectors)
    assert state(module) == before
    encoder = Encoder({n: t.clone() for n, t in module.state_dict().items()}, {})
    tensors = {name: tensor.numpy().tobytes() for name, tensor in encoder.tensors.items()}
    other = build_model(models.parse(OWN[0]), SHAPE, CLASSES, torch.Generator().manual_seed(5))
    with torch.no_grad():
        other.body.norm.running_mean.fill_(1.0)
        other.body.frozen.load_state_dict(module.body.frozen.state_dict())
    place(encoder, other, SHAPE)
    assert torch.equal(other.body.norm.running_mean, torch.full((4,), -3.0))
    assert {name: tensor.numpy().tobytes() for name, tensor in encoder.tensors.items()} == tensors
    assert other.body.passes == 0


# a whole federation, before its first round


def experiment(**changes):
    settings = {
        "model": OWN[0],
        "partition": {"name": "iid", "clients": 8},
        "participation": 0.5,
        "rounds": 2,
        "local": {"steps": 2, "batch": 16, "lr": 0.05},
        "evaluate": {"every": 1, "test_every": 1},
        "engine": "serial",
    }
    return Experiment.parse({**settings, **changes})


def first_vectors(federation):
    """The model as the user's module has it, built again."""
    module = fresh_model(federation.plan, federation.dataset)
    return federation.layout.gather(module.state_dict())


METHODS = {name: {"method": name} for name in methods.names()}
METHODS["fedsgd"]["local"] = {"steps": 1, "lr": 0.05}
METHODS["pass with distillation"] = {"method": {"name": "pass", "distillation": 10.0}}
METHODS["batches"] = {"method": {"name": "fedavg", "buffers": "leave-out"}}
NEEDS = {"representation": ["prototypes"]}
METHODS |= {
    f"term {name}": {"method": {"name": "fedavg", "terms": [*NEEDS.get(name, []), name]}}
    for name in terms.names()
}
METHODS |= {f"screen {name}": {"screens": [name]} for name in screens.names()}


@pytest.mark.parametrize("path", OWN)
@pytest.mark.parametrize("case", METHODS)
def test_every_method_begins_with_the_statistics_of_the_model(case, path):
    """Mean −3 and variance 2 after all checks, of every preset, every term and every screen."""
    drawn = generators()
    federation = Federation(experiment(**{"model": path, **METHODS[case]}))
    federation.check_start()
    federation.load_start()
    federation.close()
    assert bytes_of(federation.server.model, federation.server.buffers) == bytes_of(
        *first_vectors(federation)
    )
    statistics = federation.layout.buffer_views(federation.server.buffers)
    for norm in ("body.norm", "body.fixed"):
        assert statistics[f"{norm}.running_mean"].unique().tolist() == [-3.0]
        assert statistics[f"{norm}.running_var"].unique().tolist() == [2.0]
        assert float(statistics[f"{norm}.num_batches_tracked"]) == 7.0
    assert generators() == drawn


@pytest.mark.parametrize("peers", [False, True])
def test_mixed_models_begin_with_theirs(peers):
    share = [{"model": path} for path in OWN]
    model = {"name": "mixed", "of": share, "peers": peers, "exchange": {"samples": 20}}
    federation = Federation(experiment(model=model, method="moon"))
    federation.close()
    statistics = federation.layout.buffer_views(federation.server.buffers)
    assert {float(v.unique()) for n, v in statistics.items() if n.endswith("running_mean")} == {-3.0}


def test_a_start_from_a_file_keeps_its_statistics(tmp_path):
    module = pretrained()
    with torch.no_grad():
        module.body.norm.running_mean.fill_(4.0)
    save_encoder(tmp_path / "encoder.safetensors", Encoder(module.state_dict(), {}))
    start = {"name": "file", "path": str(tmp_path / "encoder.safetensors")}
    for method in ("fedavg", "moon", "fedspace"):
        model = {"name": "cnn", "width": 0.125, "norm": "batch"}
        plain = Federation(experiment(method=method, model=model))
        encoder = fresh_model(plain.plan, plain.dataset)
        with torch.no_grad():
            for name, buffer in encoder.named_buffers():
                if name.endswith("running_mean"):
                    buffer.fill_(4.0)
        save_encoder(tmp_path / "encoder.safetensors", Encoder(encoder.state_dict(), {}))
        federation = Federation(experiment(method=method, model=model, start=start))
        federation.check_start()
        federation.load_start()
        federation.close()
        plain.close()
        statistics = federation.layout.buffer_views(federation.server.buffers)
        assert {float(v.unique()) for n, v in statistics.items() if n.endswith("running_mean")} == {4.0}


def _local_engines():
    """Those that run in this process; what the others run there is a `Trainer`, as `serial` does."""
    return [name for name in engines.names() if name not in {"ray", "flower"}]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *((method, name) for method in ("fedspace", "scaffold") for name in ("serial", "vmap")),
        *(("moon", name) for name in _local_engines()),
    ],
)
def test_opening_an_engine_and_its_trials_changes_nothing(method, name):
    """`auto` times its candidates on the first cohort's own tasks."""
    federation = Federation(experiment(model=OWN[1], engine="serial", method=method))
    before, drawn = bytes_of(federation.server.model, federation.server.buffers), generators()
    engine = engines.parse(name)
    plan = federation.groups[0].plan
    with engine.open(plan, federation.dataset, Work(4, 2)) as runner:
        tasks = list(federation.requests(1, runner))
        sent = [bytes_of(t.model, t.buffers, *t.state.values(), *t.received.values()) for t in tasks]
        updates = list(runner.run(tasks))
        assert [bytes_of(t.model, t.buffers, *t.state.values(), *t.received.values()) for t in tasks] == sent
    federation.close()
    assert len(updates) == 4
    assert bytes_of(federation.server.model, federation.server.buffers) == before
    assert generators() == drawn


def test_the_room_a_client_takes_is_found_without_moving_statistics():
    federation = Federation(experiment())
    with Vmap().open(federation.groups[0].plan, federation.dataset, Work(4, 2)) as runner:
        functional = runner._replicas[0].functional
        assert all(not norm.updated for norm in functional._norms.values())
        buffers = dict(functional.module.named_buffers())
        assert buffers["body.norm.running_mean"].unique().tolist() == [-3.0]
        assert not any(part._forward_hooks for part in functional.module.modules())
    federation.close()


def test_an_estimate_draws_nothing():
    drawn = generators()
    assert estimate(experiment(method="moon")) > 0
    assert generators() == drawn


def test_verifying_a_pretraining_draws_nothing():
    drawn = generators()
    Pretraining(classes=3, images=4).verify(models.parse("cnn"), (1, 8, 8))
    assert generators() == drawn


# measures

TASKS = {"stream": {"name": "tasks", "tasks": 2}, "rounds": 4}
MEASURES = {
    "continual": TASKS,
    "task-forgetting": {**TASKS, "measures": [{"name": "task-forgetting", "every": 1}]},
    **{
        name: {"measures": [{"name": name, "every": 1, "clients": True, "linear": True}]}
        for name in measures.names()
        if "rank" in name or name in {"knowledge-gain", "condition-number", "stable-quality"}
    },
    "forgetting": {"measures": [{"name": "forgetting", "rounds": 1}]},
}


def _watched(monkeypatch, kind, seen):
    """Let a measure's every look compare what it was shown before and after."""

    def compared(tensors, records):
        before, drawn = bytes_of(*tensors), generators()
        found = list(records())
        assert bytes_of(*tensors) == before
        assert generators() == drawn
        seen.extend(found)
        return iter(found)

    def records(self, moment, plain=kind.records):
        scores = [s for s in (moment.validation, moment.test) if s is not None]
        shown = [t for s in scores for t in (s.logits, s.labels, s.losses)]
        return compared([moment.model, moment.buffers, *shown], lambda: plain(self, moment))

    def watch(self, opening, plain=kind.watch):
        before, drawn = bytes_of(opening.model, opening.buffers), generators()
        found = plain(self, opening)
        assert bytes_of(opening.model, opening.buffers) == before
        assert generators() == drawn
        return None if found is None else Looking(found)

    class Looking:
        def __init__(self, inner):
            self.inner = inner

        def see(self, client, model, buffers):
            compared([model, buffers], lambda: self.inner.see(client, model, buffers) or [])

        def records(self):
            return compared([], self.inner.records)

        def aggregated(self, model, buffers):
            compared([model, buffers], lambda: self.inner.aggregated(model, buffers) or [])

    monkeypatch.setattr(kind, "records", records)
    monkeypatch.setattr(kind, "watch", watch)


@pytest.mark.parametrize("name", measures.names())
def test_a_measure_changes_nothing_that_it_measures(name, monkeypatch):
    """Neither what it is shown nor the run it is a part of, which ends with the same bytes without it."""
    changes = {"measures": [name], **MEASURES.get(name, {})}
    without = {**changes, "measures": [], "evaluate": {"every": 1, "test_every": 1}}
    plain = _run(experiment(**without))
    seen = []
    _watched(monkeypatch, measures[name], seen)
    measured = _run(experiment(**changes))
    assert len(seen) > 1
    assert measured == plain


def test_no_measure_is_left_out():
    """All classes of measures there are, but for those that others are made of."""
    kinds, todo = set(), [Measure]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        own = kind.imported and kind.__module__.startswith("mnemos.")
        kinds |= {kind} if own and not kind.__subclasses__() else set()
    assert kinds == set(measures)


def _run(experiment):
    federation, _ = play(experiment)
    server = federation.server
    return bytes_of(*server.tensors.values())


# what must be the same as FedAvg

ROTATED = {"name": "fedavg", "loss": "task-ce", "head": {"rotations": True, "temperature": 0.1}}
SAME = {
    "moon": ({"name": "moon", "mu": 0}, {"name": "fedavg"}),
    "fedspace": (
        {
            "name": "fedspace",
            "prototype_weight": 0.0,
            "representation_weight": 0.0,
            "server": "replace",
            "buffers": "average",
        },
        ROTATED,
    ),
    "pass": ({"name": "pass", "prototype_weight": 0.0, "distillation": 10.0}, ROTATED),
}


@pytest.mark.parametrize("engine", ["serial", "threads", "vmap"])
@pytest.mark.parametrize("path", [*OWN, "cnn"])
@pytest.mark.parametrize("case", SAME)
def test_switched_off_it_is_fedavg_with_batch_norm(case, path, engine):
    """MOON with μ = 0, FedSpace without its parts, PASS with distillation in its first task."""
    model = {"name": "cnn", "width": 0.125, "norm": "batch"} if path == "cnn" else path
    ours, plain = (
        _trained(experiment(model=model, method=method, engine=engine, rounds=3)) for method in SAME[case]
    )
    assert ours == plain


def _trained(experiment):
    federation, _ = play(experiment)
    return bytes_of(federation.server.model, federation.server.buffers)


class Dropping(Headed):
    """With dropout, whose masks MOON's other models must not use up when μ = 0."""

    def __init__(self, classes):
        super().__init__(classes)
        self.drop = nn.Dropout(0.3)

    def features(self, x):
        return self.drop(self.body(x))


def test_moon_without_weight_draws_the_masks_of_fedavg():
    ours, plain = (
        _trained(experiment(model=f"{__name__}:Dropping", method=method)) for method in SAME["moon"]
    )
    assert ours == plain


# models that can't be looked at without a trace, or not as they run


class Counting(nn.Module):
    """Statistics that an evaluation moves."""

    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(), alpha=0.1)
        return self.last(x.flatten(1) - self.mean)


class Apart(Featured):
    """Its forward doesn't call `features`."""

    def forward(self, x):
        return self.last(self.body(x))


class Between(Headed):
    """Something between features and head."""

    def forward(self, x):
        return self.head(self.features(x).tanh())


class Drawing(nn.Module):
    """Draws from NumPy's global generator."""

    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        return self.last(x.flatten(1)) * float(np.random.rand())  # noqa: NPY002


class Locked(nn.Module):
    """Can't be copied."""

    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.lock = threading.Lock()

    def forward(self, x):
        return self.last(x.flatten(1))


@pytest.mark.parametrize(
    ("model", "method", "sentence"),
    [
        ("Counting", "fedavg", r"model: evaluation changes its buffer 'mean', so a score would depend"),
        ("Apart", "moon", r"method\.terms: the model's forward doesn't call its features\(x\)"),
        ("Between", "moon", r"method\.terms: the model's head\(features\(x\)\) isn't what its forward gives"),
        ("Drawing", "fedavg", r"model: its forward pass draws from a global random generator"),
        ("Locked", "fedavg", r"model: it can't be copied, and models are tried out on a copy"),
    ],
)
def test_models_that_would_be_changed_or_misunderstood_are_refused(model, method, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        Federation(experiment(model=f"{__name__}:{model}", method=method))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["Apart", "Between"])
def test_where_nobody_wants_features_they_are_fine(model):
    Federation(experiment(model=f"{__name__}:{model}")).close()


class Instanced(nn.Module):
    """Instance norm with running statistics, which PyTorch writes in place."""

    def __init__(self, classes):
        super().__init__()
        self.norm = nn.InstanceNorm2d(1, track_running_stats=True)
        self.head = nn.Linear(64, classes)

    def features(self, x):
        return self.norm(x).flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


def test_looking_at_other_models_leaves_statistics_that_arent_batch_norms():
    """MOON's two other models run in training mode; in a first round the client's statistics are FedAvg's."""
    ours, plain = (
        Federation(experiment(model=f"{__name__}:Instanced", method=method))
        for method in ({"name": "moon", "mu": 5.0}, "fedavg")
    )
    found = []
    for federation in (ours, plain):
        with federation.open() as runner:
            (update, *_) = runner.run(list(federation.requests(1, runner))[:1])
        found.append(update.buffers)
        federation.close()
    assert torch.equal(*found)
