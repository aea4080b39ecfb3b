"""The server behind `mnemos watch`: the page, its data, and nobody else's business."""

import http.client
import json
import signal
import socket
import struct
import threading
from contextlib import closing

import pytest
from playwright.sync_api import expect

import mnemos
from mnemos.errors import ConfigError
from mnemos.report.live import Latest, serve
from support.processes import LONG, Command


class Source:
    """Data that can be changed, and that counts how often it is made."""

    def __init__(self):
        self.value, self.version, self.made = {"round": 1}, 0, 0

    def make(self):
        self.made += 1
        return self.value

    def change(self, value):
        self.value, self.version = value, self.version + 1

    def latest(self):
        return Latest(self.make, lambda: self.version)


def get(address, path="/", **headers):
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=LONG)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def address(source):
    with serve(lambda: "<p>page</p>", source.latest()) as address:
        yield address


def test_the_page_and_its_data(address):
    assert address.startswith("http://127.0.0.1:")
    status, body, headers = get(address)
    assert (status, body) == (200, b"<p>page</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, body, _ = get(address, "/data.json")
    assert (status, json.loads(body)) == (200, {"round": 1})


def test_unchanged_data_is_neither_made_nor_sent_again(address, source):
    _, _, headers = get(address, "/data.json")
    status, body, _ = get(address, "/data.json", **{"If-None-Match": headers["ETag"]})
    assert (status, body, source.made) == (304, b"", 1)
    source.change({"round": 2})
    source.change({"round": 3})
    for _ in range(100):  # it may wait a moment: four times as long as the making took
        status, body, _ = get(address, "/data.json", **{"If-None-Match": headers["ETag"]})
        if status == 200:
            break
    assert (json.loads(body), source.made) == ({"round": 3}, 2)


@pytest.mark.parametrize("path", ["/../etc/passwd", "/data.jsonl", "/runs"])
def test_there_is_nothing_else(address, path):
    assert get(address, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80"])
def test_a_name_of_another_page_is_refused(address, host):
    assert get(address, "/data.json", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:8000"])
def test_its_own_names_are_fine(address, host):
    assert get(address, "/data.json", Host=host)[0] == 200  # without a port, where that is 80


def test_a_browser_that_is_gone_is_not_worth_a_word(capfd):
    asked, gone, answering = threading.Event(), threading.Event(), []

    def make():
        answering.append(threading.current_thread())
        asked.set()
        gone.wait(LONG)
        return {"round": 1}

    with serve(str, Latest(make, lambda: 0)) as address:
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=LONG) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(f"GET /data.json HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert asked.wait(LONG)
        gone.set()
        answering[0].join(LONG)
        assert not answering[0].is_alive()
    assert capfd.readouterr() == ("", "")


def test_other_addresses_of_this_machine_do_not_answer(address):
    port = int(address.rstrip("/").rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5).close()


def test_a_port_in_use_is_named(address, source):
    port = int(address.rstrip("/").rpartition(":")[2])
    with (
        pytest.raises(ConfigError, match=f"port: found {port}; it can't be used"),
        serve(str, source.latest(), port),
    ):
        pass


def test_the_page_follows_real_runs(browser, tiny, tmp_path):
    with Command("watch", tmp_path, cwd=tmp_path) as watching, closing(browser.new_context()) as context:
        address = watching.line(0).removeprefix("page: ").strip()
        page, requests, errors = context.new_page(), [], []
        page.set_default_timeout(1000 * LONG)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(address)
        expect(page.get_by_text("No runs yet")).to_be_visible()
        run = mnemos.run(tiny, {"evaluate.every": 1}, out=tmp_path)
        rows = page.locator("#block-summary tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(f"{100 * run.accuracy:.1f}")
        page.get_by_role("searchbox").fill("wsm")  # what a person has chosen outlives new data
        mnemos.run(tiny, {"method.loss": "wsm"}, out=tmp_path)
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text("wsm")
        assert all(url.startswith(address) for url in requests)
        assert errors == []
        watching.send(signal.SIGINT)
        assert watching.ended().code == 0
