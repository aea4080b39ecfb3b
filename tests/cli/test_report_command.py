"""`mnemos report`: what it writes, what it says, and one sentence for what can't be done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import mnemos
from mnemos.report.panel import panels

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from synthetic import overall, write_run


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # `main` does so too; this puts it back
    return tmp_path


def two_runs() -> None:
    for seed, value in ((0, 0.5), (1, 0.6)):
        rows = overall("validation_accuracy", {10: value})
        write_run(Path(f"runs/{seed}"), {"seed": seed}, rows=rows, accuracy=value)


def test_the_page(command) -> None:  # type: ignore[no-untyped-def]
    two_runs()
    ended = command("report runs")
    size = Path("report.html").stat().st_size
    assert ended.out == f"report:  report.html ({size / 1e3:.0f} kB; 2 runs in 1 group)\n"
    assert ended.err == ""
    assert r'"t":"55.0 \u00b1 7.1 %"' in Path("report.html").read_text()


def test_without_words_it_takes_the_folder_where_runs_are(command) -> None:  # type: ignore[no-untyped-def]
    assert command("report", 2).err == "error: runs: there is no such folder\n"
    two_runs()
    assert "2 runs in 1 group" in command("report").out


def test_figures_tables_and_title(command) -> None:  # type: ignore[no-untyped-def]
    two_runs()
    found = command("report runs/0 runs -o deep/er/a.html --figures f --tables t --title 'A & B' --json").json
    assert (found["status"], found["report"], found["runs"], found["groups"]) == (
        "finished",
        "deep/er/a.html",
        2,
        1,
    )
    assert found["bytes"] == Path("deep/er/a.html").stat().st_size
    assert "<title>A &amp; B</title>" in Path("deep/er/a.html").read_text()
    assert "f/curves.png" in found["figures"]
    assert {"t/summary.md", "t/summary.csv", "t/summary.tex"} <= set(found["tables"])
    assert all(Path(path).stat().st_size for path in found["figures"] + found["tables"])
    assert (
        command("report runs --tables t").out.splitlines()[-1] == f"tables:  t ({len(found['tables'])} files)"
    )


def test_damaged_runs_are_left_out(command) -> None:  # type: ignore[no-untyped-def]
    two_runs()
    Path("runs/0/status.json").write_text("{")
    ended = command("report runs --json")
    note = "left out: runs/0, which can't be read (runs/0/status.json: it is damaged)"
    assert ended.err == f"{note}\n"
    assert (ended.json["runs"], ended.json["left_out"]) == (1, [note])
    Path("runs/1/status.json").write_text("{")
    ended = command("report runs", 3)
    assert ended.err == (
        "error: none of 2 runs can be read; the first: runs/0, which can't be read "
        "(runs/0/status.json: it is damaged)\n"
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("nowhere", "nowhere: there is no such folder"),
        ("empty", "empty: there are no runs here"),
        ("runs -o a.pdf", "out: found 'a.pdf'; allowed: .htm, .html"),
        ("runs -o a.html", "out: found 'a.html', which is a folder; expected a file"),
        ("runs -o file/a.html", "out: found 'file/a.html'; file is not a folder"),
        ("runs --figures file", "figures: found 'file'; file is a file, and a folder is expected"),
        ("runs --tables file", "tables: found 'file'; file is a file, and a folder is expected"),
    ],
)
def test_one_sentence(command, line: str, sentence: str) -> None:  # type: ignore[no-untyped-def]
    two_runs()
    for folder in ("empty", "a.html"):
        Path(folder).mkdir()
    Path("file").touch()
    ended = command(f"report {line}", 2)
    assert ended.err == f"error: {sentence}\n"
    assert not Path("report.html").exists()


def test_a_place_that_cannot_be_written(command, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    two_runs()

    def full(*_args: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnemos.report.write.write_atomically", full)
    ended = command("report runs", 2)
    assert ended.err == "error: report.html: the report can't be written (No space left on device)\n"


def test_in_python_with_real_runs(tiny: dict[str, object]) -> None:
    """A run as it really is shows in every panel but those for several rates or groups."""
    measured = {"evaluate.forgetting": 2, "measures": ["class-accuracy", "client-accuracy", "personalised"]}
    run = mnemos.run(tiny, measured)
    written = mnemos.write_report(run.path, "a.html")
    html = written.page.read_text()
    begin = html.index('<script id="data" type="application/json">') + 42
    data = json.loads(html[begin : html.index("</script>", begin)])
    missing = set(panels.names()) - {panel["id"] for panel in data["panels"]}
    assert missing == {
        "advice", "clock", "continual", "left-out", "owners", "pivot", "privacy", "ranks", "robustness",
        "significance", "task-forgetting", "timeline", "weights", "why",
    }  # fmt: skip
    assert (written.runs, written.notes) == (1, [])
