"""What documents point at exists: files, headings, commands, options, fields."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from mnemos.cli.app import COMMANDS, load
from mnemos.experiment.experiment import Experiment
from mnemos.studies.study import Study

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb")]
LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def text(path: Path) -> str:
    """A document's Markdown; of a notebook, that of its cells."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def prose(markdown: str) -> str:
    """A document without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", markdown))


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings, as code hosts and the site make them."""
    found = re.findall(r"^#+ (.*)$", FENCE.sub("", text(path)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in found}


def broken(document: Path) -> list[str]:
    """The links of a document that lead nowhere."""
    found = []
    for link in LINK.findall(prose(text(document))):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        there = target.is_relative_to(ROOT) and target.exists()
        if not there or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            found.append(link)
    return found


def commands(markdown: str) -> list[list[str]]:
    """The calls of mnemos in a document's code, in words."""
    lines = "\n".join(code for language, code in FENCE.findall(markdown) if language in {"", "sh"})
    calls = re.findall(r"^mnemos .*$", lines.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(call, comments=True)[1:] for call in calls]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    assert broken(document) == []


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "# One thing\n[a](page.md#one-thing) [b](page.md#two) [c](no.md) `[d](no.md)` [e](#one-thing)"
    )
    assert broken(page) == ["page.md#two", "no.md"]


def test_commands_and_options_exist():
    known = {}
    for name in COMMANDS:
        command = load(name)
        inner = getattr(command, "commands", None)
        known |= {name: command} if inner is None else {f"{name} {word}": one for word, one in inner.items()}
    seen = set()
    for document in DOCUMENTS:
        for name, *words in commands(text(document)):
            if name in ("--install-completion", "--version"):  # of mnemos itself
                continue
            if name not in known and words:
                name = f"{name} {words[0]}"
            assert name in known, f"{document.name}: there is no command {name}"
            options = {option for parameter in known[name].params for option in parameter.opts}
            options |= {option for parameter in known[name].params for option in parameter.secondary_opts}
            given = {word.split("=")[0] for word in words if word.startswith("-")} - {"--help"}
            assert given <= options, f"{document.name}: {name} has no {given - options}"
            seen.add(name)
    assert seen == set(known), "every command is shown somewhere"


def test_experiments_in_documents_are_valid():
    """In README a short one, in the guide one with every field and its default."""
    [(_, short)] = [block for block in FENCE.findall(text(ROOT / "README.md")) if block[0] == "yaml"]
    assert Experiment.parse(yaml.safe_load(short)).rounds == 300
    [(_, full), *_] = FENCE.findall(text(ROOT / "docs/guides/experiments.md"))
    given = yaml.safe_load(full)
    assert Experiment.parse(given) == Experiment()
    assert given == yaml.safe_load(Experiment().to_yaml())


def test_studies_in_the_guide_are_valid():
    files = [
        code for language, code in FENCE.findall(text(ROOT / "docs/guides/sweeps.md")) if language == "yaml"
    ]
    assert [len(Study.read(yaml.safe_load(file)).cases()) for file in files] == [18, 6, 6, 12]
