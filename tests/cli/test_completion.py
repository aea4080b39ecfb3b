"""Shell completion: what it answers, and what it imports."""

import os
import subprocess
import sys

import click
import pytest
from click.shell_completion import ShellComplete

from mnemos.cli.app import COMMANDS, _command
from mnemos.cli.completion import stand_in


def completed(line: str) -> list[str]:
    """The completions of a line's last word."""
    *args, word = line.split(" ")
    shell = ShellComplete(_command, {}, "mnemos", "_MNEMOS_COMPLETE")
    return [item.value for item in shell.get_completions(args, word)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run --loss w", ["wsm"]),
        ("run --method fedavg", ["fedavg", "fedavgm"]),
        ("run --engine v", ["vmap"]),
        ("run --track m", ["mlflow"]),
        ("run --rou", ["--rounds"]),
        ("run --data dig", ["digits"]),
        ("run method.loss=ws", ["method.loss=wsm"]),
        ("run method.loss = ws", ["wsm"]),  # as Bash splits it
        ("run partition.name=x local.l", ["local.lr=0.05"]),
        ("run guard.enabled =", ["true", "false"]),
        ("show scaff", ["scaffold"]),
        ("show method.serve", ["method.server", "method.server."]),
        ("list los", ["losses"]),
        ("reproduce wsm/table-3", ["wsm/table-3"]),
        ("sh", ["show"]),
        ("federate st", ["status"]),
        ("run --method nothing", []),
    ],
)
def test_words_are_completed(line, found):
    assert completed(line) == found


def test_recipes_and_runs_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("rounds: 3\n")
    run = tmp_path / "runs" / "mlp-fedavg-1"
    run.mkdir(parents=True)
    (run / "experiment.yaml").touch()
    assert completed("run mi") == ["mine.yaml", "min_clients=1"]
    assert completed("resume ru") == ["runs/"]
    assert completed("resume runs/") == ["runs/mlp-fedavg-1"]
    assert completed("resume elsewhere/") == []


def test_every_command_has_a_stand_in():
    for name in COMMANDS:
        assert isinstance(stand_in(name), click.Command)
        assert stand_in(name).params or isinstance(stand_in(name), click.Group)


@pytest.mark.parametrize("words", ["run --method fe", "run method.server.", "resume runs/", "reproduce w"])
def test_the_path_of_a_completion_imports_neither_torch_nor_pandas(words):
    """The whole process of a completion, as a shell starts it; pydantic isn't needed either."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(' '.join({'torch', 'pandas', 'pydantic', 'rich'} & "
        "set(sys.modules))))\n"
        "from mnemos.cli import main\n"
        "main()\n"
    )
    environment = {"_MNEMOS_COMPLETE": "complete_bash", "COMP_WORDS": f"mnemos {words}"}
    environment["COMP_CWORD"] = str(len(words.split()))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
