"""An owner's side, with nodes that are made up."""

from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mnemos.deployment import join
from mnemos.deployment.holder import Holder
from mnemos.deployment.keys import fingerprint, make_owner, make_server, public_keys
from mnemos.deployment.serve import announce
from mnemos.errors import ConfigError, MnemosError


class Node:
    """One that a server lets in, or not."""

    def __init__(self, let_in, said="[code: 600] unknown key."):
        self.running = True
        self.lines = ["SuperNode ID: 7"] if let_in else [said]

    def last_words(self):
        return " ".join(self.lines)

    def end(self):
        self.running = False


def test_who_was_let_in_at_last_waits_for_its_server_as_long_as_it_takes(tmp_path, monkeypatch):
    """A client that was killed is refused for a minute; the time that it tries is over once it is in."""
    now, said = 0.0, []
    nodes = iter([False, False, True, *[False] * 4])

    started = []

    def supernode(*_):
        started.append(Node(next(nodes)))
        return started[-1]

    def answer_forever(door, app, going, say):
        """Refused nodes end within half a minute; the other one goes on for an hour, and then ends."""
        nonlocal now
        if "code" in started[-1].lines[0]:
            now += 30.0
            return
        for _ in range(60):
            assert going()
            now += 60.0

    def sleep(seconds):
        nonlocal now
        now += seconds

    there = iter([True, False, False])
    monkeypatch.setattr(join, "answers", lambda *_: next(there, True))
    monkeypatch.setattr(join, "supernode", supernode)
    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with pytest.raises(MnemosError, match="far:1 doesn't let a in: unknown key"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, said.append)
    trying = "far:1 doesn't let a in: unknown key; trying again, because a client that was killed"
    assert [line[: len(trying)] for line in said] == [
        trying,
        "a takes part with a.npz at far:1; Ctrl-C ends it",
        "far:1 no longer answers; waiting for it",
        "far:1 answers again",
        "the connection to far:1 is lost; trying again",
        trying,
    ]


def test_who_is_not_let_in_gives_up_while_its_server_is_away(tmp_path, monkeypatch):
    """The node itself would go on for ever."""
    now = 0.0
    monkeypatch.setattr(join, "supernode", lambda *_: Node(False))

    def answer_forever(door, app, going, say):
        nonlocal now
        first = now == 0.0
        while going() and not first:
            now += 1.0
        now += first

    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    with pytest.raises(MnemosError, match="doesn't let a in"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, lambda _: None)
    assert now == 1.0 + 75.0


def test_the_reason_is_the_last_that_was_given(tmp_path, monkeypatch):
    """A node that is ended because its time is over may not have said anything yet."""
    now, said = 0.0, iter([" [code: 600] unknown key.", "", ""])

    def supernode(*_):
        return Node(False, next(said))

    def answer_forever(*_):
        nonlocal now
        now += 50.0

    monkeypatch.setattr(join, "supernode", supernode)
    monkeypatch.setattr(join, "answer_forever", answer_forever)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    with pytest.raises(MnemosError, match=r"far:1 doesn't let a in: unknown key$"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, None, lambda _: None)


def test_a_key_that_the_server_does_not_know_is_given_up_after_a_second_try(tmp_path, monkeypatch):
    """The second, because a server that has just come up may not have read its owners' keys yet."""
    said = []
    monkeypatch.setattr(join, "supernode", lambda *_: Node(False))
    monkeypatch.setattr(join, "answer_forever", lambda *_: None)
    monkeypatch.setattr(join, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    monkeypatch.setattr(join, "_unknown", lambda *_: "it doesn't know the key")
    with pytest.raises(MnemosError, match=r"far:1 doesn't let a in: it doesn't know the key$"):
        join.take_part("far:1", Holder("a.npz", tmp_path, "a"), tmp_path, tmp_path, said.append)
    assert said == ["far:1 doesn't let a in: it doesn't know the key; trying once more"]


@pytest.mark.parametrize("known", [True, False])
def test_a_server_is_asked_whether_it_knows_a_key(known, tmp_path, monkeypatch):
    make_server(tmp_path, ["localhost"], 10)
    folder = make_owner(tmp_path, "a")
    asked = []

    class Control:
        def __init__(self, server, certificate):
            assert (server, certificate) == ("far:1", (tmp_path / "ca.pem").read_bytes())

        def knows(self, key):
            asked.append(key)
            return known

        def close(self):
            pass

    monkeypatch.setattr(join, "Control", Control)
    sentence = join._unknown("far:1", folder)
    assert asked == [public_keys(tmp_path)["a"]]
    assert (fingerprint(asked[0]) in sentence) is not known


def test_a_key_that_cannot_be_used_is_named_before_anything_is_started(tmp_path):
    make_server(tmp_path, ["localhost"], 10)
    folder = make_owner(tmp_path, "a")
    (tmp_path / "data").mkdir()
    join.check(str(tmp_path / "data"), folder)
    other = Ed25519PrivateKey.generate()
    openssh, none = form.PrivateFormat.OpenSSH, form.NoEncryption()
    keys = {
        "key: not a private key in OpenSSH's form": b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n",
        "key: not a key on a NIST elliptic curve": other.private_bytes(form.Encoding.PEM, openssh, none),
    }
    for sentence, content in keys.items():
        (folder / "key").write_bytes(content)
        with pytest.raises(ConfigError, match=sentence):
            join.check(str(tmp_path / "data"), folder)


def test_certificates_that_expire_within_a_month_are_announced(tmp_path):
    said = []
    for days in (29, 31):
        make_server(tmp_path / f"{days}", ["localhost"], days)
        announce(tmp_path / f"{days}", said.append)
    (line,) = said
    assert line.startswith(f"{tmp_path}/29/server.pem will expire on 20")
    assert "in 28 days; 'mnemos federate keys' with --host makes a new one" in line
