"""A real federation: a SuperLink with TLS, and SuperNodes with keys, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import load_file

from mnemos.data.folder import data_folder
from mnemos.experiment import Experiment
from mnemos.federate.keys import make_owner, make_server
from mnemos.federate.processes import free_port
from mnemos.federation import Federation
from mnemos.runs.run import Run
from owners import folders, images
from patience import LONG, wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Keys, and three owners' data: two files and a folder of images."""
    folder = tmp_path_factory.mktemp("federation")
    make_server(folder, ["localhost", "127.0.0.1"], days=2)
    *_, c = folders(folder)
    images(c)
    c.unlink()
    for name in "abc":
        make_owner(folder, name)
    stranger = tmp_path_factory.mktemp("stranger")
    make_server(stranger, ["localhost"], days=2)
    make_owner(stranger, "mallory")
    (stranger / "hand-out/mallory/ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    (folder / "mallory").symlink_to(stranger / "hand-out/mallory")
    return folder


def experiment(home, **changes):
    return Experiment.parse(
        {
            "data": {
                "name": "owners",
                "paths": [str(home / "a.npz"), str(home / "b.npz"), str(home / "c")],
                "channels": 1,
            },
            "partition": {"name": "natural", "validation": 0.2},
            "model": {"name": "mlp", "hidden": [8]},
            "method": "scaffold",
            "participation": 1.0,
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "rounds": 4,
            "evaluate": {"every": 100},
            "engine": "serial",
            **changes,
        }
    )


class Started:
    """A command in a process of its own."""

    def __init__(self, home, name, *words):
        self.log = home / f"{name}.log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mnemos", "federate", *words],
                cwd=home,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MNEMOS_DATA": str(data_folder())},
            )

    def ended(self):
        """Its exit code, in bounded time, and what it has said."""
        try:
            code = self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.log} hangs: {self.text()}")
        return code, self.text()

    def text(self):
        return self.log.read_text()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(LONG)


@contextmanager
def started(*commands):
    try:
        yield commands
    finally:
        for command in commands:
            command.process.kill()
            command.process.wait(LONG)


def joining(home, name, port, data, *words, keys=None):
    keys = ("--keys", str(keys or home / "hand-out" / name)) if "--plain" not in words else ()
    return Started(
        home, f"join-{name}", "join", "--server", f"localhost:{port}", "--data", str(home / data),
        "--folder", f"client-{name}", *keys, *words,
    )  # fmt: skip


def serving(home, port, out, description):
    file = home / f"{out}.yaml"
    file.write_text(description.to_yaml())
    words = ("serve", str(file), "--home", str(home), "--port", str(port), "--out", str(home / out))
    return Started(home, f"serve-{out}", *words)


def rounds_done(folder):
    """How many rounds are saved, of the only run in a folder."""
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*/timing.jsonl"))


def test_a_federation_whose_server_is_killed_comes_to_the_same_model(home):
    """Bit for bit that of one process; strangers, and who doesn't speak TLS, aren't let in."""
    description, port = experiment(home), free_port()
    server = serving(home, port, "killed", description)
    owners = [joining(home, n, port, d) for n, d in (("a", "a.npz"), ("b", "b.npz"), ("c", "c"))]
    others = (
        joining(home, "mallory", port, "a.npz", keys=home / "mallory"),
        joining(home, "plain", port, "a.npz", "--plain"),
    )
    with started(server, *owners, *others):
        wait_for(lambda: rounds_done(home / "killed") or server.process.poll() is not None, "a round")
        server.kill()
        done = rounds_done(home / "killed")
        assert 1 <= done < 4
        again = serving(home, port, "killed", description)
        with started(again):
            code, text = again.ended()
        assert code == 0, text
        assert "going on with" in text
        (code, mallory), (other, plain) = (one.ended() for one in others)
    assert (code, other) == (1, 1)
    assert "doesn't let mallory in" in mallory
    assert "doesn't take a plain connection" in plain
    (path,) = (home / "killed").glob("*/model.safetensors")
    federation = Federation(description)
    with federation.open() as runner:
        for _ in range(4):
            federation.advance(runner)
    federation.close()
    expected = federation.layout.state_dict(federation.server.model, federation.server.buffers)
    found = load_file(path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    losses = Run.at(path.parent).metrics.query("name == 'train_loss' and client.isna()")
    assert losses["round"].tolist() == [1, 2, 3, 4]


def test_a_round_goes_on_without_a_node_that_is_killed(home):
    description = experiment(home, rounds=3, engine={"name": "flower", "timeout": 25.0})
    port = free_port()
    server = serving(home, port, "node", description)
    owners = [joining(home, n, port, d) for n, d in (("a", "a.npz"), ("b", "b.npz"), ("c", "c"))]
    with started(server, *owners):
        wait_for(lambda: rounds_done(home / "node") or server.process.poll() is not None, "a round")
        owners[1].kill()
        code, text = server.ended()
    assert code == 0, text
    (path,) = (home / "node").glob("*/status.json")
    assert json.loads(path.read_text())["status"] == "finished"
    metrics = Run.at(path.parent).metrics
    last = metrics[metrics["round"] == 3]
    dropped = last[last["name"].str.startswith("dropped")]
    assert dropped["client"].tolist() == [1]
    assert last.query("name == 'train_loss'")["client"].dropna().tolist() == [0, 2]
