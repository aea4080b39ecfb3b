"""Downloads, against a server on the loopback interface: what fails is one sentence and leaves nothing."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import socket
import struct
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mnemos.common.files import replacing
from mnemos.data import download
from mnemos.data.download import RemoteFile, fetch, obtain, offline
from mnemos.data.folder import cache_folder, data_folder, locate, missing, stamp
from mnemos.data.sources.cifar import Cifar10
from mnemos.data.sources.idx import Mnist
from mnemos.errors import DataError

CONTENT = bytes(range(256)) * 3000
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Site(http.server.ThreadingHTTPServer):
    """Serves `files`; `failures` answers are wrong in the way the path says before they are right."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/good.bin": CONTENT}
        self.failures = 0
        self.requests = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.requests += 1
        kind = self.path.strip("/")
        if kind == "busy.bin" and self.server.requests <= self.server.failures:
            self.send_error(503)
            return
        content = self.server.files.get(self.path, CONTENT if kind in {"busy.bin", "cut.bin"} else None)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        cut = kind == "cut.bin" and self.server.requests <= self.server.failures
        self.wfile.write(content[:1000] if cut else content)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MNEMOS_OFFLINE", raising=False)
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    server = Site()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def one_sentence(error: pytest.ExceptionInfo[DataError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    assert not text.endswith(".")
    return text


@pytest.mark.parametrize("checksum", [MD5, SHA256, SHA256.upper()])
def test_a_good_file_arrives_whole(site: Site, tmp_path: Path, checksum: str) -> None:
    target = tmp_path / "deep" / "good.bin"
    assert fetch(site.url("/good.bin"), checksum, target) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_progress_is_a_plain_line_off_a_terminal(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(site.url("/good.bin"), MD5, tmp_path / "good.bin")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"downloading {site.url('/good.bin')} (0.8 MB)\n"


def test_progress_is_a_bar_on_a_terminal(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fetch(site.url("/good.bin"), MD5, tmp_path / "good.bin")
    assert "good.bin" in terminal.getvalue()
    assert "downloading" not in terminal.getvalue()


def test_a_wrong_checksum_is_told_and_leaves_the_old_file(site: Site, tmp_path: Path) -> None:
    target = tmp_path / "good.bin"
    target.write_bytes(b"old")
    with pytest.raises(DataError) as error:
        fetch(site.url("/good.bin"), "0" * 32, target)
    assert f"MD5 is {MD5}" in one_sentence(error)
    assert "0" * 32 in str(error.value)
    assert site.requests == 1
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_not_found_is_not_tried_again(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        fetch(site.url("/nothing.bin"), MD5, tmp_path / "nothing.bin")
    assert "404" in one_sentence(error)
    assert site.requests == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/busy.bin", "/cut.bin"])
def test_what_passes_is_tried_again(site: Site, tmp_path: Path, path: str) -> None:
    site.failures = 2
    assert fetch(site.url(path), MD5, tmp_path / "file").read_bytes() == CONTENT
    assert site.requests == 3


@pytest.mark.parametrize(("path", "reason"), [("/busy.bin", "503"), ("/cut.bin", "1000 of 768000 bytes")])
def test_what_does_not_pass_ends_after_two_retries(
    site: Site, tmp_path: Path, path: str, reason: str
) -> None:
    site.failures = 99
    with pytest.raises(DataError) as error:
        fetch(site.url(path), MD5, tmp_path / "file")
    assert reason in one_sentence(error)
    assert site.requests == 3
    assert list(tmp_path.iterdir()) == []


def test_retries_wait_longer_each_time(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(download.time, "sleep", waits.append)
    site.failures = 2
    fetch(site.url("/busy.bin"), MD5, tmp_path / "file", pause=0.5)
    assert waits == [0.5, 1.0]


def test_a_refused_connection(site: Site, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError) as error:
        fetch(f"http://127.0.0.1:{port}/x.bin", MD5, tmp_path / "x.bin")
    assert "refused" in one_sentence(error)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_says_nothing(site: Site, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(DataError) as error:
            fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/x", MD5, tmp_path / "x", timeout=0.05)
    assert "timed out" in one_sentence(error)


def test_a_server_that_talks_nonsense(site: Site, tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def talk() -> None:
            for _ in range(3):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"what?\r\n\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(DataError) as error:
            fetch(f"http://127.0.0.1:{server.getsockname()[1]}/x", MD5, tmp_path / "x", timeout=60)
        thread.join()
    assert "what?" in one_sentence(error)


def test_a_destination_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError) as error:
        fetch(site.url("/good.bin"), MD5, tmp_path / "file" / "good.bin")
    assert "can't be written" in one_sentence(error)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_offline(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("MNEMOS_OFFLINE", value)
    assert offline() is expected


def test_offline_never_asks(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMOS_OFFLINE", "1")
    with pytest.raises(DataError) as error:
        fetch(site.url("/good.bin"), MD5, tmp_path / "good.bin")
    assert "MNEMOS_OFFLINE" in one_sentence(error)
    assert site.requests == 0


def test_obtain_adds_what_to_do(site: Site, tmp_path: Path) -> None:
    files = [RemoteFile(site.url("/good.bin"), MD5), RemoteFile(site.url("/nothing.bin"), MD5)]
    with pytest.raises(DataError) as error:
        obtain("things", files, tmp_path, "put nothing.bin somewhere")
    text = one_sentence(error)
    assert text.startswith("things: ")
    assert text.endswith("; put nothing.bin somewhere")
    assert [file.name for file in tmp_path.iterdir()] == ["good.bin"]


def cifar_archive(broken: Callable[[bytes], bytes] = bytes) -> bytes:
    record = bytes([3]) + bytes(3072)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in [*Cifar10.train_files, *Cifar10.test_files]:
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = 2 * len(record)
            tar.addfile(entry, io.BytesIO(record * 2))
    return broken(packed.getvalue())


def test_cifar_is_downloaded_and_unpacked_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = cifar_archive()
    site.files["/c.tar.gz"] = archive
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(
        Cifar10, "remote", RemoteFile(site.url("/c.tar.gz"), hashlib.md5(archive).hexdigest())
    )
    assert len(Cifar10().load().train) == 10
    assert len(Cifar10().load().test) == 2
    assert site.requests == 1
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == ["cifar-10-batches-bin"]


def test_cifar_that_cannot_be_downloaded_says_what_to_put_where(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    monkeypatch.setattr(Cifar10, "remote", RemoteFile(site.url("/nothing.tar.gz"), MD5))
    with pytest.raises(DataError) as error:
        Cifar10().load()
    text = one_sentence(error)
    for hint in ("data_batch_1.bin", "test_batch.bin", str(tmp_path / "cifar-10-batches-bin"), "MNEMOS_DATA"):
        assert hint in text
    assert "nothing.tar.gz" in text


def test_only_missing_idx_files_are_downloaded(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    checksums = {}
    for part in ("train", "t10k"):
        images = struct.pack(">4I", 2051, 4, 28, 28) + np.arange(4 * 784).astype(np.uint8).tobytes()
        labels = struct.pack(">2I", 2049, 4) + bytes([1, 2, 3, 4])
        (tmp_path / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(images)
        packed = gzip.compress(labels)
        site.files[f"/{part}-labels-idx1-ubyte.gz"] = packed
        checksums[f"{part}-images-idx3-ubyte"] = "unused"
        checksums[f"{part}-labels-idx1-ubyte"] = hashlib.md5(packed).hexdigest()
    monkeypatch.setattr(Mnist, "base", site.url("/"))
    monkeypatch.setattr(Mnist, "checksums", checksums)
    assert Mnist().load().train.labels.tolist() == [1, 2, 3, 4]
    assert site.requests == 2


def test_published_checksums_are_md5() -> None:
    for remote in (Cifar10.remote, *(RemoteFile("", checksum) for checksum in Mnist.checksums.values())):
        assert len(bytes.fromhex(remote.checksum)) == 16


def test_the_data_folder_is_the_variable_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("MNEMOS_DATA")
    assert data_folder() == cache_folder() / "data"
    monkeypatch.delenv("MNEMOS_CACHE")
    assert data_folder() == cache_folder() / "data"
    assert "mnemos" in str(cache_folder())


def test_locate_prefers_the_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMOS_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate("a.npz") == Path("a.npz")
    (tmp_path / "data" / "a.npz").touch()
    assert locate("a.npz") == tmp_path / "data" / "a.npz"
    (tmp_path / "a.npz").touch()
    assert locate("a.npz") == Path("a.npz")
    assert locate(str(tmp_path / "b.npz")) == tmp_path / "b.npz"


def test_missing_lists_what_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").mkdir()
    assert missing(tmp_path, ["a", "b", "c"]) == ["b", "c"]


def test_stamp_changes_with_the_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "b").write_bytes(b"1")
    assert stamp(tmp_path) != before
    assert stamp(tmp_path / "nothing") == ()
    assert len(stamp(tmp_path / "a")) == 1


def test_replacing_leaves_no_half_written_file(tmp_path: Path) -> None:
    target = tmp_path / "file"

    def write(fail: bool) -> None:
        with replacing(target) as file:
            file.write(b"half")
            if fail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(fail=True)
    assert list(tmp_path.iterdir()) == []
    write(fail=False)
    assert list(tmp_path.iterdir()) == [target]
