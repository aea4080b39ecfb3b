"""Carries out a Markdown page: its code blocks in order, in this process and in the current folder.

```python                 is executed, all in one namespace
```python title="a.py"    is written to that file, as any other block with a title
```sh                     its lines are commands
```text                   after one of the above: what it prints
```sh no-run, ```yaml, …  are left alone

`python page.py PAGE` fails where the page shows something else than what is printed. With `--update` it
writes what is printed into the page, and what was drawn into the page's images.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from PIL import Image

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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

    @property
    def runs(self) -> bool:
        return self.title is None and self.language in {"python", "sh"}


def blocks(page: str) -> list[Block]:
    """The page's blocks; those marked `no-run` are left out."""
    found = []
    for match in _FENCE.finditer(page):
        title = _TITLE.search(match[2])
        line = page.count("\n", 0, match.start()) + 1
        if "no-run" not in match[2]:
            found.append(Block(match[1], title[1] if title else None, match[3], line, match.span(3)))
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


def execute(block: Block, names: dict[str, object], source: str) -> str:
    """What the block prints."""
    if block.language == "sh":
        return "".join(_command(shlex.split(line, comments=True)) for line in _lines(block.text))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        # Empty lines in front, so that a traceback names the line of the page.
        exec(compile("\n" * block.line + block.text, source, "exec"), names)
    return printed.getvalue()


def _lines(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


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


def carry_out(page: Path, *, update: bool = False) -> list[str]:
    """What of a page isn't as it says."""
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    wrong = []
    changes: list[tuple[Block, str]] = []
    for block in blocks(text):
        where = f"{page.name}, line {block.line}"
        if block.title is not None:
            Path(block.title).write_text(block.text)
        elif block.runs:
            printed = execute(block, names, str(page))
            continue
        elif block.language == "text" and printed is not None and not same(block.text, printed):
            wrong.append(f"{where}: the page shows\n{block.text}\nbut this was printed:\n{printed}")
            changes.append((block, re.sub(r" +$", "", printed.rstrip(), flags=re.MULTILINE) + "\n"))
        printed = None
    for image in images(text):
        if not Path(Path(image).name).is_file():
            wrong.append(f"{page.name}: its code doesn't draw {Path(image).name}")
        elif update:
            (page.parent / image).write_bytes(drawing(Image.open(Path(image).name)))
    if update:
        for block, new in reversed(changes):
            text = text[: block.span[0]] + new + text[block.span[1] :]
        page.write_text(text)
    return wrong


if __name__ == "__main__":
    sys.path.insert(0, "")  # as for `python` and `mnemos`: modules of the current folder are found
    found = carry_out(Path(sys.argv[1]), update="--update" in sys.argv)
    sys.exit("\n".join(found) if found and "--update" not in sys.argv else 0)
