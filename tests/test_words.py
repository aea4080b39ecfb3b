"""The sources speak the words of the glossary: one word for each thing, and none that says nothing."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mnemos

SOURCES = Path(mnemos.__file__).parent
FILLERS = re.compile(r"\b(so many|somebody|nobody|whoever|what becomes of|goes by)\b", re.IGNORECASE)
"""Words that leave a reader guessing."""
LEFT_OUT = {
    "Cast", "Exam", "Flight", "Ration", "Shelves", "Staggered", "Tally", "Traffic", "believed", "deal",
    "settle", "survey", "taught", "voices",
}  # fmt: skip
"""Names that have been replaced: docs/glossary.md has the words to use."""
VAGUE = {"number", "one", "place", "which", "who"}
"""Names that say nothing of what a parameter or a loop variable stands for."""
LONGEST = 350
"""Lines of a module."""
ROOT = Path(__file__).parents[1]
RIDDLES = re.compile(
    "|".join(
        [
            r"can be (produced|made) again",
            r"loop one writes first",
            r"tables of the papers again",
            r"Nothing else had to be said",
            r"carry out all its code",
            r"data that lie\b",
            r"for who has\b",
            r"(question|attempt)[^.|]{0,40} given up",
            r"would be others than",
            r"answers have a difference",
            r"heard of by others",
            r"to be there still",
            r"how much likelier",
            r"Who must not trust",
            r"have nothing to say",
            r"of what is more than noise",
            r"[Ww]ho isn't heard of",
            r"\b(clients|steps|epochs|bytes|seconds|milliseconds|once) a round\b",
            r"\b(logit|row|bar) a (client|class)\b",
            r"^#+ (Carry out|What comes of it|What goes wrong|Who dies|Whom it trusts|Have it back)$",
        ]
    ),
    re.MULTILINE | re.IGNORECASE,
)
"""Phrases that readers had to read twice; plain ones have replaced them."""


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(SOURCES.rglob("*.py")):
        yield str(path.relative_to(SOURCES)), ast.parse(path.read_text())


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What is defined or used by name, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def loop_variables(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Parameters, and variables of loops and comprehensions, with their line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.For | ast.comprehension):
            targets = (part for part in ast.walk(node.target) if isinstance(part, ast.Name))
            yield from ((part.id, part.lineno) for part in targets)


def test_no_filler_words():
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {text.strip()}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line, text in enumerate(path.read_text().splitlines(), 1)
        if FILLERS.search(text)
    ]
    assert not found


def test_no_name_that_was_left_out():
    found = [
        f"{file}:{line}: {name}"
        for file, tree in trees()
        for name, line in names(tree)
        if name.lstrip("_") in LEFT_OUT
    ]
    assert not found


def test_parameters_and_loop_variables_have_telling_names():
    found = [
        f"{file}:{line}: {name}"
        for file, tree in trees()
        for name, line in loop_variables(tree)
        if name in VAGUE
    ]
    assert not found


def test_a_module_fits_in_the_head():
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES.rglob("*.py")}
    assert not {path: length for path, length in lengths.items() if length > LONGEST}


def test_documents_are_plain_english():
    """The documents' prose, and what the command line and the report say, have none of the riddles."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    said = [
        path for room in ("cli", "display", "deployment", "report") for path in (SOURCES / room).rglob("*.py")
    ]
    texts = {
        path: re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for path in documents
    }
    texts |= {path: re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in said}
    found = [f"{path.name}: {hit[0]}" for path, text in texts.items() for hit in RIDDLES.finditer(text)]
    assert not found
