"""`mnemos federate` with wrong words: answered before anything is started."""

import io
import json
import re
import shutil
import stat

import pytest
import typer
import yaml
from cryptography import x509
from rich.console import Console

import mnemos
from mnemos.cli import federation
from mnemos.cli.commands import federate
from mnemos.common.files import locked
from mnemos.deployment.diary import Diary
from mnemos.deployment.journal import Journal
from mnemos.deployment.keys import make_owner, make_server, public_keys
from mnemos.deployment.roster import Roster
from mnemos.display import terminal
from mnemos.display.bars import bars
from mnemos.experiment.experiment import load_experiment
from support.owners import folders

FILES = ("ca.pem", "ca.key", "server.pem", "server.key")


def test_init_and_keys_write_what_serve_and_join_need(command, tmp_path):
    home = tmp_path / "home"
    command(f"federate init {home}")
    assert {"README.md", "experiment.yaml", "pyproject.toml"} <= {file.name for file in home.iterdir()}
    assert load_experiment(home / "experiment.yaml").min_clients == 2
    said = command(f"federate keys {home} --owner a --owner b --host fl.example.org").out
    assert "fl.example.org, localhost, 127.0.0.1" in said
    assert public_keys(home).keys() == {"a", "b"}
    for file in (home / "ca.key", home / "server.key", home / "hand-out/a/key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = {name: (home / name).read_bytes() for name in FILES}
    command(f"federate keys {home} --owner c")
    assert public_keys(home).keys() == {"a", "b", "c"}
    assert before == {name: (home / name).read_bytes() for name in FILES}


def test_a_new_certificate_of_the_server_leaves_owners_as_they_are(command, tmp_path):
    """It is signed by the authority whose certificate they have."""
    command(f"federate keys {tmp_path} --owner a")
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    said = command(f"federate keys {tmp_path} --host fl.example.org --days 30").out
    assert "server.pem is new, for fl.example.org, localhost, 127.0.0.1" in said
    after = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert [name for name in FILES if before[name] != after[name]] == ["server.pem", "server.key"]
    ca, server = (x509.load_pem_x509_certificate(after[name]) for name in ("ca.pem", "server.pem"))
    server.verify_directly_issued_by(ca)
    assert (ca.not_valid_after_utc - server.not_valid_after_utc).days > 3000
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "fl.example.org" in names.get_values_for_type(x509.DNSName)
    (tmp_path / "ca.key").write_text("nothing")
    said = command(f"federate keys {tmp_path} --host other.example.org", 2)
    assert "ca.pem can't be read, and a new certificate needs both" in said.err


def test_a_line_is_above_the_bar_and_not_behind_it(tmp_path, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "errors", Console(force_terminal=True, width=80, file=shown))
    bar = bars()
    bar.add_task("training", total=2, notes=[])
    with bar, federation.journal(tmp_path / "server.log") as say:
        bar.refresh()
        say.warn("[south] is gone")
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()))
    assert "warning: [south] is gone" in lines


def test_what_init_writes_for_systemd_and_containers_calls_commands_that_there_are(command, tmp_path):
    """Each command line in it is read by the commands themselves, which aren't started."""
    home = tmp_path / "home"
    command(f"federate init {home}")
    services = yaml.safe_load((home / "compose.yaml").read_text())["services"]
    assert services.keys() == {"server", "north", "south", "west"}
    lines = [service["command"] for service in services.values()]
    lines += [service["healthcheck"]["test"][3:] for service in services.values()]
    for name in ("server", "owner"):
        unit = (home / f"deploy/mnemos-{name}.service").read_text()
        (words,) = re.findall(r"^ExecStart=\S+/mnemos federate (.+)$", unit, re.MULTILINE)
        lines.append(words.split())
    group = typer.main.get_command(federate.app)
    called = [group.commands[name].make_context(name, list(words)).info_name for name, *words in lines]
    assert called == ["serve", "join", "join", "join", *["status"] * 4, "serve", "join"]
    assert (home / ".dockerignore").read_text().splitlines()[1:] == ["*", "!wheels"]


def test_status_reads_both_sides_and_tells_supervisors(command, tmp_path):
    said = command(f"federate status {tmp_path}", 2).err
    assert f"folder: {tmp_path} has no file 'federation.json'" in said
    server, client = tmp_path / "server", tmp_path / "client"
    for folder in (server, client):
        folder.mkdir()
    roster = Roster(server, Journal(server / "server.log", print, dated=False))
    roster.members(["a", "b"])
    roster.server(state="waiting", address="here:1", rounds=4)
    roster.joined("b")
    Diary(client, print).note("connected", name="a", server="here:1")
    assert "server at here:1: stopped, round 0/4" in command(f"federate status {server}").out
    assert f"{server}: stopped" in command(f"federate status {server} --check", 1).err
    with locked(server / ".serving"), locked(client / ".lock"):
        said = command(f"federate status {server} --check").out + command(f"federate status {server}").out
        assert "server at here:1: waiting, round 0/4" in said
        assert [line.split()[:2] for line in said.splitlines()[2:]] == [["a", "awaited"], ["b", "here"]]
        assert "a at here:1: connected" in command(f"federate status {client}").out
        facts = json.loads(command(f"federate status {client} --check --json").out)
        assert (facts["now"], facts["well"]) == ("connected", True)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("jion", 2, "no such command 'jion'; did you mean 'join'? See 'mnemos federate --help'"),
        ("serve nope.yaml", 2, "nope.yaml: there is no such file"),
        ("serve {file} data=digits", 2, "data: found digits; a federation has its owners' data"),
        ("serve {file} partition=iid", 2, "partition: found iid; each owner is a client"),
        ("serve {file} --home nowhere", 2, "home: nowhere has no file 'ca.pem'"),
        ("serve {file} --owners 2 --home nowhere", 2, "home: nowhere has no file 'ca.pem'"),
        ("serve {file} --plain --owners 2 --superlink localhost:1", 2, "secret: a SuperLink that is running"),
        ("serve {file} --plain", 2, "owners: without keys the number of owners isn't known"),
        ("serve {file} rounds=0", 2, "rounds: found 0"),
        ("serve {run}", 2, "it isn't a federation's run; 'mnemos resume' continues it"),
        ("join --server localhost:1 --data {data}", 2, "keys: they are missing"),
        (
            "join --server localhost:1 --data nope.npz --plain",
            3,
            "neither an npz file nor a folder of images",
        ),
        ("join --server localhost:1 --data {data} --plain --wait 0", 1, "localhost:1 can't be reached"),
        ("join --server localhost:1 --data {data} --keys {home}", 2, "has no file 'key'"),
        (
            "join --server localhost:1 --data {data} --plain --device cuda:7",
            2,
            "device: there is no device 'cuda:7'",
        ),
        (
            "join --server localhost:1 --data {data} --plain --device cpu,cpu",
            2,
            "device: there is no device 'cpu,cpu'",
        ),
        ("join --server localhost:1 --data {data} --keys {home} --plain", 2, "keys: found keys and --plain"),
        (
            "join --server localhost:abc --data {data} --plain",
            2,
            "server: found localhost:abc; expected: HOST",
        ),
        ("join --server localhost --data {data} --plain", 2, "server: found localhost; expected: HOST:PORT"),
        ("join --server localhost:1 --data {data} --keys {bad}", 2, "ca.pem: not a certificate"),
        ("join --server localhost:1 --data {data} --keys {no_key}", 2, "key: not a private key in OpenSSH's"),
        ("keys {home} --host 'a b'", 2, "host: found 'a b'; allowed: a name such as"),
        ("keys {home} --owner a/b", 2, "owner: found 'a/b'; allowed: letters"),
        ("keys {home} --owner a --owner a", 2, "owner: found 'a' twice"),
        ("init {home}", 2, "isn't empty"),
        ("init {file}", 2, "e.yaml is a file, and a folder is expected"),
        ("keys {file}/below --owner a", 2, "home: found '{file}/below'; {file} is a file"),
        ("serve {file} --home {file}", 2, "home: found '{file}'; {file} is a file, and a folder is expected"),
        ("serve {file} --out {file}", 2, "out: found '{file}'; {file} is a file, and a folder is expected"),
        (
            "join --server localhost:1 --data {data} --plain --folder {file}",
            2,
            "folder: found '{file}'; {file} is a file",
        ),
        (
            "serve {file} --plain --owners 1 --host no.such.host",
            2,
            "host: found no.such.host, port 8000; the server can't listen there",
        ),
        ("serve {file} 'engine={{name: flower, deadline: 9}}'", 2, "engine.deadline: found 9, and fedavg's"),
    ],
)
def test_wrong_words(line, code, words, command, tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (data,) = folders(tmp_path, (60,))
    file, home, run = tmp_path / "e.yaml", tmp_path / "home", tmp_path / "run"
    file.write_text("data: owners\npartition: natural\n")
    home.mkdir()
    (home / "something").touch()
    make_server(tmp_path / "keys", ["localhost"], 10)
    bad, no_key = make_owner(tmp_path / "keys", "a"), make_owner(tmp_path / "keys", "b")
    (bad / "ca.pem").write_text("nothing")
    (no_key / "key").write_text("nothing")
    if "{run}" in line:
        run = mnemos.run({**tiny, "rounds": 1}, out=tmp_path / "runs").path
    names = {"file": file, "home": home, "run": run, "data": data, "bad": bad, "no_key": no_key}
    said = command("federate " + line.format(**names), code)
    assert words.format(**names) in said.err
    assert not list(tmp_path.glob("**/superlink*"))


def test_two_clients_can_not_have_one_folder(command, tmp_path, monkeypatch):
    (data,) = folders(tmp_path, (60,))
    monkeypatch.setattr("mnemos.deployment.join.reach", lambda *_: None)
    with locked(tmp_path / ".lock"):
        said = command(f"federate join --server localhost:1 --data {data} --plain --folder {tmp_path}", 2)
    assert f"folder: found {tmp_path}, which another client is using; each needs its own" in said.err


def test_two_owners_can_not_have_one_key(command, tmp_path):
    command(f"federate keys {tmp_path} --owner a")
    shutil.copy(tmp_path / "owners/a.pub", tmp_path / "owners/b.pub")
    file = tmp_path / "e.yaml"
    file.write_text("data: owners\npartition: natural\n")
    said = command(f"federate serve {file} --home {tmp_path}", 2)
    assert "owners/b.pub: another owner in the folder has the same key" in said.err


def test_a_federation_goes_by_its_own_commands_alone(command, tmp_path):
    (path,) = folders(tmp_path, (60,))
    line = f"run 'data={{name: owners, paths: [{path}]}}' partition=natural participation=1 engine=flower"
    assert "'mnemos federate serve'" in command(line, 2).err
