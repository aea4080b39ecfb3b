"""Carries out a Markdown page: its code blocks in order, in this process and in the current folder.

```python                 is executed, all in one namespace
```python title="a.py"    is written to that file, as any other block with a title
```sh                     its lines are commands
```console                a command after a `$`, and what it prints
```yaml                   is an experiment, or a part of one: two rounds of it
```text                   after one of the above: what it prints

A comment in front of a block says what is different in the tests:

<!-- not run: REASON -->              it is only looked at: words, names and fields exist
<!-- tested with OLD → NEW; … -->     it is executed with these words changed, so that it takes less long

`python page.py PAGE` fails where the page shows something else than what is printed. With `--update` it
writes what is printed into the page, and what was drawn into the page's images. With `--brief` each
command that trains makes two rounds on one thread, and what is printed isn't compared.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import yaml
from PIL import Image

_FENCE = re.compile(
    r"(?:^<!-- (?P<note>(?:not run: |tested with )[^\n]*) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_NUMBER = re.compile(r"-?\d+\.\d+")
_IMAGE = re.compile(r"!\[[^]]*\]\(([^)]+\.png)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    line: int
    span: tuple[int, int]
    """Where the text is in the page."""
    note: str = ""
    """What the comment in front of it says."""

    @property
    def skipped(self) -> bool:
        return self.note.startswith("not run: ")

    @property
    def tested(self) -> str:
        """The text with the changes of its note."""
        if not self.note.startswith("tested with "):
            return self.text
        text = self.text
        for change in self.note.removeprefix("tested with ").split("; "):
            old, _, new = change.partition(" → ")
            if old not in text:
                raise SystemExit(f"line {self.line}: {old!r} is to be changed, and isn't there")
            text = text.replace(old, new)
        return text


def blocks(page: str) -> list[Block]:
    """The page's blocks."""
    found = []
    for match in _FENCE.finditer(page):
        title = _TITLE.search(match["info"])
        line = page.count("\n", 0, match.start("indent")) + 1
        note = match["note"] or ""
        name = title[1] if title else None
        found.append(Block(match["language"], name, match["text"], line, match.span("text"), note))
    return found


def images(page: str) -> list[str]:
    """The figures a page shows."""
    return _IMAGE.findall(page)


def drawing(image: Image.Image) -> bytes:
    """A figure as it is kept: 256 colours are plenty, and a third of the bytes."""
    file = io.BytesIO()
    image.convert("RGB").quantize(256).save(file, "png", optimize=True)
    return file.getvalue()


def same(shown: str, printed: str) -> bool:
    """Whether both say the same, where `…` stands for anything.

    A number with a decimal point may be off by 0.03 or 3 %: another kind of CPU rounds otherwise, and
    training makes more of it.
    """
    wanted, given = " ".join(shown.split()), " ".join(printed.split())
    pieces = re.split(f"({_NUMBER.pattern}|…)", wanted)
    known = {"…": ".*?"} | {piece: f"({_NUMBER.pattern})" for piece in pieces if _NUMBER.fullmatch(piece)}
    match = re.fullmatch("".join(known.get(piece) or re.escape(piece) for piece in pieces), given)
    if match is None:
        return False
    pairs = zip(_NUMBER.findall(wanted), match.groups(), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0.03, abs_tol=0.03) for a, b in pairs)


def execute(block: Block, names: dict[str, object], source: str, *, brief: bool = False) -> str:
    """What the block prints."""
    if block.language == "sh":
        calls = [shlex.split(line, comments=True) for line in lines(block.tested)]
        return "".join(_command(_shortened(words) if brief else words) for words in calls)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # Empty lines in front, so that a traceback names the line of the page.
        exec(compile("\n" * block.line + block.tested, source, "exec"), names)
    return printed.getvalue()


def lines(text: str) -> list[str]:
    """The commands of a block, each on one line."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def _shortened(words: list[str]) -> list[str]:
    """A command that trains with two rounds instead of many, and one thread, so that no engine is timed."""
    if words[:1] != ["mnemos"] or words[1] not in {"run", "compare", "sweep"}:
        return words
    if {"--show", "--dry-run"} & set(words):
        return words
    kept = [word for word in words if not word.startswith("rounds=")]
    if "--rounds" in kept:
        del kept[kept.index("--rounds") : kept.index("--rounds") + 2]
    serial = [] if any("engine" in word for word in kept) else ["engine=serial"]
    # Every worker of a sweep takes seconds to import PyTorch.
    alone = ["--jobs", "1"] if words[1] == "sweep" and "--jobs" not in kept else []
    return [*kept, "rounds=2", *serial, *alone]


def _command(words: list[str]) -> str:
    if not words:
        return ""  # a comment
    here = {"mnemos": _mnemos, "pytest": _pytest}.get(words[0])
    if here is None:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
        code, printed = done.returncode, done.stdout
    else:  # a process of its own would take seconds to import PyTorch again
        with contextlib.redirect_stdout(io.StringIO()) as out, mock.patch.object(sys, "argv", words):
            code = here()
        printed = out.getvalue()
    if code:
        raise SystemExit(f"{shlex.join(words)}: exit code {code}\n{printed}")
    return printed


def _mnemos() -> int:
    from mnemos.cli import main

    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _pytest() -> int:
    import pytest

    return int(pytest.main())


def carry_out(page: Path, *, update: bool = False, brief: bool = False) -> list[str]:
    """What of a page isn't as it says."""
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__", **(_known() if brief else {})}
    printed: str | None = None
    wrong = []
    changes: list[tuple[Block, str]] = []
    for block in blocks(text):
        where = f"{page.name}, line {block.line}"
        before, printed = printed, None
        if block.skipped:
            continue
        if block.title is not None:
            _write(Path(block.title), block.text)
        elif block.language in {"python", "sh"}:
            printed = execute(block, names, str(page), brief=brief)
        elif block.language == "yaml":
            _try_out(block)
        elif block.language == "console":
            command, shown = block.text.removeprefix("$ ").split("\n", 1)
            given = _command(shlex.split(command))
            if not same(shown, given):
                wrong.append(f"{where}: the page shows\n{shown}\nbut this was printed:\n{given}")
        elif block.language == "text" and before is not None and not brief and not same(block.text, before):
            wrong.append(f"{where}: the page shows\n{block.text}\nbut this was printed:\n{before}")
            changes.append((block, re.sub(r" +$", "", before.rstrip(), flags=re.MULTILINE) + "\n"))
    for image in images(text) if not brief else []:
        if not Path(Path(image).name).is_file():
            wrong.append(f"{page.name}: its code doesn't draw {Path(image).name}")
        elif update:
            (page.parent / image).write_bytes(drawing(Image.open(Path(image).name)))
    if update:
        for block, new in reversed(changes):
            text = text[: block.span[0]] + new + text[block.span[1] :]
        page.write_text(text)
    return wrong


def _known() -> dict[str, object]:
    """What guides take for granted: the package, and a run."""
    import mnemos

    return {"mnemos": mnemos, "run": mnemos.Run(Path("runs/whole"))}


def _write(path: Path, text: str) -> None:
    """Write a file that a page shows; what belongs to the package is found as if it were there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if path.parts[0] == "src":
        package = importlib.import_module(".".join(path.parent.parts[1:]))
        package.__path__.append(str(path.parent.resolve()))


def parts(text: str) -> list[dict[str, object]]:
    """What a YAML block describes: one experiment or study, or one with each of several lines."""
    alternatives = [line for line in text.splitlines() if line.strip()]
    keys = [line.split(":")[0] for line in alternatives]
    if len(set(keys)) == 1 and len(keys) > 1:
        return [yaml.safe_load(line) for line in alternatives]
    return [yaml.safe_load(text)]


def _try_out(block: Block) -> None:
    """Two rounds of what a YAML block describes; of a study, its experiments are read."""
    import mnemos
    from mnemos.studies.study import Study

    for part in parts(block.tested):
        if "base" in part:
            assert Study.read(part).cases()
        else:
            mnemos.run({**part, "rounds": 2, "engine": "serial"})


if __name__ == "__main__":
    sys.path.insert(0, "")  # as for `python` and `mnemos`: modules of the current folder are found
    found = carry_out(Path(sys.argv[1]), update="--update" in sys.argv, brief="--brief" in sys.argv)
    sys.exit("\n".join(found) if found and "--update" not in sys.argv else 0)
