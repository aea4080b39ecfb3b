"""Nothing that is read can run code: no source file has the means to, and files that try are refused."""

import ast
import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import mnemos
from mnemos.client.messages import TrainRequest, reply_from_bytes
from mnemos.data.folder import recall
from mnemos.data.sources.cifar import Cifar10
from mnemos.data.sources.femnist import Femnist
from mnemos.data.sources.folder import Folder
from mnemos.data.sources.huggingface import HuggingFace
from mnemos.data.sources.npz import Npz
from mnemos.data.sources.parquet import Parquet
from mnemos.errors import MnemosError
from mnemos.experiment.experiment import load_experiment
from mnemos.experiment.overrides import parse_overrides
from mnemos.federation.federation import Federation
from mnemos.models.encoder import load_encoder
from mnemos.runs.checkpoint import Checkpoints
from mnemos.runs.run import Run
from mnemos.runs.store import Store
from mnemos.studies.study import recorded
from mnemos.vector import load_model

SOURCE = Path(mnemos.__file__).parent

MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "shelve",
    "code",
    "codeop",
}
"""Modules that make objects, or code, of bytes."""

CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
    "yaml.unsafe_load",
    "yaml.unsafe_load_all",
    "yaml.full_load",
    "yaml.full_load_all",
    "yaml.load_all",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "runpy.run_path",
}
"""Functions that run what they are given, or trust it too much."""

PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")
"""How the names of others begin."""

CAREFUL = {"torch.load", "numpy.load", "yaml.load", "importlib.import_module"}
"""Functions that are fine when they are called with care, and so are called by name alone."""

HOMES = {
    "builtins.": "",
    "np.": "numpy.",
    "torch.serialization.": "torch.",
    "numpy.lib.npyio.": "numpy.",
    "numpy.lib._npyio_impl.": "numpy.",
}
"""Other names of the places where these functions are; np goes without saying."""

METHODS = {"read_pickle", "to_pickle", "recv", "loads_pickle", "find_class"}
"""Methods, of whatever they are: those of pandas, and of a connection whose `recv` takes pickles."""

ALLOWED = {
    (
        "common/imports.py",
        "importlib.import_module",
    ): "code that is named by import path, as far as it is trusted",
    (
        "common/registry.py",
        "importlib.import_module",
    ): "the modules of a registry's package, by a name in the source",
    ("common/extras.py", "importlib.import_module"): "the package of an extra, by a name in the source",
    ("__init__.py", "importlib.import_module"): "what the package offers, by a name in the source",
    ("cli/app.py", "importlib.import_module"): "a command, by a name in the source",
    ("common/compiler.py", "importlib.import_module"): "PyTorch's compiler, by a name in the source",
    ("lookup/kinds.py", "importlib.import_module"): "a registry of parts, by a name in the source",
}


def _problems(tree: ast.AST, file: str = "") -> list[str]:
    """What a source file does that could run code of a file it reads."""
    found, called, imported = [], set(), _imported(tree)
    for node in ast.walk(tree):  # a call comes before the name it calls
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            called.add(node.func)
            found += _call(node, file, imported)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = _name(node, imported)
            careful = name in CAREFUL and node not in called
            found += [name] if name in CALLS or name.startswith(PREFIXES) or careful else []
    return found


def _imported(tree: ast.AST) -> dict[str, str]:
    """What the names are that a source file imports, in full."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.asname: name.name for name in node.names if name.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return found


def _name(node: ast.expr, imported: dict[str, str]) -> str:
    """What an expression speaks of, whatever it is called in its file."""
    first, dot, rest = ast.unparse(node).partition(".")
    name = imported.get(first, first) + dot + rest
    for other, home in HOMES.items():
        if name.startswith(other):
            name = home + name.removeprefix(other)
    return name


def _call(node: ast.Call, file: str, imported: dict[str, str]) -> list[str]:
    name = _name(node.func, imported)
    given = {word.arg: word.value for word in node.keywords}
    said = {word: ast.unparse(value) for word, value in given.items()}
    loader = given.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
    wrong = [
        name.rpartition(".")[2] in METHODS,
        name == "torch.load" and said.get("weights_only") != "True",
        name == "numpy.load" and said.get("allow_pickle") != "False",
        name == "yaml.load"
        and (loader is None or _name(loader, imported) not in {"_Loader", "yaml.SafeLoader"}),
        name.endswith("import_module") and (file, name) not in ALLOWED,
        said.get("shell", "False") != "False",
        said.get("trust_remote_code", "False") != "False",
        said.get("allow_pickle", "False") != "False",
    ]
    return [name] if any(wrong) else []


def test_no_source_file_can_run_what_it_reads():
    files = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
    found = {name: _problems(ast.parse(path.read_text()), name) for name, path in files.items()}
    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import dill.source",
        "torch.load(path)",
        "np.load(path)",
        "eval(text)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, yaml.Loader)",
        "yaml.load(text)",
        "yaml.unsafe_load(text)",
        "pd.read_pickle(path)",
        "connection.recv()",
        "subprocess.run(words, shell=True)",
        "tempfile.mktemp()",
        "importlib.import_module(name)",
        "datasets.load_dataset(name, trust_remote_code=True)",
        "torch.load(p, weights_only=False)",
        "from torch import load\nload(p)",
        "from torch import load as read\nread(p)",
        "import torch as t\nt.load(p)",
        "torch.serialization.load(p)",
        "from torch.serialization import load\nload(p)",
        "from torch import serialization as s\ns.load(p)",
        "from torch import hub\nhub.load(r, m)",
        "from numpy import load\nload(p)",
        "import numpy\nnumpy.load(p)",
        "import numpy as n\nn.lib.npyio.load(p)",
        "from os import system\nsystem(x)",
        "from os import execvp as go\ngo(x, y)",
        "import os as o\no.popen(x)",
        "from yaml import unsafe_load\nunsafe_load(x)",
        "import yaml as y\ny.load(t, y.Loader)",
        "from yaml import load, Loader as _Loader\nload(t, Loader=_Loader)",
        "import builtins\nbuiltins.eval(x)",
        "from builtins import exec as run\nrun(x)",
        "from importlib import import_module as get\nget(name)",
        "from pandas import read_pickle as read\nread(p)",
        "map(torch.load, paths)",
        "read = eval",
        "def f():\n    from torch import load\n    return [load(p) for p in paths]",
    ],
)
def test_the_search_finds(line):
    assert _problems(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "model.eval()",
        "re.compile(p)",
        "np.load(p, allow_pickle=False)",
        "from numpy import load\nload(p, allow_pickle=False)",
        "yaml.load(t, _Loader)",
        "import yaml as y\ny.load(t, Loader=y.SafeLoader)",
        "from mnemos.data.load import load\nload(p)",
        "from safetensors.torch import load\nload(p)",
        "from .files import system\nsystem(p)",
        "compile: bool = True",
    ],
)
def test_the_search_leaves_alone(line):
    assert not _problems(ast.parse(line))


# --- files that try ------------------------------------------------------------------------------------


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "ran"


@pytest.fixture
def bomb(marker):
    """A pickle that makes the marker."""
    content = pickle.dumps(Bomb(marker))
    pickle.loads(content)
    marker.rmdir()  # it works
    return content


@pytest.fixture
def torch_file(marker, bomb):
    """What `torch.save` writes, with the bomb inside."""
    buffer = io.BytesIO()
    torch.save({"model": torch.zeros(3), "bomb": Bomb(marker)}, buffer)
    return buffer.getvalue()


def refused(read, marker):
    with pytest.raises(MnemosError):
        read()
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["bomb", "torch_file"])
@pytest.mark.parametrize("read", [TrainRequest.from_bytes, reply_from_bytes], ids=["task", "update"])
def test_messages(read, kind, marker, request):
    content = request.getfixturevalue(kind)
    refused(lambda: read(content), marker)


@pytest.mark.parametrize("kind", ["bomb", "torch_file"])
def test_tensors_in_files(kind, marker, request, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(request.getfixturevalue(kind))
    refused(lambda: load_encoder(path), marker)
    refused(lambda: load_model(path, torch.nn.Linear(2, 2)), marker)


@pytest.mark.parametrize("kind", ["bomb", "torch_file"])
def test_checkpoints(kind, marker, request, tmp_path, tiny):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "round-00000001.safetensors").write_bytes(request.getfixturevalue(kind))
    federation, store = Federation(load_experiment(tiny)), Store(tmp_path / "metrics.jsonl")
    refused(lambda: Checkpoints(tmp_path / "checkpoints").restore(federation, store), marker)
    store.close()
    federation.close()


def test_arrays(marker, bomb, tmp_path):
    path = tmp_path / "x.npz"
    objects = np.array([Bomb(marker)] * 4, dtype=object)
    np.savez(path, x=objects, y=np.arange(4))
    refused(Npz(path=str(path)).load, marker)
    np.save(tmp_path / "x.npy", objects)
    refused(Npz(path=str(tmp_path / "x.npy")).load, marker)
    path.write_bytes(bomb)
    refused(Npz(path=str(path)).load, marker)


def test_tables(marker, bomb, tmp_path):
    """The type that Arrow once unpickled from a schema (CVE-2023-47248), and columns of pickles."""
    about = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": bomb}
    typed = pa.schema([pa.field("image", pa.int64(), metadata=about), pa.field("label", pa.int64())])
    table = pa.table({"image": [1, 2, 3, 4], "label": [0, 1, 0, 1]}).cast(typed)
    for content in (
        table,
        pa.table({"image": [bomb] * 4, "label": [0, 1, 0, 1]}, metadata={b"huggingface": bomb}),
    ):
        pq.write_table(content, tmp_path / "x.parquet")
        refused(Parquet(path=str(tmp_path / "x.parquet")).load, marker)
        (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "x.arrow"}]}))
        with (
            pa.OSFile(str(tmp_path / "x.arrow"), "w") as file,
            pa.ipc.new_stream(file, content.schema) as stream,
        ):
            stream.write_table(content)
        refused(HuggingFace(path=str(tmp_path)).load, marker)
    (tmp_path / "state.json").write_bytes(bomb)
    refused(HuggingFace(path=str(tmp_path)).load, marker)


def test_images(marker, bomb, tmp_path):
    (tmp_path / "images" / "a").mkdir(parents=True)
    (tmp_path / "images" / "a" / "1.png").write_bytes(bomb)
    refused(Folder(path=str(tmp_path / "images")).load, marker)


def test_cifars_python_version(marker, bomb, tmp_path, monkeypatch):
    """CIFAR is published as pickles, too: they are left alone, by their own name and by the binary files'."""
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    for folder, names in (
        ("cifar-10-batches-py", ["data_batch_1"]),
        ("cifar-10-batches-bin", Cifar10.train_files),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_bytes(bomb)
    refused(Cifar10().load, marker)
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name in (*Cifar10.train_files, *Cifar10.test_files, "data_batch_1"):
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(bomb)
            archive.addfile(info, io.BytesIO(bomb))
    refused(Cifar10().load, marker)


def test_femnist(marker, bomb, tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        (tmp_path / "femnist" / part / "a.json").write_bytes(bomb)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "femnist.npz").write_bytes(bomb)
    refused(Femnist().load, marker)


def test_yaml(marker, tmp_path):
    call = f"!!python/object/apply:os.mkdir ['{marker}']"
    (tmp_path / "experiment.yaml").write_text(f"rounds: {call}")
    refused(lambda: load_experiment(tmp_path / "experiment.yaml"), marker)
    refused(lambda: parse_overrides([f"rounds={call}"]), marker)


def test_run_directories(marker, bomb, tmp_path):
    run = Run(tmp_path)
    for name in ("experiment.yaml", "status.json", "engine.json"):
        run.file(name).write_bytes(bomb)
    run.file("metrics.jsonl").write_bytes(bomb + b"\n")
    refused(lambda: run.experiment, marker)
    refused(lambda: run.status, marker)
    refused(lambda: run.engine, marker)
    refused(lambda: run.metrics, marker)


def test_what_is_remembered(marker, bomb, tmp_path, monkeypatch):
    """Damaged memories are no memories."""
    monkeypatch.setenv("MNEMOS_CACHE", str(tmp_path))
    (tmp_path / "engines.json").write_bytes(bomb)
    assert recall("engines.json", "key") is None
    assert recorded(tmp_path / "engines.json") == {}
    assert not marker.exists()
