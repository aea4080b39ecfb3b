"""A virtual environment for each peer, made when it is first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HERE = Path(__file__).parent
CONSTRAINTS = HERE / "constraints.txt"
DEFAULT = platformdirs.user_cache_path("mnemos-peers")


@dataclass(frozen=True)
class Peer:
    """What is installed for a contender; nothing if it needs no more than Mnemos."""

    package: str = ""
    extra: str = ""

    @property
    def requirement(self) -> str:
        return self.package + (f"[{self.extra}]" if self.extra else "")


PEERS = {
    "mnemos": Peer(),
    "by_hand": Peer(),
    "plain": Peer(),
    "flower": Peer("flwr", "simulation"),
    "pfl": Peer("pfl"),
    "fluke": Peer("fluke-fl"),
    "fedlab": Peer("fedlab"),
}


class InstallError(Exception):
    """A peer can't be installed; says why."""


def interpreter(name: str, folder: Path) -> str:
    """The Python that has a contender's packages; they are installed if they aren't yet."""
    peer = PEERS[name]
    if not peer.package:
        return sys.executable
    home = folder / name
    python, done = home / "bin" / "python", home / "installed.txt"
    wanted = f"{peer.requirement}\n{CONSTRAINTS.read_text()}"
    if done.exists() and done.read_text() == wanted:
        return str(python)
    print(f"installing {peer.requirement}", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _call([sys.executable, "-m", "venv", str(home)])
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([str(python), *install, "--constraint", str(CONSTRAINTS), "torch", peer.requirement])
    done.write_text(wanted)
    return str(python)


def version(name: str, python: str) -> str:
    """The version of a contender's package, or of PyTorch."""
    package = PEERS[name].package or "torch"
    code = f"from importlib.metadata import version; print(version({package!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return f"{package} {found}"


def _call(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise InstallError((lines or done.stderr.splitlines() or ["pip failed"])[-1])
