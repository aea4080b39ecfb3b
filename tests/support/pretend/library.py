"""The devices' own code, compiled where a compiler is and kept for the next time."""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import platformdirs
import torch

_SOURCES = Path(__file__).parent / "source"
_OPTIONS = ["-O1", "-std=c++20", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter"]
_NUMBERS = ["allocated", "peak", "total", "limit"]


class CompilerError(RuntimeError):
    """The pretend devices can't be compiled here."""


@cache
def library() -> ctypes.PyDLL:
    """The compiled code, loaded: with it, PyTorch has the devices.

    Calls keep Python's lock, as all of them are short.
    """
    loaded = ctypes.PyDLL(str(_compiled()))
    loaded.pretend_limit.argtypes = [ctypes.c_int, ctypes.c_int64]
    for name in _NUMBERS:
        getattr(loaded, f"pretend_{name}").restype = ctypes.c_int64
    return loaded


def folder() -> Path:
    """Where compiled code is kept: $MNEMOS_PRETEND_CACHE, or the user's cache."""
    return Path(
        os.environ.get("MNEMOS_PRETEND_CACHE") or Path(platformdirs.user_cache_dir("mnemos")) / "pretend"
    )


def _compiled() -> Path:
    compiler = os.environ.get("CXX") or "g++"
    found = shutil.which(compiler)
    if found is None:
        raise CompilerError(
            f"tests on the pretend device need a C++ compiler, and there is no {compiler}: install g++"
        )
    kept = folder()
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{_digest(found)}.so"
    # Another process may want it at the same moment: the second waits, and finds it.
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _compile(found, path)
    return path


def _digest(compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256("\0".join([torch.__version__, *_OPTIONS]).encode() + version)
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


def _compile(compiler: str, path: Path) -> None:
    torch_folder = Path(torch.__file__).parent
    include = torch_folder / "include"
    headers = ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    # PyTorch is loaded by the time this is, so where its libraries are needn't be written down.
    links = ["-L", str(torch_folder / "lib"), "-ltorch_cpu", "-lc10"]
    unfinished = path.with_suffix(".part")
    command = [
        compiler,
        *_OPTIONS,
        abi,
        *headers,
        str(_SOURCES / "device.cpp"),
        "-o",
        str(unfinished),
        *links,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerError(f"the pretend device doesn't compile: {' '.join(command)}\n{done.stderr}")
    unfinished.replace(path)
