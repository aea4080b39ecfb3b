"""A real federation: a SuperLink with TLS, and SuperNodes with keys, as processes of their own.

The owners are started once. They outlive the servers, as those of any federation do.
"""

import json
import re
import signal
from contextlib import ExitStack, contextmanager

import pytest
import torch
from safetensors.torch import load_file

from mnemos.deployment.keys import fingerprint, make_owner, make_server, public_half
from mnemos.deployment.processes import free_port
from mnemos.experiment.experiment import Experiment
from mnemos.runs.run import Run
from support.owners import folders, images
from support.play import play
from support.processes import LONG, Command, wait_for

DATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (INFO|WARNING|ERROR) ")


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


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def owners(home, port):
    """Three owners that join whichever server there is at the port, the second with a device of its own.

    It has the CPU's bits.
    """
    with started(
        joining(home, "a", port, "a.npz"),
        joining(home, "b", port, "b.npz", "--device", "pretend:1", pretend=True),
        joining(home, "c", port, "c"),
    ) as all:
        yield all


@pytest.fixture
def gate(tmp_path):
    """Where a server that has come to the end of a round waits until `open` is there."""
    return tmp_path


def experiment(home, gate, at, **changes):
    """Waits at the end of a round, before it is saved."""
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
            "measures": [{"name": "support.gate:Gate", "at": at, "folder": str(gate)}],
            "engine": "serial",
            **changes,
        }
    )


@contextmanager
def started(*commands):
    with ExitStack() as stack:
        for command in commands:
            stack.enter_context(command)
        yield commands


def joining(home, name, port, data, *words, keys=None, pretend=False):
    keys = ("--keys", str(keys or home / "hand-out" / name)) if "--plain" not in words else ()
    return Command(
        "federate", "join", "--server", f"localhost:{port}", "--data", home / data,
        "--folder", f"client-{name}", *keys, *words, cwd=home, pretend=pretend,
    )  # fmt: skip


def serving(home, port, out, description):
    file = home / f"{out}.yaml"
    file.write_text(description.to_yaml())
    return Command("federate", "serve", file, "--home", home, "--port", port, "--out", home / out, cwd=home)


def kill(command):
    command.send(signal.SIGKILL)
    command.process.join(LONG)


def reached(gate, server):
    """Wait until the server has come to the gate."""
    wait_for(lambda: any(gate.glob("reached-*")) or server.ended_already, "the gate")
    assert not server.ended_already, server.err


def rounds_done(folder):
    """How many rounds are saved, of the only run in a folder."""
    return sum(len(file.read_text().splitlines()) for file in folder.glob("*/timing.jsonl"))


def test_a_federation_whose_server_is_killed_comes_to_the_same_model(home, port, owners, gate):
    """Bit for bit that of one process, though its owners had trained already in the round that was lost.

    Strangers, and who doesn't speak TLS, aren't let in. Owners are told the end, and get the model.
    """
    engine = {"name": "flower", "share_model": True}
    description = experiment(home, gate, at=3, engine=engine)
    server = serving(home, port, "killed", description)
    others = (
        joining(home, "mallory", port, "a.npz", keys=home / "mallory"),
        joining(home, "plain", port, "a.npz", "--plain"),
    )
    with started(server, *others):
        reached(gate, server)
        mallory, plain = (one.ended() for one in others)
        stranger = fingerprint(public_half(home / "mallory" / "key"))
        assert f"refused: a client with an unknown key ({stranger})" in server.err
        assert "still awaited" in server.err
        kill(server)
        assert rounds_done(home / "killed") == 2
        (gate / "open").touch()
        again = serving(home, port, "killed", description)
        with started(again):
            done = again.ended()
        assert done.code == 0, done.err
        assert "continuing" in done.err + done.out
    assert (mallory.code, plain.code) == (1, 1)
    assert "doesn't let mallory in: it doesn't know the key" in mallory.err + mallory.out
    assert stranger in mallory.err
    assert "doesn't accept a plain connection" in plain.err + plain.out
    (path,) = (home / "killed").glob("*/model.safetensors")
    for name, owner in zip("abc", owners, strict=True):
        wait_for(lambda owner=owner: "finished after 4 rounds" in owner.err, f"the end at {name}")
        assert "round 4/4: trained on " in owner.err
        (given,) = (home / f"client-{name}").glob("memory/*/model.safetensors")
        assert given.read_bytes() == path.read_bytes()
    for log in (home / "server.log", home / "superlink.log", home / "client-a/client.log"):
        lines = log.read_text().splitlines()
        assert all(DATED.match(line) for line in lines), lines
        assert "\x1b" not in log.read_text()
    federation, _ = play(experiment(home, gate, at=3), 4)
    expected = federation.layout.state_dict(federation.server.model, federation.server.buffers)
    found = load_file(path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    losses = Run.at(path.parent).metrics.query("name == 'train_loss' and client.isna()")
    assert losses["round"].tolist() == [1, 2, 3, 4]


def test_a_round_goes_on_without_a_node_that_is_killed(home, port, owners, gate):
    engine = {"name": "flower", "timeout": 30.0}  # which the dead one costs; a busy machine has taken 27
    server = serving(home, port, "node", experiment(home, gate, at=1, rounds=2, engine=engine))
    with started(server):
        reached(gate, server)
        kill(owners[1])
        (gate / "open").touch()
        done = server.ended()
    assert done.code == 0, done.err
    (path,) = (home / "node").glob("*/status.json")
    assert json.loads(path.read_text())["status"] == "finished"
    metrics = Run.at(path.parent).metrics
    last = metrics[metrics["round"] == 2]
    dropped = last[last["name"].str.startswith("dropped")]
    assert dropped["client"].tolist() == [1]
    assert "round 2 continues without b: " in done.err
    known = json.loads((path.parent / "owners.json").read_text())["owners"]
    assert {name: owner["answered"] for name, owner in known.items()} == {"a": 2, "b": 1, "c": 2}
    assert known["b"]["state"] in ("dropped", "gone")
    assert last.query("name == 'train_loss'")["client"].dropna().tolist() == [0, 2]
