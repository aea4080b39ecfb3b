"""Every block of code in the documents runs; what can't is marked in the page, and at least read."""

import ast
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from page import Block, blocks, lines, parts

from mnemos.cli.app import main
from mnemos.experiment.experiment import Experiment
from mnemos.studies.reproduce.names import recipe_names
from mnemos.studies.study import Study
from support.papers_data import write_papers_data
from support.processes import script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = [ROOT / "docs" / "start.md", *(ROOT / "docs" / "tutorials").glob("*.md")]
"""What they print is compared, too: test_pages.py."""
FIGURES = "text"
"""The language of what is no code: a tree of files, a drawing, what was printed."""


def where(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code(page: Path) -> list[Block]:
    return [block for block in blocks(page.read_text()) if block.language != FIGURES]


GUIDES = [page for page in PAGES if page not in TUTORIALS and not all(block.skipped for block in code(page))]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with what guides take for granted, and the papers' data sets."""
    folder, data = tmp_path_factory.mktemp("desk"), tmp_path_factory.mktemp("data")
    done = script(HERE / "desk.py", folder, cwd=folder)
    assert done.code == 0, done.err
    return folder, write_papers_data(data)


@pytest.mark.parametrize("page", GUIDES, ids=where)
def test_a_guides_code_runs(page, desk, tmp_path):
    folder, data = desk
    shutil.copytree(folder, tmp_path / "desk", symlinks=True)
    variables = {"NO_COLOR": "1", "PYTEST_ADDOPTS": "", "MNEMOS_DATA": str(data), "WANDB_MODE": "offline"}
    done = script(HERE / "page.py", page, "--brief", cwd=tmp_path / "desk", **variables)
    assert done.code == 0, done.err


def test_every_block_has_a_language_and_is_found():
    for page in PAGES:
        text, found = page.read_text(), blocks(page.read_text())
        assert 2 * len(found) == len(re.findall(r"^ *```", text, re.MULTILINE)), where(page)
        languages = {block.language for block in found}
        assert languages <= {"python", "sh", "console", "yaml", "text"}, where(page)


def test_every_note_belongs_to_a_block():
    for page in PAGES:
        notes = re.findall(r"^<!-- (?:not run|tested with)", page.read_text(), re.MULTILINE)
        assert len(notes) == sum(bool(block.note) for block in blocks(page.read_text())), where(page)


MAKE = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(words: list[str], show: Callable[[list[str]], None]) -> None:
    """Look at a command that isn't run: what it names is there. (test_links.py knows all of its options.)"""
    match [Path(words[0]).name, *words[1:]]:
        case ["mnemos", "run", *rest] if "…" not in rest:
            show(words)
        case ["mnemos", "compare" | "sweep", file, *_]:
            assert Study.read(yaml.safe_load((ROOT / file).read_text())).cases()
        case ["mnemos", "reproduce", name, *_] if not name.startswith("-"):
            assert name in recipe_names()
        case ["make", target]:
            assert target in MAKE
        case ["python", script, *rest] if script != "-m":
            path = ROOT / script
            file = path / "__main__.py" if path.is_dir() else path
            assert file.is_file()
            sources = "".join(path.read_text() for path in file.parent.glob("*.py"))
            assert all(f'"{word}"' in sources for word in rest if word.startswith("--")), words


@pytest.fixture
def show(monkeypatch, tmp_path, capsys):
    """Has `mnemos run words…` show its experiment, which runs nothing."""
    monkeypatch.chdir(tmp_path)
    Path("experiment.yaml").write_text("data: digits\n")

    def command(words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", [*words, "--show"])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0, capsys.readouterr().err

    return command


SKIPPED = [(page, block) for page in PAGES for block in code(page) if block.skipped]


@pytest.mark.parametrize(("page", "block"), SKIPPED, ids=[f"{where(p)}:{b.line}" for p, b in SKIPPED])
def test_what_is_not_run_is_read(page, block, show):
    match block.language:
        case "python":
            ast.parse(block.text)
        case "yaml":
            for part in parts(block.text):
                assert Study.read(part).cases() if "base" in part else Experiment.parse(part)
        case _:
            for line in lines(block.text):
                read(shlex.split(line, comments=True), show)
