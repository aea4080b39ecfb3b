"""The report of runs in progress, served on this machine: a page, and the data that it keeps asking for."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mnemos.common.shortage import shortage
from mnemos.errors import ConfigError

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'"
)
"""The page's content security policy: it may load itself and its data alone."""


@dataclass
class Latest:
    """A value that is made again when something has changed; at most a fifth of the time is spent on that."""

    make: Callable[[], dict[str, Any]]
    signature: Callable[[], object]
    """Returns a value that changes when the result of `make` would."""

    _body: bytes = b""
    _tag: str = ""
    _of: object = None
    _not_before: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self) -> tuple[bytes, str]:
        """The value as JSON, and a tag that changes with it."""
        with self._lock:
            now = self.signature()
            if not self._body or (now != self._of and time.monotonic() >= self._not_before):
                begin = time.monotonic()
                self._body = json.dumps(self.make(), separators=(",", ":"), allow_nan=False).encode()
                self._tag = f'"{hashlib.sha256(self._body).hexdigest()[:16]}"'
                self._of = now
                # Reading many runs takes long, and most of a core is to be left to the training.
                self._not_before = time.monotonic() + 4 * (time.monotonic() - begin)
            return self._body, self._tag


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the page and for its data, and refuses all others."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the page for /, and its data for /data.json."""
        host = self.headers.get("Host", "").partition(":")[0]
        if host not in ("127.0.0.1", "localhost"):
            # DNS rebinding: a web page whose name resolves to this machine must not read the report.
            return self._answer(HTTPStatus.FORBIDDEN, b"only for this machine", "text/plain")
        path = self.path.partition("?")[0]
        if path == "/":
            return self._answer(HTTPStatus.OK, self.server.page().encode(), "text/html; charset=utf-8")
        if path == "/data.json":
            body, tag = self.server.data.get()
            if self.headers.get("If-None-Match") == tag:
                return self._answer(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag)
            return self._answer(HTTPStatus.OK, body, "application/json", tag)
        return self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here", "text/plain")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the terminal shows the runs."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, page: Callable[[], str], data: Latest) -> None:
        self.page, self.data = page, data
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that has closed its connection; print a sentence if memory or disk runs out."""
        error = sys.exception()
        sentence = shortage(error) if error else None
        if sentence:
            sys.stderr.write(f"{sentence}\n")
        elif not isinstance(error, ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serve(page: Callable[[], str], data: Latest, port: int = 0) -> Iterator[str]:
    """Serve on the loopback address until the block ends, and yield the URL; port 0 takes a free port."""
    try:
        server = _Server(port, page, data)
    except OSError as error:
        raise ConfigError(f"found {port}; it can't be used ({error.strerror})", "port") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="report", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        server.server_close()
        raise
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
