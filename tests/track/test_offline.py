"""Sinks on this machine don't speak to any other."""

import json
import os
import shutil
import socket
import threading

import pytest

from support.processes import script

SINKS = ["csv", "tensorboard", "mlflow", "wandb:mode=offline"]
GUARD = """
import atexit, json, os, sys
# These make MLflow hold its tongue by itself.
unset = ("PYTEST_CURRENT_TEST", "CI", "GITHUB_ACTIONS", "MLFLOW_DISABLE_TELEMETRY", "WANDB_ERROR_REPORTING")
for name in unset:
    os.environ.pop(name, None)
assert not {"mlflow", "wandb", "tensorboard"} & set(sys.modules)
log = open(sys.argv.pop(1), "a", buffering=1)
def guard(event, details):
    if event == "socket.connect" and isinstance(details[1], tuple):
        host = details[1][0]
    elif event == "socket.getaddrinfo":
        host = details[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if host not in (None, "localhost", "127.0.0.1", "::1"):
        log.write(json.dumps([event, str(host)]) + "\\n")
        raise PermissionError(event)
sys.addaudithook(guard)
from mnemos.cli import main
try:
    main()
finally:
    atexit._run_exitfuncs()  # what a library says at the end of a process, which a forked one leaves out
"""


@pytest.fixture
def trap():
    """A proxy on this machine, and the number of those who came to it."""
    visitors = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # it was closed
                    return
                with connection:
                    visitors.append(connection.recv(200))

        thread = threading.Thread(target=listen)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", visitors
        server.shutdown(socket.SHUT_RDWR)
        thread.join(240)


def test_local_sinks_need_no_network(tiny, tmp_path, trap, empty_store):
    """Calls from Python are caught by a guard; W&B's own process would come to the proxy."""
    proxy, visitors = trap
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    none = dict.fromkeys(("no_proxy", "NO_PROXY"), "")
    environment = {**os.environ, **dict.fromkeys((*proxies, "WANDB_BASE_URL"), proxy), **none}
    (tmp_path / "runs").mkdir()
    shutil.copy(empty_store, tmp_path / "runs" / "mlflow.db")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(json.dumps(tiny))
    words = ["run", str(recipe), "--out", str(tmp_path / "runs"), "--json"]
    words += [word for sink in SINKS for word in ("--track", sink)]
    guard = tmp_path / "guard.py"
    guard.write_text(GUARD)
    ended = script(guard, tmp_path / "calls", *words, cwd=tmp_path, **environment)
    assert ended.code == 0, ended.err
    assert "tracking by" not in ended.err
    assert json.loads(ended.out)["status"] == "finished"
    assert (tmp_path / "calls").read_text() == ""
    assert visitors == []
    (folder,) = (tmp_path / "runs").glob("*/")
    assert {"metrics.csv", "tensorboard", "tracking.json", "wandb"} <= {
        path.name for path in folder.iterdir()
    }
