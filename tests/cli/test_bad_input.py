"""Wrong configurations and damaged files: one sentence, an exit code that means something, nothing broken.

Every case runs a command in a folder of its own that holds one earlier run, `out/earlier`. The answer must
be one line that names the field or the file, and nothing on disk may differ afterwards.
"""

from __future__ import annotations

import gzip
import importlib
import json
import shlex
import shutil
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

with warnings.catch_warnings():
    # Typer 0.20 takes names from click that the newest click warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mnemos.cli.app import main
    from support import processes

torch.set_num_threads(1)

WRONG, DAMAGED = 2, 3
"""Exit codes: wrong usage or configuration, data missing or damaged."""

EARLIER = Path("out/earlier")
_DEFAULTS = {
    "run": ["--out", "out", "--quiet"],
    "compare": ["--out", "out", "--quiet"],
    "sweep": ["--out", "out", "--quiet"],
    "resume": ["--quiet"],
    "partition": ["--figure", "figure.png"],
}


# --- making files -------------------------------------------------------------------------------------


def file(name: str, content: str | bytes = "") -> Callable[[], None]:
    """A file of this content, and the folders above it."""

    def make() -> None:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def recipe(content: str | bytes) -> Callable[[], None]:
    return file("recipe.yaml", content)


def both(*makers: Callable[[], None]) -> Callable[[], None]:
    def make() -> None:
        for one in makers:
            one()

    return make


def models(source: str) -> Callable[[], None]:
    """A user's own module, `theirs`."""
    return file("theirs.py", "import torch\nfrom torch import nn\n" + source)


def npz(**arrays: object) -> Callable[[], None]:
    """`samples.npz`: forty vectors of two classes, with some arrays replaced."""

    def make() -> None:
        samples = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
        np.savez("samples.npz", **{"x": samples, "y": np.arange(40) % 2, **arrays})

    return make


def cut(name: str, size: int, make: Callable[[], None]) -> Callable[[], None]:
    """A file of which only the first bytes are left (or all but the last, if `size` is negative)."""

    def made_and_cut() -> None:
        make()
        Path(name).write_bytes(Path(name).read_bytes()[:size])

    return made_and_cut


def cifar10(test_batch: bytes) -> Callable[[], None]:
    def make() -> None:
        for number in range(1, 6):
            file(f"data/cifar-10-batches-bin/data_batch_{number}.bin", bytes(2 * 3073))()
        file("data/cifar-10-batches-bin/test_batch.bin", test_batch)()

    return make


def idx(magic: int, *shape: int) -> bytes:
    return struct.pack(f">{1 + len(shape)}I", magic, *shape) + bytes(int(np.prod(shape)))


def mnist(name: str, content: bytes) -> Callable[[], None]:
    """MNIST of six images a part, with other training images."""

    def make() -> None:
        for part in ("train", "t10k"):
            file(f"data/mnist/{part}-labels-idx1-ubyte", idx(2049, 6))()
        file("data/mnist/t10k-images-idx3-ubyte", idx(2051, 6, 28, 28))()
        file(f"data/mnist/{name}", content)()

    return make


def femnist(content: object) -> Callable[[], None]:
    def make() -> None:
        good = {"users": ["w"], "num_samples": [1], "user_data": {"w": {"x": [[0.5] * 784], "y": [3]}}}
        file("data/femnist/test/a.json", json.dumps(good))()
        file("data/femnist/train/a.json", content if isinstance(content, str) else json.dumps(content))()

    return make


def images(broken: bytes | None) -> Callable[[], None]:
    """`images/{cat,dog}/*.png`, of which one is something else."""

    def make() -> None:
        for kind in ("cat", "dog"):
            Path("images", kind).mkdir(parents=True)
            for number in range(3):
                Image.new("L", (8, 8), number).save(f"images/{kind}/{number}.png")
        if broken is None:
            Image.new("L", (9, 8)).save("images/dog/1.png")
        else:
            Path("images/dog/1.png").write_bytes(broken)

    return make


def parquet() -> None:
    pq.write_table(pa.table({"picture": [[1.0, 2.0]] * 6, "label": [0, 1] * 3}), "table.parquet")


def damage(name: str, content: str | bytes) -> Callable[[], None]:
    """One of the earlier run's files with other content."""
    return file(str(EARLIER / name), content)


def damage_checkpoints(change: Callable[[bytes], bytes], newest: int = 3) -> Callable[[], None]:
    def make() -> None:
        for path in sorted(EARLIER.glob("checkpoints/*"))[-newest:]:
            path.write_bytes(change(path.read_bytes()))

    return make


def another_model() -> None:
    path = EARLIER / "experiment.yaml"
    path.write_text(path.read_text().replace("hidden: [4]", "hidden: [5]"))


# --- the cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A command, how it must end, and what its one sentence must contain."""

    words: str
    code: int
    says: tuple[str, ...]
    make: Callable[[], None] | None = None


CASES: dict[str, Case] = {}


def case(name: str, words: str, code: int, *says: str, make: Callable[[], None] | None = None) -> None:
    assert name not in CASES
    CASES[name] = Case(words, code, says, make)


# fmt: off
# Unknown fields.
case("unknown field", "run round=3", WRONG, "round: unknown field", "did you mean 'rounds'?",
     "allowed: checkpoints, clock, data,")
case("unknown field far off", "run zzz=3", WRONG, "zzz: unknown field",
     "allowed: checkpoints, clock, data, engine")
case("unknown clock", "run clock=sundial", WRONG, "clock: there is no clock 'sundial'; allowed: asynchronous")
case("a clock of which clients are unknown", "run 'clock={name: synchronous, speeds: {times: {700: 2}}}'",
     WRONG, "clock.speeds.times: there is no client 700; allowed: 0 to")
case("speeds that differ beyond numbers", "run clock=fedasync clock.speeds.spread=1000", WRONG,
     "clock.speeds.spread: found 1000", "10")
case("an asynchronous clock with a method that compares", "run method=feder clock=fedbuff", WRONG,
     "method.weighting: found effective-rank, which needs clients that are sent the same model")
case("unknown nested field", "run local.epoch=1", WRONG, "local.epoch: unknown", "did you mean 'epochs'?")
case("unknown option of a part", "run partition.alpah=1", WRONG, "partition.alpah:", "mean 'alpha'?",
     "clients")
case("unknown option of a part in a part", "run local.optimizer.momentun=0.5", WRONG,
     "local.optimizer.momentun: unknown field", "did you mean 'momentum'?", "nesterov")
case("option of a part that has none", "run method.loss.beta=1", WRONG, "method.loss.beta:", "no options")
case("unknown field in a recipe", "run recipe.yaml", WRONG, "partiton: unknown", "did you mean 'partition'?",
     make=recipe("partiton: iid"))
case("number as a field", "run recipe.yaml", WRONG, "1: unknown field", "allowed:", make=recipe("1: 2"))

# Devices, on a machine that has none but the CPU.
case("a device that isn't there", "run --device cuda:7", WRONG, "engine.device: there is no device 'cuda:7'",
     "there is cpu")
case("a device by another name", "run --device gpu", WRONG, "engine.device: there is no device 'gpu'",
     "mean 'cuda'?", "there is cpu")
case("a second device by another name", "run --device rocm:1", WRONG, "'rocm:1'", "mean 'cuda:1'?")
case("a misspelt device", "run --device cdua", WRONG, "engine.device: ", "mean 'cuda'?")
case("a device without a name", "run --device cpu,", WRONG, "engine.device: there is no device ''")
case("the CPU twice", "run --device cpu,cpu", WRONG, "engine.device: found cpu, cpu", "twice")
case("a device's number", "run engine.device=0", WRONG, "engine.device: found 0", "such as cuda:0")
case("no devices", "run 'engine.device=[]'", WRONG, "engine.device: found no device", "allowed: auto")
case("a device for threads", "run --engine threads --device cuda", WRONG, "engine.device: found 'cuda'",
     "threads trains on the CPU alone", "auto, ray, serial, vmap")
case("a device for owners", "run --engine flower --device cuda", WRONG, "engine.device: found 'cuda'",
     "each owner chooses its own, by 'mnemos federate join --device'")
case("a device of the experiment", "run device=cuda", WRONG, "device: unknown field",
     "did you mean 'engine.device'?")
case("a device of the training", "run local.device=cuda", WRONG, "local.device: unknown field",
     "did you mean 'engine.device'?")
case("a device of the model", "run model.device=cuda", WRONG, "model.device: unknown field",
     "did you mean 'engine.device'?", "hidden")
case("a device of a comparison that isn't there", "compare recipe.yaml --device cuda:7", WRONG,
     "variant 'one': engine.device: there is no device 'cuda:7'",
     make=recipe("base: {engine: serial}\nvariants: {one: {}}"))
case("a device of a sweep that isn't there", "sweep recipe.yaml --device cuda:7", WRONG,
     "variant 'one': engine.device: there is no device 'cuda:7'",
     make=recipe("base: {engine: serial}\nvariants: {one: {}}"))
case("a device of a sweep on threads", "sweep recipe.yaml --device cuda", WRONG,
     "recipe.yaml: variant 'one': engine.device: found 'cuda'", "threads trains on the CPU alone",
     make=recipe("base: {engine: threads}\nvariants: {one: {}}"))
case("a device of a reproduction that isn't there",
     "reproduce wsm/table-3 --out out --quiet --device cuda:7 --scale 0.01", WRONG,
     "engine.device: there is no device 'cuda:7'")

# Misspelt parts.
case("misspelt data", "run --data digit", WRONG, "data: there is no data source 'digit'", "mean 'digits'?")
case("misspelt partition", "run partition=dirichle", WRONG, "partition: ", "'dirichle'", "mean 'dirichlet'?")
case("misspelt model", "run --model lennet", WRONG, "model: there is no model 'lennet'", "mean 'lenet'?",
     "mlp")
case("misspelt method", "run --method fedag", WRONG, "method: there is no method 'fedag'", "mean 'fedavg'?")
case("misspelt loss", "run --loss cee", WRONG, "method.loss: there is no loss 'cee'", "mean 'ce'?")
case("misspelt optimizer", "run local.optimizer=sdg", WRONG, "local.optimizer: ", "'sdg'", "mean 'sgd'?")
case("misspelt schedule", "run local.schedule=cosin", WRONG, "local.schedule: there is no schedule 'cosin'",
     "mean 'cosine'?", "constant", "step")
case("misspelt engine", "run --engine thread", WRONG, "engine: there is no engine 'thread'",
     "mean 'threads'?")
case("misspelt augmentation", "run 'local.augment=[crop, flp]'", WRONG,
     "local.augment.1: there is no augmentation 'flp'", "mean 'flip'?", "allowed: crop")
case("misspelt measure", "run 'measures=[clas-accuracy]'", WRONG,
     "measures.0: there is no measure 'clas-accuracy'", "mean 'class-accuracy'?")
case("misspelt stream", "run stream=statik", WRONG, "stream: there is no stream 'statik'", "mean 'static'?")
case("misspelt selection", "run selection=unifrm", WRONG, "selection: ", "'unifrm'", "mean 'uniform'?")
case("misspelt weighting", "run method.weighting=sample", WRONG, "method.weighting: ", "mean 'samples'?")
case("name with a line break", "run recipe.yaml", WRONG, "data: ", "mean 'digits'?",
     make=recipe('data: "dig\\nits"'))

# Values out of range.
case("negative lr", "run local.lr=-0.1", WRONG, "local.lr: found -0.1", "allowed: > 0")
case("lr not a number", "run local.lr=.nan", WRONG, "local.lr: found nan", "a finite number > 0")
case("lr infinite", "run local.lr=.inf", WRONG, "local.lr: found inf", "a finite number > 0")
case("participation 0", "run participation=0", WRONG, "participation: found 0", "allowed: > 0 and ≤ 1")
case("participation above 1", "run participation=1.5", WRONG, "participation: found 1.5", "> 0 and ≤ 1")
case("participation not a number", "run participation=.nan", WRONG, "participation: found nan", "> 0 and ≤ 1")
case("no rounds", "run --rounds 0", WRONG, "rounds: found 0", "allowed: ≥ 1")
case("alpha 0", "run --alpha 0", WRONG, "partition.alpha: found 0", "allowed: ≥ 1e-09 and ≤ 1e+09")
case("alpha infinite", "run --alpha inf", WRONG, "partition.alpha: found inf", "a finite number ≥ 1e-09")
case("validation 1", "run partition.validation=1", WRONG, "partition.validation: found 1", "≥ 0 and < 1")
case("no clients", "run --clients 0", WRONG, "partition.clients: found 0", "allowed: ≥ 1")
case("momentum 1", "run local.optimizer.momentum=1", WRONG, "local.optimizer.momentum: found 1",
     "≥ 0 and < 1")
case("beta of Adam 1", "run 'local.optimizer={name: adam, beta2: 1}'", WRONG,
     "local.optimizer.beta2: found 1", "≥ 0 and < 1")
case("schedule of no length", "run 'local.schedule={name: step, size: 0}'", WRONG,
     "local.schedule.size: found 0", "allowed: ≥ 1")
case("schedule that rises", "run 'local.schedule={name: step, gamma: 2}'", WRONG,
     "local.schedule.gamma: found 2", "> 0 and ≤ 1")
case("floor above 1", "run 'local.schedule={name: cosine, floor: 1.5}'", WRONG,
     "local.schedule.floor: found 1.5", "≥ 0 and ≤ 1")
case("batch 0", "run local.batch=0", WRONG, "local.batch: found 0", "allowed: ≥ 1")
case("weight decay infinite", "run local.weight_decay=-.inf", WRONG, "local.weight_decay: found -inf", "≥ 0")
case("seed negative", "run --seed -1", WRONG, "seed: found -1", "allowed: ≥ 0 and < 9223372036854775808")
case("evaluate every 0", "run evaluate.every=0", WRONG, "evaluate.every: found 0", "allowed: ≥ 1")
case("flip probability 2", "run 'local.augment=[{name: flip, p: 2}]'", WRONG,
     "local.augment.0.p: found 2", "allowed: ≥ 0 and ≤ 1")
case("layer without units", "run 'model.hidden=[8, 0]'", WRONG, "model.hidden.1: found 0", "allowed: > 0")

# Wrong types.
case("number for a section", "run local=3", WRONG, "local: found 3", "a mapping of fields",
     "allowed: augment")
case("list for a part", "run 'partition=[1]'", WRONG, "partition: found [1]",
     "a name or a mapping with 'name'")
case("number as a part's name", "run 'model={name: 3}'", WRONG, "model: found the name 3", "allowed: cnn")
case("text for a list", "run measures=class-accuracy", WRONG, "measures: found 'class-accuracy'", "a list")
case("nothing for a part", "run data=null", WRONG, "data: found None", "a name or a mapping with 'name'")
case("text for a number", "run rounds=abc", WRONG, "rounds: found 'abc'", "a whole number ≥ 1")
case("fraction for a whole number", "run rounds=1.5", WRONG, "rounds: found 1.5", "a whole number ≥ 1")
case("schedule over steps", "run 'local.schedule={name: cosine, over: steps}'", WRONG,
     "local.schedule.over: found 'steps'", "'rounds' or 'epochs'")
case("option of a constant rate", "run local.schedule.size=3", WRONG, "local.schedule.size:", "no options")
case("optimizer state of another kind", "run local.optimizer_state=keep", WRONG,
     "local.optimizer_state: found 'keep'", "'fresh' or 'kept'")
case("variant of an optimizer", "run 'local.optimizer={name: rmsgd, variant: new}'", WRONG,
     "local.optimizer.variant: found 'new'", "'main' or 'paper'")
case("library without a path", "run local.optimizer=library", WRONG, "local.optimizer.path: ",
     "must be given")
case("number for a choice", "run 'model={norm: 7}'", WRONG, "model.norm: found 7", "'batch', 'group'")
case("number for a path", "run 'data={name: npz, path: 3}'", WRONG, "data.path: found 3", "expected text")
case("option that must be given", "run data=npz", WRONG, "data.path: ", "must be given")
case("number for a switch", "run engine.exact=7", WRONG, "engine.exact: found 7", "true or false")

# Contradictions.
TINY = "run --data samples.npz"
case("more clients than samples", "run --clients 5000", WRONG, "partition.clients: found 5000",
     "at most 1438")
case("batch 1 with batch-norm", "run model.norm=batch local.batch=1", WRONG,
     "local.batch: found 1", "batch-norm needs at least 2")
case("client of one sample with batch-norm",
     f"{TINY} model.norm=batch 'partition={{name: iid, clients: 20, validation: 0}}'", WRONG,
     "partition: client ", "has one training sample", "batch-norm", "model.norm", make=npz())
case("lenet on small images", "run --model lenet", WRONG, "model: ", "at least 16×16", "are 8×8")
case("convolutions on vectors", f"{TINY} --clients 10 --model cnn", WRONG, "model: it takes images", "(5,)",
     make=npz())
case("natural partition without owners", "run partition=natural", WRONG, "partition.name: found 'natural'",
     "does not say who its samples belong to")
case("groups that don't divide", "run 'model={norm: group, groups: 7}'", WRONG,
     "model.groups: found 7", "200 channels")
case("augmenting vectors", f"{TINY} --clients 10 'local.augment=[flip]'", WRONG, "local.augment: ",
     "no images", "(5,)", make=npz())
case("nesterov without momentum", "run 'local.optimizer={nesterov: true}'", WRONG,
     "local.optimizer: nesterov needs momentum > 0")
case("rmsgd without convolutions", "run local.optimizer=rmsgd", WRONG, "local.optimizer: rmsgd",
     "the ranks of convolutions", "the model has none")
case("rate of a library's optimizer", "run 'local.optimizer={name: library, path: torch.optim:SGD, "
     "options: {lr: 1}}'", WRONG, "local.optimizer.options: found 'lr'", "local.lr")
case("option that a library doesn't know", "run 'local.optimizer={name: library, path: torch.optim:SGD, "
     "options: {speed: 1}}'", WRONG, "local.optimizer: it can't make a step", "speed")
case("optimizer that isn't one", "run 'local.optimizer={name: library, path: torch.nn:Linear}'", WRONG,
     "local.optimizer.path: 'torch.nn:Linear'", "not a class like those of torch.optim")
case("rate that comes down to nothing", "run 'local.schedule={name: cosine, length: 5}'", WRONG,
     "local.schedule: the rate is 0 before the last round, 50", "floor")
case("measure named twice", "run 'measures=[class-accuracy, class-accuracy]'", WRONG,
     "measures: found class-accuracy, class-accuracy", "once")

# A user's own parts.
THEIRS = "run --clients 10 --rounds 1 --engine serial --model"
case("model of a module that isn't there", f"{THEIRS} nowhere:Net", WRONG, "model: ", "'nowhere:Net'",
     "can't be imported", "No module named 'nowhere'")
case("model that isn't in its module", f"{THEIRS} theirs:Net", WRONG, "model: ", "'theirs:Net'",
     "has no 'Net'", make=models(""))
case("model without a module", f"{THEIRS} :Net", WRONG, "model: ", "':Net'", "can't be imported")
case("module with a syntax error", f"{THEIRS} theirs:Net", WRONG, "model: ", "'theirs:Net'", "SyntaxError",
     make=models("def broken(:"))
case("module that fails on import", f"{THEIRS} theirs:Net", WRONG, "model: ", "RuntimeError: no licence",
     make=models("raise RuntimeError('no licence\\nsee below')"))
case("model that is no module", f"{THEIRS} theirs:Net", WRONG, "model: 'theirs:Net'", "torch.nn.Module",
     make=models("class Net:\n    pass"))
case("function that gives no module", f"{THEIRS} theirs:net", WRONG, "model: 'theirs:net' gives int",
     "torch.nn.Module", make=models("def net():\n    return 3"))
case("abstract part", "run data=mnemos.data.dataset:Source", WRONG, "data: ", "dataset:Source' is abstract")
case("part of another kind", "run data=theirs:Net", WRONG, "data: 'theirs:Net' is not a Source",
     make=models("class Net(nn.Module):\n    pass"))

NET = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(64, {outputs})
        self.dropout = nn.Dropout(0.5) if {layer} else nn.Identity()

    def forward(self, x):
        x = self.dropout(self.layer(x.flatten(1)))
        return nn.functional.dropout(x, 0.5, self.training) if {function} else x
"""
NARROW = models(NET.format(outputs=3, layer=False, function=False))
DROPOUT = models(NET.format(outputs="classes", layer=True, function=False))
FUNCTIONAL = models(NET.format(outputs="classes", layer=False, function=True))
case("model with too few outputs", f"{THEIRS} theirs:Net", WRONG, "model: ", "(2, 3)", "(2, 10)", make=NARROW)
case("options that a model doesn't take", "run 'model={name: theirs:Net, options: {depth: 3}}'", WRONG,
     "model.options: 'theirs:Net'", "'depth'", make=NARROW)
case("functional dropout", f"{THEIRS} theirs:Net", WRONG, "model: ", "global random generator", "nn.Dropout",
     make=FUNCTIONAL)

# Recipes and overrides.
case("recipe that isn't there", "run recipe.yaml", WRONG, "recipe.yaml: there is no such file")
case("folder as a recipe", "run out", WRONG, "out: can't be read", "directory")
case("empty recipe", "run recipe.yaml", WRONG, "recipe.yaml: found nothing", "a mapping of fields",
     make=recipe(""))
case("recipe that is a list", "run recipe.yaml", WRONG, "recipe.yaml: found a list", "a mapping of fields",
     make=recipe("- rounds\n- 3"))
case("recipe with wrong syntax", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML in line 2",
     make=recipe("rounds: 3\nlocal: {lr: 1"))
case("recipe with a tab", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML in line 2",
     make=recipe("local:\n\tlr: 1"))
case("recipe of bytes", "run recipe.yaml", WRONG, "recipe.yaml: not a text file", "0x89",
     make=recipe(b"\x89PNG\r\n\x1a\n\xff"))
case("recipe of control characters", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML", "#x0000",
     make=recipe(b"\x00\x01\x02"))
case("recipe with a key twice", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML in line 3",
     "'lr' is there twice", make=recipe("local:\n  lr: 0.1\n  lr: 0.2\n"))
case("true as a number", "run rounds=true", WRONG, "rounds: found True; expected a whole number ≥ 1")
case("true among numbers", "run 'model.hidden=[true]'", WRONG, "model.hidden: found [True]")
case("recipe with a date that is none", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML in line 2",
     "'2020-13-45'", make=recipe("rounds: 3\nseed: 2020-13-45"))
case("recipe with a date as a field", "run recipe.yaml", WRONG, "recipe.yaml: not plain data", "date",
     make=recipe("local: {2020-01-01: 3}"))
case("recipe that holds itself", "run recipe.yaml", WRONG, "recipe.yaml: not plain data",
     make=recipe("local: &a {lr: *a}"))
case("recipe nested too deeply", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML", "nested too deeply",
     make=recipe("[" * 1000))
case("recipe that asks for an object", "run recipe.yaml", WRONG, "recipe.yaml: not valid YAML", "os.system",
     make=recipe("seed: !!python/object/apply:os.system [echo]"))
case("override without =", "run recipe.yaml rounds", WRONG, "found 'rounds'", "field=value",
     make=recipe("rounds: 3"))
case("override without a field", "run =3", WRONG, "found '=3'", "field=value")
case("override with an empty step", "run local..lr=3", WRONG, "found 'local..lr=3'", "field=value")
case("override with wrong syntax", "run 'rounds=[3'", WRONG, "rounds: '[3' is not a valid value")
case("override into a number", "run rounds.x=1", WRONG, "rounds: found {'x': 1}", "a whole number")
case("override into a recipe's number", "run recipe.yaml rounds.x=1", WRONG, "rounds.x: ", "no fields",
     make=recipe("rounds: 3"))

# The words of a command.
case("unknown command", "rum", WRONG, "no such command 'rum'; did you mean 'run'", "See 'mnemos --help'")
case("unknown option", "run --round 3", WRONG, "no such option: --round", "--rounds", "mnemos run --help")
case("misspelt option", "run --roundd 3", WRONG, "no such option: --roundd; did you mean --rounds?")
case("option without a value", "run --rounds", WRONG, "'--rounds'")
case("text for a number option", "run --rounds abc", WRONG, "'--rounds'", "'abc'", "integer")
case("missing argument", "resume", WRONG, "'PATH'", "mnemos resume --help")
case("data folder that isn't there", "run --data no/images", WRONG, "data: 'no/images'", "folder of images")
case("partition of unknown data", "partition digit", WRONG, "data: ", "'digit'", "mean 'digits'?")
case("partition of too many clients", "partition digits --clients 5000", WRONG,
     "partition.clients: found 5000")
case("partition of no alpha", "partition digits --alpha nan", WRONG, "partition.alpha: found nan")
case("partition without bars", "partition digits --show 0", WRONG, "'--show'", "x>=1")
case("figure of an unknown format", "partition digits --figure bars.xyz", WRONG, "figure: found 'bars.xyz'",
     "allowed: .pdf, .png, .svg")
case("figure below a file", "partition digits --figure notes/bars.png", WRONG,
     "figure: found 'notes/bars.png'", "notes is not a folder", make=file("notes"))
case("out that is a file", "run --out notes --clients 10", WRONG, "notes/digits-fedavg-ce", "Not a directory",
     make=file("notes"))
case("out with an endless name", f"run --clients 10 --out {300 * 'o'}", WRONG, 300 * "o", "too long")

# Comparisons.
VARIANTS = "base: {rounds: 1}\nvariants: {one: {}, two: {%s}}\n"
case("comparison without a recipe", "compare rounds=1", WRONG, "found 'rounds=1'", "recipe")
case("comparison without variants", "compare recipe.yaml", WRONG, "recipe.yaml: found none of them",
     "exactly one of variants, grid, list, random", make=recipe("base: {rounds: 1}"))
case("comparison of no variants", "compare recipe.yaml", WRONG, "recipe.yaml: variants: found {}",
     "at least 1", make=recipe("variants: {}"))
case("variants as a list", "compare recipe.yaml", WRONG, "recipe.yaml: variants: found ['one']", "a mapping",
     make=recipe("variants: [one]"))
case("experiment as a comparison", "compare recipe.yaml", WRONG, "recipe.yaml: rounds: unknown field",
     "allowed: base, grid, list, random, seeds, variants", make=recipe("rounds: 3"))
case("unknown field in a variant", "compare recipe.yaml", WRONG, "variant 'two'", "lcal: unknown",
     "did you mean 'local'?", make=recipe(VARIANTS % "lcal.lr: 1"))
case("value out of range in a variant", "compare recipe.yaml", WRONG, "variant 'two'", "local.lr: found -1",
     "> 0", make=recipe(VARIANTS % "local.lr: -1"))
case("contradiction in the last variant", "compare recipe.yaml", WRONG, "variant 'two'", "16×16",
     make=recipe(VARIANTS % "model: lenet"))
case("data missing in the last variant", "compare recipe.yaml", DAMAGED, "there.npz", "doesn't exist",
     make=recipe(VARIANTS % "data: {name: npz, path: there.npz}"))
case("seeds that are no numbers", "compare recipe.yaml --seeds 1,x", WRONG, "seeds: found '1,x'", "0,1,2",
     make=recipe(VARIANTS % ""))
case("negative seeds", "compare recipe.yaml --seeds -1", WRONG, "seeds.0: found -1", "≥ 0",
     make=recipe(VARIANTS % ""))
case("a recipe's seeds that are no list", "compare recipe.yaml", WRONG, "recipe.yaml: seeds: found 3",
     "a list", make=recipe(VARIANTS % "" + "seeds: 3"))
case("figure of a comparison", "compare recipe.yaml --figure curves.xyz", WRONG, "figure: found 'curves.xyz'",
     ".png", make=recipe(VARIANTS % ""))
case("comparison of one experiment with itself", "compare recipe.yaml", WRONG,
     "recipe.yaml: the variants 'one' and 'two' are the same experiment", make=recipe(VARIANTS % ""))

# Sweeps.
GRID = "base: {rounds: 1}\ngrid: {%s}\n"
case("sweep without a recipe", "sweep rounds=1", WRONG, "found 'rounds=1'", "recipe")
case("sweep of an experiment", "sweep recipe.yaml", WRONG, "recipe.yaml: rounds: unknown field",
     make=recipe("rounds: 3"))
case("sweep as an experiment", "run recipe.yaml", WRONG, "recipe.yaml: it is a study, with 'grid'",
     "'mnemos sweep'", make=recipe(GRID % "local.lr: [1]"))
case("grid and list", "sweep recipe.yaml", WRONG, "recipe.yaml: found grid and list", "exactly one",
     make=recipe(GRID % "local.lr: [1]" + "list: [{}]"))
case("grid of a single value", "sweep recipe.yaml", WRONG, "recipe.yaml: grid.local.lr: found 0.1",
     "a list of values", make=recipe(GRID % "local.lr: 0.1"))
case("grid of no values", "sweep recipe.yaml", WRONG, "recipe.yaml: grid.local.lr: found []",
     make=recipe(GRID % "local.lr: []"))
case("grid over an unknown field", "sweep recipe.yaml", WRONG, "recipe.yaml: variant 'lrr=1': local.lrr",
     "did you mean 'lr'?", make=recipe(GRID % "local.lrr: [1, 2]"))
case("grid with a value out of range", "sweep recipe.yaml", WRONG, "recipe.yaml: variant 'lr=-1': local.lr",
     "found -1", "> 0", make=recipe(GRID % "local.lr: [0.1, -1]"))
case("grid with a value twice", "sweep recipe.yaml", WRONG, "'lr=1' and 'lr=1 #2' are the same experiment",
     make=recipe(GRID % "local.lr: [1, 1.0]"))
case("contradiction in the last of a grid", "sweep recipe.yaml", WRONG, "variant 'model=lenet'", "16×16",
     make=recipe(GRID % "model: [mlp, lenet]"))
case("the same, planned", "sweep recipe.yaml --dry-run", WRONG, "variant 'model=lenet'", "16×16",
     make=recipe(GRID % "model: [mlp, lenet]"))
case("list of words", "sweep recipe.yaml", WRONG, "recipe.yaml: list.0: found 'lr'", "a mapping",
     make=recipe("list: [lr]"))
case("random search without trials", "sweep recipe.yaml", WRONG, "recipe.yaml: random.trials: ",
     "must be given", make=recipe("random: {fields: {local.lr: [1]}}"))
case("random search in a range upside down", "sweep recipe.yaml", WRONG,
     "random.fields.local.lr: found low 2", "low < high",
     make=recipe("random: {trials: 1, fields: {local.lr: {low: 2, high: 1}}}"))
case("random search in no range", "sweep recipe.yaml", WRONG, "random.fields.local.lr: found 3",
     "a list of choices", make=recipe("random: {trials: 1, fields: {local.lr: 3}}"))
case("sweep with no jobs", "sweep recipe.yaml --jobs 0", WRONG, "'--jobs'", "x>=1",
     make=recipe(GRID % "local.lr: [1]"))
case("sweep into a file", "sweep recipe.yaml --out notes", WRONG, "notes", "not a folder",
     make=both(recipe(GRID % "local.lr: [1]"), file("notes")))

# Earlier runs.
case("runs of no folder", "runs nowhere", WRONG, "nowhere: there is no such folder")
case("runs of a file", "runs notes", WRONG, "notes: there is no such folder", make=file("notes"))
case("resume of nothing", "resume nowhere", WRONG, "nowhere: there is no run here")
case("resume of a folder of runs", "resume out", WRONG, "out: there is no run here", "experiment.yaml")
case("resume up to fewer rounds", "resume out/earlier --rounds 2", WRONG, "rounds: found 2", "has 3 rounds")
case("resume without rounds", "resume out/earlier --rounds 0", WRONG, "rounds: found 0", "≥ 1")
case("resume with fewer rounds", "resume out/earlier --rounds 2", WRONG, "rounds: found 2", "has 3 rounds")
case("damaged experiment", "resume out/earlier", WRONG, "out/earlier/experiment.yaml: not valid YAML",
     make=damage("experiment.yaml", "rounds: ["))
case("experiment of bytes", "resume out/earlier", WRONG, "out/earlier/experiment.yaml: not a text file",
     make=damage("experiment.yaml", b"\xff\xfe\x00"))
case("experiment that is wrong", "resume out/earlier", WRONG, "out/earlier/experiment.yaml: rounds: found -1",
     make=damage("experiment.yaml", "rounds: -1"))
case("experiment of another model", "resume out/earlier", DAMAGED, "round-00000003.safetensors",
     "another model", make=another_model)
case("checkpoints of something else", "resume out/earlier", DAMAGED, "checkpoints/round-00000003.safetensors",
     "2 older", "damaged", make=damage_checkpoints(lambda _: b"nothing"))
case("checkpoints cut off", "resume out/earlier", DAMAGED, "checkpoints/round-00000003.safetensors",
     "damaged", make=damage_checkpoints(lambda content: content[:-10]))
case("empty checkpoints", "resume out/earlier", DAMAGED, "checkpoints/round-00000003.safetensors", "damaged",
     make=damage_checkpoints(lambda _: b""))
case("metrics shorter than the checkpoint", "resume out/earlier", DAMAGED, "metrics.jsonl",
     "shorter", make=cut("out/earlier/metrics.jsonl", 100, lambda: None))
case("damaged metrics", "resume out/earlier --rounds 4", DAMAGED, "out/earlier/metrics.jsonl: line 1",
     make=damage("metrics.jsonl", "damaged\n" * 1000))

# Data that is missing or damaged.
case("missing mnist", "run --data mnist", DAMAGED, "mnist: ", "MNEMOS_OFFLINE", "train-images-idx3-ubyte.gz",
     "t10k-labels-idx1-ubyte.gz", "data/mnist", "MNEMOS_DATA")
case("missing cifar10", "run --data cifar10", DAMAGED, "cifar10: ", "MNEMOS_OFFLINE", "data_batch_1.bin",
     "test_batch.bin", "data/cifar-10-batches-bin", "cifar-10-binary.tar.gz", "MNEMOS_DATA")
case("missing femnist", "run --data femnist", DAMAGED, "femnist: ", "data/femnist/train", "MNEMOS_DATA")
case("partition of missing data", "partition cifar100", DAMAGED, "cifar100: ", "train.bin", "test.bin")
case("missing npz", "run --data samples.npz", DAMAGED, "samples.npz doesn't exist")
case("npz of something else", TINY, DAMAGED, "samples.npz is not an npz", make=file("samples.npz", "words"))
case("empty npz", TINY, DAMAGED, "samples.npz is a damaged npz file", make=file("samples.npz"))
case("npz cut off", TINY, DAMAGED, "samples.npz is a damaged npz file", make=cut("samples.npz", 500, npz()))
case("npz of Python objects", TINY, DAMAGED, "samples.npz: 'x' holds Python objects", "numbers or text",
     make=npz(x=np.array([{}, None] * 20, dtype=object)))
case("npz with a label missing", TINY, DAMAGED, "samples.npz: ", "40 samples and 39 labels",
     make=npz(y=np.arange(39) % 2))
case("npz with NaN", TINY, DAMAGED, "samples.npz: ", "not finite", make=npz(x=np.full((40, 5), np.nan)))
case("npz with labels between", TINY, DAMAGED, "samples.npz: labels are not whole numbers",
     make=npz(y=np.full(40, 0.5)))
case("npz without labels", TINY, DAMAGED, "samples.npz has no array 'y_train'", "found x, x_train, y",
     make=npz(x_train=np.zeros((4, 2))))
case("npz of a few samples", TINY, DAMAGED, "samples.npz: 2 samples are too few", "0.2",
     make=npz(x=np.zeros((2, 3)), y=np.arange(2)))
case("cifar file of a wrong size", "run --data cifar10", DAMAGED, "cifar-10-batches-bin/test_batch.bin",
     "3000 bytes", "3073", make=cifar10(bytes(3000)))
case("cifar label out of range", "run --data cifar10", DAMAGED, "test_batch.bin: found the label 255",
     "0 to 9", make=cifar10(b"\xff" * 3073))
case("idx with a wrong magic number", "run --data mnist", DAMAGED, "mnist/train-images-idx3-ubyte", "2049",
     "2051", make=mnist("train-images-idx3-ubyte", idx(2049, 6, 28, 28)))
case("idx cut off", "run --data mnist", DAMAGED, "mnist/train-images-idx3-ubyte", "6 × 28 × 28", "only 4699",
     make=mnist("train-images-idx3-ubyte", idx(2051, 6, 28, 28)[:-5]))
case("idx gzip cut off", "run --data mnist", DAMAGED,
     "mnist/train-images-idx3-ubyte.gz is a damaged gzip file",
     make=mnist("train-images-idx3-ubyte.gz", gzip.compress(idx(2051, 6, 28, 28))[:-9]))
case("empty idx", "run --data mnist", DAMAGED, "mnist/train-images-idx3-ubyte has 0 bytes",
     make=mnist("train-images-idx3-ubyte", b""))
case("femnist that is not JSON", "run --data femnist", DAMAGED, "femnist/train/a.json is not JSON",
     make=femnist("{'users': "))
case("femnist without a key", "run --data femnist", DAMAGED, "femnist/train/a.json: 'num_samples' is missing",
     make=femnist({"users": ["w"]}))
case("femnist that promises more", "run --data femnist", DAMAGED, "femnist/train/a.json: writer w",
     "1 images", "2 are announced",
     make=femnist({"users": ["w"], "num_samples": [2], "user_data": {"w": {"x": [[0] * 784], "y": [3]}}}),
)
case("broken image", "run --data images/", DAMAGED, "images/dog/1.png can't be read as an image",
     make=images(b"\x89PNG\r\n"))
case("image of another size", "run --data images/", DAMAGED, "images/dog/1.png is 8×9", "8×8", "'size'",
     make=images(None))
case("folder without images", "run --data empty/", DAMAGED, "empty has no images", "<class>/<name>.png",
     make=file("empty/notes.txt"))
case("parquet without images or numbers", "run --data table.parquet", DAMAGED,
     "table.parquet: column 'picture' is of type list<element: double>", "data.features", make=parquet)
case("parquet without the column", "run --data table.parquet data.image=scan", DAMAGED,
     "table.parquet has no column 'scan'", "found picture, label", make=parquet)
case("empty parquet", "run --data table.parquet", DAMAGED, "table.parquet can't be read as Parquet",
     make=file("table.parquet"))
case("parquet cut off", "run --data table.parquet", DAMAGED, "table.parquet can't be read as Parquet",
     make=cut("table.parquet", -4, parquet))
case("no column of texts", "run --data table.csv data.text=review", DAMAGED,
     "table.csv has no column 'review'", "found text, label", make=file("table.csv", "text,label\nyes,1\n"))
case("an empty text", "run --data table.csv", DAMAGED, "table.csv, line 3: column 'text' is empty",
     make=file("table.csv", "text,label\nyes,1\n,0\n"))
case("texts without words", "run --data table.csv", DAMAGED, "table.csv: no text has a word",
     make=file("table.csv", "text,label\n" + "?,1\n!,0\n" * 5))
case("a word list without words", "run --data table.csv data.words=w.txt", DAMAGED, "w.txt has no words",
     make=both(file("table.csv", "text,label\n" + "yes,1\nno,0\n" * 5), file("w.txt", "\n")))
case("a word list that isn't one", "run --data table.csv data.words=w.txt", DAMAGED,
     "w.txt: found 'Two words'", "single words in lower case",
     make=both(file("table.csv", "text,label\nyes,1\n"), file("w.txt", "Two words")))
case("a word list that fits nothing", "run --data table.csv data.words=w.txt", DAMAGED,
     "table.csv: no training text has a word of the vocabulary",
     make=both(file("table.csv", "text,label\n" + "yes,1\nno,0\n" * 5), file("w.txt", "maybe")))
case("a folder of empty texts", "run --data texts/", DAMAGED, "texts/good/1.txt is empty",
     make=file("texts/good/1.txt", " \n"))
case("a model of images on texts", "run --data messages --model lenet", WRONG,
     "model.name: lenet takes numbers, and the data's samples are texts", "text, text-cnn")
case("a model of texts on images", "run --model text", WRONG,
     "model.name: text takes texts, and the data's samples are numbers", "mlp")
case("phrases longer than texts", "run --data messages --model text-cnn model.sizes=[40]", WRONG,
     "model.sizes: found 40; texts have 28 words at most")
case("rotated texts", "run --data messages --method fedspace", WRONG, "rotations need square images")
case("augmented texts", "run --data messages local.augment=[flip]", WRONG,
     "local.augment: messages has no images but texts")
case("fractals before texts", "run --data messages start=fractals", WRONG, "start: ",
     "fractals are square images")
# fmt: on


# --- running them -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds."""
    from mnemos.experiment.experiment import load_experiment
    from mnemos.runs.execute import start

    changes = {"partition.clients": 10, "model.hidden": [4], "rounds": 3, "engine": "serial"}
    return start(load_experiment(None, changes), tmp_path_factory.mktemp("earlier")).path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_run: Path) -> Path:
    """A working folder with an earlier run in it, no data sets, no downloads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MNEMOS_OFFLINE", "1")
    shutil.copytree(finished_run, EARLIER)
    return tmp_path


@pytest.fixture
def mnemos(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""

    def call(words: str, *options: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["mnemos", *_words(words, *options)])
        importlib.invalidate_caches()
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return Ended(end.value.code if isinstance(end.value.code, int) else -1, out, err)

    return call


def _words(line: str, *options: str) -> list[str]:
    """The words of a command, with options that keep it quiet and in its place unless it has its own."""
    command, *words = shlex.split(line)
    defaults = _DEFAULTS.get(command, [])
    kept = [] if defaults and defaults[0] in words else defaults
    return [command, *kept, *options, *words]


def _everything(folder: Path) -> dict[str, bytes | None]:
    """All files and folders with their contents, apart from locks (which are empty)."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


def _sentence(ended: Ended, code: int) -> str:
    """The one line of a command that was refused."""
    assert ended.code == code, ended
    assert "Traceback" not in ended.out + ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize("name", CASES)
def test_is_refused_in_one_sentence(name: str, mnemos: Command, place: Path) -> None:
    wrong = CASES[name]
    if wrong.make is not None:
        wrong.make()
    before = _everything(place)

    plain = mnemos(wrong.words)
    sentence = _sentence(plain, wrong.code)
    for fragment in wrong.says:
        assert fragment in sentence
    assert plain.out == ""
    assert _everything(place) == before

    scripted = mnemos(wrong.words, "--json")
    assert _sentence(scripted, wrong.code) == sentence
    (answer,) = scripted.out.splitlines()
    assert json.loads(answer) == {"status": "error", "error": sentence, "exit_code": wrong.code}
    assert _everything(place) == before


ENGINES = {
    "exact": (
        "run --clients 10 --rounds 1 'engine={name: vmap, exact: true}'",
        "engine: vmap",
        "'exact: true'",
    ),
    "dropout": (
        f"{THEIRS} theirs:Net engine=vmap",
        "engine: vmap",
        "dropout",
        "allowed: auto, serial, threads",
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_cannot_do_it_says_so(name: str, mnemos: Command) -> None:
    words, *says = ENGINES[name]
    DROPOUT()
    sentence = _sentence(mnemos(words), WRONG)
    for fragment in says:
        assert fragment in sentence


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_cannot_do_it_leaves_no_run(name: str, mnemos: Command, place: Path) -> None:
    DROPOUT()
    before = _everything(place)
    mnemos(ENGINES[name][0])
    assert _everything(place) == before


def test_a_folder_without_permission_is_named(
    mnemos: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _everything(place)

    def refuse(path: Path, *_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:  # rather than by mode: root may write everywhere
        patch.setattr(Path, "mkdir", refuse)
        sentence = _sentence(mnemos("run --out locked --clients 10"), WRONG)
    assert sentence.startswith("locked/digits-fedavg-ce")
    assert "Permission denied" in sentence
    assert _everything(place) == before


# --- what is damaged and can be lived with ------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "{}", b"\xff", '{"status": "finished", "rounds": "many"}',
     '{"status": "finished", "accuracy": "good"}', '{"status": 3}'],
)  # fmt: skip
def test_runs_shows_a_damaged_run_beside_the_others(content: str | bytes, mnemos: Command) -> None:
    shutil.copytree(EARLIER, "out/intact")
    damage("status.json", content)()
    plain = mnemos("runs out")
    assert (plain.code, plain.err) == (0, "")
    assert "damaged" in plain.out
    earlier, intact = json.loads(mnemos("runs out --json").out.splitlines()[-1])["runs"]
    assert (earlier["run"], earlier["status"]) == ("out/earlier", "damaged")
    assert "out/earlier/status.json" in earlier["error"]
    assert (intact["run"], intact["status"], intact["rounds"]) == ("out/intact", "finished", 3)


@pytest.mark.parametrize(
    "make",
    [damage("status.json", "{"), damage_checkpoints(lambda _: b"nothing", newest=1)],
    ids=["status", "newest checkpoint"],
)
def test_resume_mends_what_it_can(make: Callable[[], None], mnemos: Command) -> None:
    before = _everything(EARLIER)
    make()
    ended = mnemos("resume out/earlier --json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out.splitlines()[-1])["status"] == "finished"
    after = _everything(EARLIER)
    for name in ("status.json", "metrics.jsonl", "model.safetensors", "experiment.yaml"):
        assert after[name] == before[name]


# --- how a command ends -------------------------------------------------------------------------------


def test_without_words_there_is_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mnemos"])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert end.value.code == WRONG
    assert "Usage: mnemos" in out + err
    assert "Traceback" not in out + err


def test_an_interruption_before_anything_is_done_promises_nothing(
    mnemos: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mnemos.runs import execute

    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "resume", interrupt)
    ended = mnemos("resume out/earlier --json")
    assert ended.code == 130
    assert ended.err.splitlines()[-1] == "interrupted"
    answer = json.loads(ended.out.splitlines()[-1])
    assert (answer["status"], answer["exit_code"]) == ("interrupted", 130)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("run local.lr=-1 --json", WRONG, "local.lr: found -1; allowed: > 0"),
        ("run --data mnist --json", DAMAGED, "train-images-idx3-ubyte.gz"),
        ("run --rounds abc --json", WRONG, "'abc'"),
    ],
)
def test_a_process_of_its_own_ends_the_same_way(words: str, code: int, says: str, place: Path) -> None:
    before = _everything(place)
    with processes.Command(*_words(words), cwd=place) as process:
        done = process.ended()
    sentence = _sentence(Ended(done.code, done.out, done.err), code)
    assert says in sentence
    assert json.loads(done.out.splitlines()[-1]) == {
        "status": "error",
        "error": sentence,
        "exit_code": code,
    }
    assert _everything(place) == before
