"""Renews what is generated from the registries: `python tools/reference.py`, after a part has changed.

It writes the index of parts (src/mnemos/lookup/index.json), the list of the commands' options for shell
completion (src/mnemos/cli/commands.json), and the reference in the documents (docs/api/options.md). With
`--check` it writes nothing, and ends with 1 if a file would change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mnemos.cli.completion import COMMANDS_FILE, commands_text
from mnemos.lookup.index import INDEX, Index, registries
from mnemos.lookup.info import OptionInfo, PartInfo
from mnemos.lookup.kinds import KINDS
from mnemos.lookup.text import shown

PAGE = Path(__file__).parents[1] / "docs/api/options.md"
COMMAND = "python tools/reference.py"

_HEAD = f"""# Every part and its options

All names that an experiment can use, with their options. `mnemos list` and `mnemos show NAME` have the same in a terminal, `mnemos.parts()` and `mnemos.describe("NAME")` in Python. This page is generated from the code: `{COMMAND}` renews it.

A part is chosen by its name, and its options are set by dotted names: `partition=shards partition.per_client=3`. Which parts can be combined is in [Experiment files](../guides/experiments.md) and in the [index of methods](../methods/README.md).
"""  # noqa: E501

_TABLE = ["| option | takes | default | meaning |", "|---|---|---|---|"]
_COMMON = "fedavg"
"""The method whose options all others have, too."""


def pages(index: Index) -> dict[Path, str]:
    """The text of every generated file."""
    return {INDEX: index.write(), COMMANDS_FILE: commands_text(), PAGE: "\n".join(reference(index))}


def reference(index: Index) -> Iterator[str]:
    """The lines of the page in the documents."""
    yield _HEAD
    yield from ["## An experiment", "", *_TABLE, *_rows(index.fields), ""]
    for name, kind in KINDS.items():
        parts = [part for part in index.parts if part.kind == name]
        yield from [
            f"## {name.capitalize().replace('-', ' ')}",
            "",
            f"{kind.line} Chosen by `{kind.use}`.",
            "",
        ]
        common = next((part.options for part in parts if name == "methods" and part.name == _COMMON), ())
        for part in parts:
            yield from _section(part, common if part.name != _COMMON else ())


def _section(part: PartInfo, common: tuple[OptionInfo, ...]) -> Iterator[str]:
    """The lines about a part; `common` are options that its table leaves out: they are described before."""
    yield from [f"### `{part.name}` ({part.one})", "", _text(part.line), ""]
    own = [option for option in part.options if option not in common]
    if own:
        yield from [*_TABLE, *_rows(own), ""]
    if common:
        yield f"Other options as those of `{_COMMON}`." if own else f"Its options are those of `{_COMMON}`."
        yield ""
    if part.card:
        yield f"Card: [{Path(part.card).stem}](../{part.card.removeprefix('docs/')})."
        yield ""


def _rows(options: Iterable[OptionInfo], prefix: str = "") -> Iterator[str]:
    """A row of a table for each option, and for those inside it."""
    for option in options:
        group = option.options and not option.takes.endswith("null")
        default = "" if group else "none: must be given" if option.required else f"`{shown(option.default)}`"
        cells = [f"`{prefix}{option.name}`", _text(option.takes), default, _text(option.description)]
        yield f"| {' | '.join(cells)} |"
        yield from _rows(option.options, f"{prefix}{option.name}.")


def _text(words: str) -> str:
    """Text in which nothing is a sign of Markdown's, except for code."""
    parts = words.split("`")
    for place in range(0, len(parts), 2):  # outside of code
        for sign in "\\*_|<>[]":
            parts[place] = parts[place].replace(sign, f"\\{sign}")
    for place in range(1, len(parts), 2):
        parts[place] = parts[place].replace("|", "\\|")
    return "`".join(parts)


def main() -> int:
    """Write the files, or compare them; the exit code."""
    texts = pages(registries())
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in changed:
            sys.stderr.write(f"{path} is out of date: run {COMMAND}\n")
        return 1 if changed else 0
    for path, text in texts.items():
        path.write_text(text)  # all of them: what has no changes is newer than the sources, too
    return 0


if __name__ == "__main__":
    sys.exit(main())
