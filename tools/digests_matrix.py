"""The experiments of `tools/digests.py`: an explicit table that also runs against older sources.

Names of parts are written out here and never taken from Mnemos, so that the same table can run against the
sources of two commits; `digests.py coverage` lists the parts that no row uses. Every row is one experiment,
as small as it can be while all of its parts have an effect: seconds count, accuracy does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Options = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One experiment of the net."""

    name: str
    experiment: Options
    """What `mnemos.run` is given; `{files}` in a text is replaced by the folder of generated files."""
    interrupt: int | None = None
    """The round after which the run is interrupted; it is resumed afterwards."""
    extend: int | None = None
    """The number of rounds until which the finished run is resumed."""
    ends: str = "finished"
    """The status that the run ends with."""
    like: str | None = None
    """Another row that must have the same digests: the same experiment, carried out in another way."""


MLP: Options = {"name": "mlp", "hidden": [12]}
BATCH_NORM: Options = {"name": "mlp", "hidden": [12], "norm": "batch"}
CNN: Options = {"name": "cnn", "width": 0.125}
RESNET: Options = {"name": "resnet10", "width": 0.0625}
DIRICHLET: Options = {"name": "dirichlet", "clients": 8, "alpha": 0.5}
IID: Options = {"name": "iid", "clients": 8}
FOUR: Options = {"name": "iid", "clients": 4}
TASKS: Options = {"name": "tasks", "tasks": 2}
LOCAL: Options = {"batch": 16, "lr": 0.1}
SHORT: Options = {"partition": FOUR, "rounds": 2, "local": {**LOCAL, "steps": 2}}
"""For models with convolutions."""
MESSAGES: Options = {"name": "messages", "writers": 8, "each": 30}
RANKED: Options = {"local": {"batch": 16, "lr": 1.0, "epochs": 5}, "rounds": 2}
RANKED_CNN: Options = {
    "model": {"name": "cnn", "width": 0.25},
    "partition": FOUR,
    "local": {"batch": 16, "lr": 0.5, "epochs": 5},
    "rounds": 2,
}
"""Trained so hard that layers have a rank beside noise, which those of a model at its beginning have not."""
SERIAL: Options = {"name": "serial"}
THREADS: Options = {"name": "threads", "workers": 2}
VMAP: Options = {"name": "vmap"}

BASE: Options = {
    "data": {"name": "npz", "path": "{files}/base.npz"},
    "partition": DIRICHLET,
    "model": MLP,
    "method": "fedavg",
    "local": LOCAL,
    "participation": 0.5,
    "rounds": 4,
    "evaluate": {"every": 2, "test_last": 2},
    "engine": SERIAL,
    "seed": 7,
}

_LOSSES = ("ce", "wsm", "tce", "task-ce", "balanced", "masked-ce", "fedlc", "fedrs")
_METHODS = (
    "centralised",
    "fedavg",
    "fedavgm",
    "fedcurv",
    "feddyn",
    "feder",
    "fednova",
    "fedopt",
    "fedprox",
    "fedreg",
    "fedsgd",
    "gma",
    "label-owners",
    "moon",
    "precision",
    "scaffold",
    "uga",
)
_OF_TASKS = ("fedspace", "pass")
"""Methods that are made for streams of tasks."""


def _row(name: str, **changes: Any) -> Row:
    return Row(name, {**BASE, **changes})


def _part(name: str, /, **options: Any) -> Options:
    return {"name": name, **options}


def _method(method: str, /, **options: Any) -> Options:
    """The method, with what it needs: tasks, two local epochs, or convolutions for their ranks."""
    changes: Options = {"method": {"name": method, **options}}
    if method in _OF_TASKS:
        changes |= {"stream": TASKS, "partition": IID}
    if method == "uga":
        changes |= {"local": {**LOCAL, "epochs": 2}}
    if method == "feder":
        changes |= RANKED_CNN
    return changes


def _methods() -> Iterator[Row]:
    """Every method with plain cross-entropy and with the re-weighted softmax, and variants of its options."""
    for method in (*_METHODS, *_OF_TASKS):
        for loss in ("ce", "wsm"):
            yield _row(f"method/{method}/{loss}", **_method(method, loss=loss))
    variants: dict[str, Options] = {
        "centralised/client": _method("centralised", budget="client"),
        "fedavg/meta": _method("fedavg", meta={"samples": 40, "lr": 0.05, "steps": 2}),
        "fedavg/temperature": _method("fedavg", head={"temperature": 0.5}),
        "fedavg/rotations": _method("fedavg", head={"rotations": True}),
        "fedavg/all-terms": _method(
            "fedavg",
            terms=[
                _part("proximal", mu=0.1),
                _part("contrastive", mu=0.5, temperature=0.7),
                _part("curvature", strength=0.01, include_self=True),
            ],
        ),
        "fedavg/representation": {
            **_method("fedavg", terms=["prototypes", _part("representation", weight=0.1, form="released")]),
            "stream": TASKS,
            "partition": IID,
        },
        "fedavg/feature-distillation": {
            **_method("fedavg", terms=[_part("feature-distillation", weight=1.0)]),
            "stream": TASKS,
            "partition": IID,
        },
        "fedavg/prototypes": {
            **_method("fedavg", terms=[_part("prototypes", weight=0.5, memory="round", current=True)]),
            "stream": TASKS,
            "partition": IID,
        },
        "fedcurv/include-self": _method("fedcurv", strength=0.01, include_self=True),
        "fednova/steps": {**_method("fednova"), "local": {**LOCAL, "epochs": 2}},
        "fedreg/down": _method(
            "fedreg", correction=_part("fedreg", generate="down", gamma=0.3, generate_steps=2)
        ),
        "fedspace/released": _method(
            "fedspace", memory="round", radius="first", form="released", prototype_weight=0.2
        ),
        "fedspace/alone": _method("fedspace", aggregate=False),
        "pass/distillation": _method("pass", distillation=1.0, current=False, prototype_weight=0.2),
        "label-owners/uniform": _method("label-owners", weighting=_part("label-owners", by="uniform")),
        "scaffold/option-I": _method("scaffold", correction=_part("scaffold", option="I")),
        "scaffold/momentum": _method("scaffold", server=_part("sgd", lr=0.9, momentum=0.5)),
        "uga/first": _method("uga", correction=_part("keep-trace", order="first")),
    }
    for name, changes in variants.items():
        yield _row(f"method/{name}", **changes)


def _losses() -> Iterator[Row]:
    """Every loss, with and without tasks, and its options."""
    for loss in _LOSSES[2:]:
        yield _row(f"loss/{loss}", **_method("fedavg", loss=loss))
    for loss in _LOSSES:
        yield _row(f"loss/{loss}/tasks", **_method("fedavg", loss=loss), stream=TASKS)
    variants: dict[str, Options] = {
        "wsm/all": _part("wsm", counting="all"),
        "wsm/by-tasks": _part("wsm", counting="tasks"),
        "tce/all": _part("tce", counting="all"),
        "balanced/all": _part("balanced", counting="all"),
        "fedlc/others": _part("fedlc", tau=0.5, denominator="others"),
        "fedrs/soft": _part("fedrs", alpha=0.3, soft=True),
    }
    for name, loss_part in variants.items():
        stream = {"stream": TASKS} if name.endswith("tasks") else {}
        yield _row(f"loss/{name}", **_method("fedavg", loss=loss_part), **stream)


def _server() -> Iterator[Row]:
    """Weightings, rules, server steps and buffer policies."""
    weightings: dict[str, Options] = {
        "uniform": _part("uniform"),
        "label-owners": _part("label-owners"),
        "precision": _part("precision", epsilon=0.01),
        "effective-rank": _part("effective-rank", linear=True, noisy=True),
        "effective-rank/initial": _part("effective-rank", linear=True, form="initial", exponential=True),
        "effective-rank/denominator": _part("effective-rank", linear=True, floor_in="denominator"),
        "stable-rank": _part("stable-rank", linear=True, noisy=True, floor_in="denominator"),
        "stable-rank/textbook": _part("stable-rank", linear=True, definition="textbook", form="initial"),
        "network-rank": _part("network-rank", linear=True),
        "network-rank/log": _part("network-rank", linear=True, log=True, noisy=True),
        "blend": {"stable-rank": 0.5, "samples": 0.5},
        "scaled": _part("scaled", of="samples", factors=[{"client": 1, "factor": 0.25}]),
        "blend/of": _part(
            "blend",
            of=[
                {"weighting": _part("network-rank", linear=True), "share": 1.0},
                {"weighting": "uniform", "share": 3.0},
            ],
        ),
    }
    for name, weighting in weightings.items():
        changes = RANKED_CNN if name == "blend" else RANKED if "rank" in name or "blend" in name else {}
        yield _row(f"weighting/{name}", **_method("fedavg", weighting=weighting), **changes)
    rules: dict[str, Options] = {
        "centred-clipping": _part("centred-clipping"),
        "geometric-median": _part("geometric-median", iterations=20),
        "krum": _part("krum"),
        "median": _part("median"),
        "multi-krum": _part("multi-krum"),
        "norm-bounded": _part("norm-bounded"),
        "norm-bounded/given": _part("norm-bounded", bound=0.3),
        "trimmed-mean": _part("trimmed-mean", trim=0.2),
        "median/nearest": _part("median", before=_part("nearest", bad=0.2)),
        "krum/bucketing": _part("krum", before=_part("bucketing")),
    }
    for name, rule in rules.items():
        flipped = [_part("attack", share=0.2)]
        yield _row(
            f"rule/{name}",
            **_method("fedavg", rule=rule),
            model=BATCH_NORM,
            partition=IID,
            participation=1.0,
            faults=flipped,
        )
    steps: dict[str, Options] = {
        "adagrad": _part("adagrad", beta1=0.5),
        "adam": _part("adam", lr=0.02),
        "yogi": _part("yogi"),
        "fednova": _part("fednova"),
        "gma": _part("gma", tau=0.6, lr=0.9),
        "mix": _part("mix", rho=0.3),
        "replace": _part("replace"),
        "sgd": _part("sgd", lr=0.8, momentum=0.3),
    }
    for name, step in steps.items():
        yield _row(f"server/{name}", **_method("fedavg", server=step), model=BATCH_NORM, partition=IID)
    for policy in ("average", "leave-out", "local", "mix", "server"):
        changes = _method("fedavg", buffers=policy)
        yield _row(f"buffers/{policy}", **changes, model=BATCH_NORM, partition=IID)
        yield _row(f"buffers/{policy}/resnet", **changes, model=RESNET, **SHORT)


def _data() -> Iterator[Row]:
    """Sources, partitions and streams."""
    sources: dict[str, Options] = {
        "digits": _part("digits", test=0.5),
        "npz": _part("npz", path="{files}/owned.npz"),
        "csv": _part("csv", path="{files}/features.csv", label="y"),
        "npz/features": _part("npz", path="{files}/features.npz", test=0.3),
        "owners": _part("owners", paths=["{files}/one.npz", "{files}/two.npz", "{files}/three.npz"]),
        "folder": _part("folder", path="{files}/images", channels=1),
        "fractals": _part("fractals", classes=4, train=20, test=5, size=8, channels=1, background="black"),
    }
    for name, source in sources.items():
        few = {"name": "natural"} if name == "owners" else {"name": "iid", "clients": 4}
        yield _row(f"data/{name}", data=source, partition=few, participation=1.0, rounds=2)
    for source in (_part("text", path="{files}/texts.csv"), MESSAGES):
        yield _row(f"data/{source['name']}", data=source, model=_part("text", width=8), **SHORT)
    partitions: dict[str, Options] = {
        "dirichlet": _part("dirichlet", clients=20, alpha=0.1, validation=0.3),
        "feature-noise": _part("feature-noise", clients=8, noise=0.5),
        "label-dirichlet": _part("label-dirichlet", clients=8, alpha=1.0),
        "label-dirichlet/empty": _part("label-dirichlet", clients=12, alpha=0.05, allow_empty=True),
        "labels": _part("labels", clients=8, per_client=3),
        "natural": _part("natural", min_samples=10),
        "power-law": _part("power-law", clients=8, exponent=1.5),
        "quantity": _part("quantity", clients=8, alpha=1.0),
        "shards": _part("shards", clients=8, per_client=2, validation=0.0),
        "whole": _part("whole", clients=4),
    }
    for name, partition in partitions.items():
        data = {"data": _part("npz", path="{files}/owned.npz")} if name == "natural" else {}
        yield _row(f"partition/{name}", partition=partition, **data)
    streams: dict[str, Options] = {
        "aligned": _part("aligned", tasks=2),
        "aligned/first": _part("aligned", tasks=3, first=4, shuffle_classes=True),
        "drift": _part("drift", points=3),
        "tasks/own": _part("tasks", tasks=4),
        "tasks/same": _part("tasks", tasks=3, order="same", spread=0.5, advance="clock"),
        "tasks/natural": _part("tasks", tasks=4, order="natural", empty="stay", spread=0.0),
    }
    for name, stream in streams.items():
        yield _row(f"stream/{name}", stream=stream, rounds=6, evaluate={"every": 3})


def _models() -> Iterator[Row]:
    """Models and norms, mixed models and pre-trained starts."""
    models: dict[str, Options] = {
        "cnn": CNN,
        "cnn/batch": _part("cnn", width=0.125, norm="batch"),
        "cnn/group": _part("cnn", width=0.125, norm="group"),
        "logistic": _part("logistic"),
        "mlp/group": _part("mlp", hidden=[12, 8], norm="group", groups=2),
        "mlp/layer": _part("mlp", hidden=[12], norm="layer"),
        "resnet10/mixed": _part("resnet10", width=0.0625, norm="mixed"),
        "resnet10/group": _part("resnet10", width=0.0625, norm="group"),
        "resnet10/bias": _part("resnet10", width=0.0625, norm="layer", conv_bias=True),
        "resnet10/none": _part("resnet10", width=0.0625, norm="none"),
        "resnet18": _part("resnet18", width=0.0625, norm="group"),
        "resnet34": _part("resnet34", width=0.0625),
    }
    for name, model in models.items():
        yield _row(f"model/{name}", model=model, **SHORT)
    large = _part("fractals", classes=4, train=20, test=5, size=16, channels=3)
    yield _row("model/lenet", model=_part("lenet", width=0.5), data=large, **SHORT)
    yield _row("model/text-cnn", model=_part("text-cnn", width=8, filters=8), data=MESSAGES, **SHORT)
    of = [{"model": MLP, "share": 2.0}, {"model": BATCH_NORM, "share": 1.0}]
    exchange = {"samples": 40, "steps": 2, "temperature": 2.0}
    mixed: dict[str, Options] = {
        "plain": {"model": _part("mixed", of=of)},
        "exchange": {"model": _part("mixed", of=of, exchange=exchange)},
        "exchange-every-2": {"model": _part("mixed", of=of, exchange={**exchange, "every": 2})},
        "scaffold": {"model": _part("mixed", of=of, exchange=exchange), "method": "scaffold"},
        "kept-optimizer": {
            "model": _part("mixed", of=of),
            "local": {"batch": 16, "lr": 0.01, "optimizer": "adam", "optimizer_state": "kept"},
        },
        "measures": {
            "model": _part("mixed", of=of),
            "measures": ["client-accuracy", "class-accuracy", "personalised"],
        },
        "peers": {"model": _part("mixed", of=of, peers=True)},
        "peers-exchange": {"model": _part("mixed", of=of, peers=True, exchange=exchange)},
        "peers-of-one": {"model": _part("mixed", of=[{"model": MLP}], peers=True, exchange=exchange)},
    }
    for name, changes in mixed.items():
        yield _row(f"mixed/{name}", partition=IID, **changes)
    fractals = _part("fractals", classes=3, images=16, steps=2, batch=8)
    starts: dict[str, Options] = {
        "file": {"start": _part("file", path="{files}/model.safetensors")},
        "file/batch-norm": {
            "start": _part("file", path="{files}/batch-norm.safetensors"),
            "model": BATCH_NORM,
        },
        "fractals": {"start": fractals, "model": RESNET, **SHORT},
        "fractals/multi": {
            "start": {**fractals, "labels": "multi", "background": "black", "optimizer": "sgd"},
            "rounds": 2,
        },
    }
    for name, changes in starts.items():
        yield _row(f"start/{name}", **{"partition": IID, **changes})


def _local() -> Iterator[Row]:
    """Optimisers, schedules, lengths of local training, augmentation."""
    optimizers: dict[str, Options] = {
        "sgd-momentum": {"optimizer": _part("sgd", momentum=0.9)},
        "sgd-nesterov": {"optimizer": _part("sgd", momentum=0.9, nesterov=True), "weight_decay": 0.01},
        "adam": {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01},
        "adamw": {"optimizer": _part("adamw", beta1=0.8), "lr": 0.01, "weight_decay": 0.01},
        "adamp": {"optimizer": "adamp", "lr": 0.01, "weight_decay": 0.01},
        "adamp-nesterov": {"optimizer": _part("adamp", nesterov=True, delta=0.5), "lr": 0.01},
        "rmsgd": {"optimizer": "rmsgd", "lr": 0.5, "epochs": 3},
        "rmsgd-main": {"optimizer": _part("rmsgd", variant="main", beta=0.9), "lr": 0.5, "epochs": 3},
        "library": {
            "optimizer": _part("library", path="torch.optim:RMSprop", options={"alpha": 0.9}),
            "lr": 0.01,
        },
    }
    for name, local in optimizers.items():
        ranked = {**RANKED_CNN, "rounds": 3} if name.startswith("rmsgd") else {}
        for state in ("fresh", "kept"):
            options = {**LOCAL, "lr": 0.05, **local, "optimizer_state": state}
            yield _row(f"optimizer/{name}/{state}", **{**ranked, "local": options})
    others: dict[str, Options] = {
        "schedule/cosine": {"schedule": _part("cosine", floor=0.1)},
        "schedule/cosine-epochs": {"schedule": _part("cosine", over="epochs", floor=0.1), "epochs": 2},
        "schedule/step": {"schedule": _part("step", size=2, gamma=0.3)},
        "schedule/step-epochs": {"schedule": _part("step", over="epochs", size=1), "epochs": 3},
        "local/steps": {"steps": 7},
        "local/fill": {"fill": True, "epochs": 2},
        "local/bf16": {"precision": "bf16"},
        "augment/crop": {"augment": [_part("crop", pad=1)]},
        "augment/cutout": {"augment": [_part("cutout", size=3)]},
        "augment/flip": {"augment": [_part("flip", p=0.3)]},
        "augment/rotation": {"augment": [_part("rotation", degrees=20.0)]},
        "augment/quarter": {"augment": [_part("rotation", quarter=True)]},
        "augment/all": {"augment": [_part("crop", pad=1), _part("flip"), _part("cutout", size=2)]},
    }
    for name, local in others.items():
        yield _row(name, local={**LOCAL, **local})
    lower = {"local": {**LOCAL, "precision": "bf16"}}
    option = {"correction": _part("scaffold", option="I")}
    yield _row("local/bf16/scaffold", **{**_method("scaffold", **option), **lower})
    yield _row("local/bf16/moon", **{**_method("moon"), **lower})


_UNEVEN: Options = {"times": {"0": 3.0, "1": 0.5, "2": 1.5, "5": 2.0}}


def _clocks() -> Iterator[Row]:
    """Selections and clocks."""
    speeds = {"spread": 0.5, "jitter": 0.2, "stragglers": {"share": 0.25, "factor": 4.0}}
    rows: dict[str, Options] = {
        "selection/available": {"selection": _part("available", day=4, share=0.6)},
        "selection/poisson": {"selection": "poisson"},
        "clock/synchronous": {"clock": _part("synchronous", speeds=speeds)},
        "clock/synchronous/deadline": {"clock": _part("synchronous", speeds=speeds, deadline=6.0)},
        "clock/synchronous/whole": {
            "clock": _part("synchronous", speeds=_UNEVEN, deadline=3.0, partial=False),
            "method": "fednova",
        },
        "clock/synchronous/nova": {
            "clock": _part("synchronous", speeds=_UNEVEN, deadline=3.0),
            "method": "fednova",
        },
        "clock/synchronous/over-selection": {
            "clock": _part("synchronous", speeds=speeds, over_selection=0.5)
        },
    }
    asynchronous: dict[str, Options] = {
        "asynchronous": {"clock": _part("asynchronous")},
        "asynchronous/model": {"clock": _part("asynchronous", applies="model", mixing=0.7, buffer=2)},
        "fedasync": {"clock": _part("fedasync")},
        "fedasync/constant": {"clock": _part("fedasync", staleness="constant", concurrency=6)},
        "fedasync/hinge": {"clock": _part("fedasync", staleness=_part("hinge", a=1.0, b=1), concurrency=6)},
        "fedasync/polynomial": {"clock": _part("fedasync", staleness=_part("polynomial", a=1.0))},
        "fedbuff": {"clock": _part("fedbuff", buffer=3)},
        "fedbuff/model": {"clock": _part("fedbuff", buffer=2, applies="model", mixing=0.5)},
        "fedbuff/hinge": {"clock": _part("fedbuff", buffer=2, staleness=_part("hinge", a=2.0, b=0))},
        "fedbuff/adam": {"clock": _part("fedbuff", buffer=3), **_method("fedopt")},
        "fedbuff/kept": {
            "clock": _part("fedbuff", buffer=2),
            "local": {**LOCAL, "optimizer": _part("sgd", momentum=0.9), "optimizer_state": "kept"},
        },
        "fedbuff/batch-norm": {"clock": _part("fedbuff", buffer=3), "model": BATCH_NORM, "partition": IID},
        "fedasync/drop-outs": {"clock": _part("fedasync"), "faults": [_part("drop-outs", rate=0.5)]},
    }
    for name, changes in rows.items():
        yield _row(name, **changes)
    for name, changes in asynchronous.items():
        clock = {**changes["clock"], "speeds": speeds}
        yield _row(f"clock/{name}", **{**changes, "clock": clock}, rounds=8, evaluate={"every": 4})


def _faults() -> Iterator[Row]:
    """Faults, screens, rounds that are repeated and runs that end early."""
    for kind in (
        "nan",
        "inf",
        "shape",
        "empty",
        "huge",
        "scaled",
        "sign-flip",
        "label-flip",
        "replay",
        "stale",
    ):
        attack = _part("attack", share=0.25, kind=kind)
        yield _row(f"fault/attack/{kind}", faults=[attack], participation=1.0)
    for kind in ("coordinate", "means", "variances"):
        attack = _part("attack", share=0.25, kind=kind)
        yield _row(f"fault/attack/{kind}", faults=[attack], participation=1.0, model=BATCH_NORM)
    for kind in ("inner-product", "a-little", "min-max", "min-sum", "mimic"):
        yield _row(
            f"fault/collusion/{kind}", faults=[_part("collusion", share=0.25, kind=kind)], participation=1.0
        )
    backdoor = {"faults": [_part("backdoor", share=0.25)], "measures": ["backdoor"]}
    yield _row("fault/backdoor", **backdoor, participation=1.0)
    enormous = [_part("attack", share=0.25, kind="scaled", scale=50.0)]
    yield _row("guard/on", faults=enormous, participation=1.0)
    yield _row("guard/off", faults=enormous, participation=1.0, guard={"enabled": False})
    for kind in ("unchanged", "noise", "replay"):
        riders = [_part("free-riders", share=0.25, kind=kind, scale=0.5)]
        yield _row(f"fault/free-riders/{kind}", faults=riders)
        yield _row(f"screen/free-riders/{kind}", faults=riders, screens=["free-riders"], participation=1.0)
    scaled = [_part("attack", share=0.25, kind="scaled", scale=100.0)]
    power = _part("power-law", clients=8, exponent=1.2)
    rows: dict[str, Options] = {
        "fault/drop-outs": {"faults": [_part("drop-outs", rate=0.4)]},
        "fault/absent": {"faults": [_part("absent", who=[0, 2, 5], first=2, last=3)]},
        "fault/min-clients": {"faults": [_part("drop-outs", rate=0.5)], "min_clients": 3, "retries": 50},
        "screen/norms": {"faults": scaled, "screens": [_part("norms", most=3.0)], "participation": 1.0},
        "screen/samples": {"partition": power, "screens": [_part("samples", most=1.5)], "participation": 1.0},
        "screen/all": {
            "faults": scaled,
            "screens": ["norms", "samples", "free-riders"],
            "participation": 0.75,
        },
    }
    for name, changes in rows.items():
        yield _row(name, **changes)
    vanishing = {"faults": [_part("drop-outs", rate=0.35)], "min_clients": 2, "retries": 0, "rounds": 30}
    yield Row("ends/paused", {**BASE, **vanishing}, ends="paused")
    hopeless = {"local": {"lr": 1e-9}, "evaluate": {"every": 1, "patience": 2}}
    yield Row("ends/diverged", {**BASE, **hopeless}, ends="diverged")


def _privacy() -> Iterator[Row]:
    """Noise of the server and of the clients."""
    uniform = _method("fedavg", weighting="uniform")
    adaptive = {"quantile": 0.4, "rate": 0.3}
    rows: dict[str, Options] = {
        "server": {"privacy": _part("gaussian", clip=0.5, noise=0.8)},
        "clients": {"privacy": _part("gaussian", clip=0.5, noise=0.8, at="clients")},
        "adaptive": {"privacy": _part("gaussian", clip=0.5, adaptive=adaptive)},
        "adaptive-clients": {"privacy": _part("gaussian", clip=0.5, adaptive=adaptive, at="clients")},
        "poisson": {"privacy": _part("gaussian", clip=0.5, delta=0.01), "selection": "poisson"},
        "budget": {"privacy": _part("gaussian", clip=0.5, noise=2.0, budget=5.0, delta=0.01)},
        "secret": {"privacy": _part("gaussian", clip=0.5, noise=0.8, secret=True)},
        "calibrated": {"privacy": _part("gaussian", clip=0.5, noise=None, budget=20.0, delta=0.01)},
    }
    for name, changes in rows.items():
        yield _row(f"privacy/{name}", **uniform, **changes)
    adam = _method("fedopt", weighting="uniform")
    yield _row("privacy/adam", **adam, privacy=_part("gaussian", clip=0.5, noise=0.8))


def _combinations() -> Iterator[Row]:
    """Parts that meet in the same place: in a client's state, in buffers, in one round's updates."""
    kept = {**LOCAL, "optimizer": _part("sgd", momentum=0.9), "optimizer_state": "kept"}
    normed = {"model": BATCH_NORM, "partition": IID}
    rows: dict[str, Options] = {
        "scaffold-local-buffers": {**_method("scaffold", buffers="local"), **normed, "local": kept},
        "feddyn-adam": {**_method("feddyn", server="adam"), "local": kept},
        "moon-fedbuff": {**_method("moon"), "clock": _part("fedbuff", buffer=2, speeds={"spread": 0.5})},
        "scaffold-drop-outs": {**_method("scaffold"), "faults": [_part("drop-outs", rate=0.3)]},
        "scaffold-screens": {
            **_method("scaffold"),
            "faults": [_part("attack", share=0.25, kind="scaled")],
            "screens": ["norms"],
            "participation": 1.0,
        },
        "fednova-momentum": {**_method("fednova", loss="wsm"), "local": kept, **normed},
        "fedspace-resnet": {**_method("fedspace"), "model": RESNET, **SHORT},
        "pass-cnn": {**_method("pass", distillation=1.0), "model": CNN, **SHORT},
        "meta-batch-norm": {**_method("fedavg", meta={"samples": 30}, buffers="leave-out"), **normed},
        "median-wsm-tasks": {**_method("fedavg", rule="median", loss="wsm"), "stream": TASKS},
        "forgetting-scaffold": {**_method("scaffold"), "evaluate": {"every": 2, "forgetting": 2}},
        "deadline-kept-tasks": {
            "clock": _part("synchronous", speeds={"spread": 0.5}, deadline=3.0),
            "stream": TASKS,
            "local": kept,
        },
        "drift-personalised": {"stream": "drift", "measures": ["personalised", "client-accuracy"], **normed},
        "fedcurv-mixed": {
            **_method("fedcurv"),
            "model": _part("mixed", of=[{"model": MLP}, {"model": BATCH_NORM}]),
            "partition": IID,
        },
    }
    for name, changes in rows.items():
        yield _row(f"combination/{name}", **changes)


def _measures() -> Iterator[Row]:
    """What is measured beside the model's accuracy."""
    both = {"every": 2, "test_last": 2}
    ranks = ("condition-number", "effective-rank", "knowledge-gain", "rank", "stable-quality", "stable-rank")
    rows: dict[str, Options] = {
        "accuracies": {"measures": ["class-accuracy", "client-accuracy", "personalised"]},
        "forgetting": {"evaluate": {**both, "forgetting": 2}},
        "forgetting/named": {"evaluate": both, "measures": [_part("forgetting", rounds=2)]},
        "forgetting/rounds": {
            "evaluate": {**both, "forgetting": [2, 3]},
            "model": BATCH_NORM,
            "partition": IID,
        },
        "continual": {"measures": ["continual"], "stream": TASKS},
        "continual/validation": {"measures": [_part("continual", on="validation")], "stream": TASKS},
        "task-forgetting": {"measures": [_part("task-forgetting", every=2)], "stream": TASKS},
        "task-forgetting/validation": {
            "measures": [_part("task-forgetting", every=1, on="validation")],
            "partition": {**IID, "validation": 0.4},
            "stream": TASKS,
        },
        "ledger": {"measures": [_part("ledger", every=2)]},
        "ledger/tasks": {"measures": [_part("ledger", on="test")], "stream": TASKS},
        "test-every": {"evaluate": {"every": 3, "test_every": 2, "test_last": 0}},
    }
    for name, changes in rows.items():
        yield _row(f"measure/{name}", **changes)
    for rank in ranks:
        part = _part(rank, every=1, linear=True, clients=True)
        yield _row(f"measure/{rank}", measures=[part], **RANKED)
    together = [_part(rank, every=1, clients=True, noisy=True, network="l2-nonzero") for rank in ranks]
    yield _row("measure/ranks/resnet", measures=together, model=RESNET, **SHORT)
    for network in ("mean", "geometric", "weighted"):
        parts = [
            _part("stable-rank", every=1, network=network),
            _part("effective-rank", every=2, network=network, exponential=True),
        ]
        yield _row(f"measure/ranks/{network}", measures=parts, **RANKED_CNN)


_RESUMED = (
    "method/scaffold/ce",
    "method/scaffold/wsm",
    "method/feddyn/ce",
    "method/moon/ce",
    "method/fedcurv/ce",
    "method/fedspace/ce",
    "method/pass/wsm",
    "method/fedopt/ce",
    "method/centralised/ce",
    "method/fedavg/prototypes",
    "optimizer/sgd-momentum/kept",
    "optimizer/adam/kept",
    "optimizer/rmsgd/kept",
    "optimizer/library/kept",
    "buffers/local",
    "clock/fedasync",
    "clock/fedasync/drop-outs",
    "clock/fedbuff",
    "clock/fedbuff/batch-norm",
    "clock/fedbuff/kept",
    "clock/synchronous/deadline",
    "selection/poisson",
    "stream/tasks/own",
    "stream/drift",
    "measure/continual",
    "measure/forgetting",
    "fault/attack/stale",
    "fault/collusion/mimic",
    "guard/on",
    "rule/centred-clipping",
    "fault/free-riders/replay",
    "fault/min-clients",
    "screen/all",
    "privacy/adaptive",
    "privacy/clients",
    "privacy/secret",
    "combination/scaffold-local-buffers",
    "combination/moon-fedbuff",
    "combination/deadline-kept-tasks",
    "mixed/exchange",
    "mixed/kept-optimizer",
    "mixed/peers-exchange",
    "schedule/cosine",
    "start/fractals",
)
"""Runs that remember something from round to round, for interruptions."""

_ENGINES = (
    "method/fedavg/ce",
    "method/fedavg/wsm",
    "method/scaffold/ce",
    "method/feddyn/ce",
    "method/moon/ce",
    "method/fedprox/wsm",
    "method/fedcurv/ce",
    "method/fedreg/ce",
    "method/uga/ce",
    "method/precision/ce",
    "method/fedspace/ce",
    "method/pass/ce",
    "buffers/average",
    "buffers/average/resnet",
    "buffers/local",
    "optimizer/adam/kept",
    "optimizer/rmsgd/kept",
    "augment/all",
    "stream/tasks/own",
    "partition/feature-noise",
    "mixed/exchange",
    "privacy/clients",
    "clock/fedbuff",
    "clock/synchronous/deadline",
    "fault/attack/label-flip",
    "measure/forgetting",
    "local/fill",
    "local/bf16",
    "local/bf16/scaffold",
)
"""What engines treat in different ways."""


def _twins(rows: dict[str, Row]) -> Iterator[Row]:
    """Experiments carried out in another way, with the same digests: but for vmap, which has its own."""
    for name in _RESUMED:
        middle = rows[name].experiment["rounds"] // 2
        yield replace(rows[name], name=f"resumed/{name}", interrupt=middle, like=name)
    for name in _ENGINES:
        experiment = rows[name].experiment
        yield Row(f"threads/{name}", {**experiment, "engine": THREADS}, like=name)
        yield Row(f"vmap/{name}", {**experiment, "engine": VMAP})
    first = rows["method/fedavg/ce"].experiment
    yield Row("auto/exact", {**first, "engine": _part("auto", exact=True)}, like="method/fedavg/ce")
    yield Row("vmap/chunk", {**first, "engine": {**VMAP, "chunk": 2}}, like="vmap/method/fedavg/ce")
    scaffold = rows["method/scaffold/ce"].experiment
    vmap = {**scaffold, "engine": VMAP}
    yield Row("resumed/vmap/scaffold", vmap, interrupt=2, like="vmap/method/scaffold/ce")
    yield Row("extended/scaffold", {**scaffold, "rounds": 2}, extend=4)
    yield Row("extended/fedavg", {**first, "rounds": 2}, extend=4)


def _rows() -> Iterator[Row]:
    yield from _methods()
    yield from _losses()
    yield from _server()
    yield from _data()
    yield from _models()
    yield from _local()
    yield from _clocks()
    yield from _faults()
    yield from _privacy()
    yield from _combinations()
    yield from _measures()


def _table() -> dict[str, Row]:
    rows = {row.name: row for row in _rows()}
    return rows | {row.name: row for row in _twins(rows)}


ROWS = _table()

NOT_COVERED: dict[str, dict[str, str]] = {
    "data source": {
        **dict.fromkeys(("cifar10", "cifar100", "fashion-mnist", "femnist", "mnist"), "a published file"),
        **dict.fromkeys(("huggingface", "parquet"), "an optional package"),
        "elsewhere": "the owners of a federation",
    },
    "engine": {"flower": "the owners of a federation", "ray": "an optional package"},
}
"""Parts that have no row on purpose, by kind: what they need that a tiny run in one process hasn't got."""
