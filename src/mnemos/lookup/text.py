"""Parts and fields as text for a terminal, wrapped to its width."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from mnemos.lookup.info import FieldInfo, OptionInfo, PartInfo
from mnemos.lookup.kinds import KINDS


def width() -> int:
    """The columns of the terminal, 100 at most, for lines longer than that are hard to read; 80 in a pipe."""
    return min(shutil.get_terminal_size().columns, 100) if sys.stdout.isatty() else 80


def kinds_text(counts: dict[str, int]) -> str:
    """All kinds of parts, with the number of parts of each."""
    rows = [(name, f"{kind.line} ({counts[name]})") for name, kind in KINDS.items()]
    return table(rows) + "\n\nnext: mnemos list KIND, such as mnemos list losses; mnemos show NAME"


def list_text(parts: Sequence[PartInfo]) -> str:
    """Parts in a table for each kind."""
    blocks = []
    for kind, group in groupby(parts, key=lambda part: part.kind):
        rows = [(part.name, _line(part)) for part in group]
        blocks.append(f"{kind}: {KINDS[kind].line}\n{table(rows)}")
    return "\n\n".join(blocks)


def _line(part: PartInfo) -> str:
    return part.line if part.origin == "mnemos" else f"{part.line} [{part.origin}]"


def part_text(part: PartInfo) -> str:
    """All about a part."""
    blocks = [_wrap(f"{part.name} ({part.one}): {part.line}")]
    if part.text:
        blocks.append(_paragraphs(part.text))
    if part.options:
        blocks.append("options:\n" + options_text(part.options))
    facts = [("example:", part.example)]
    if part.card:
        facts.append(("card:", part.card))
    if part.origin != "mnemos":
        facts.append(("from:", part.origin))
    if part.also:
        facts.append(("also:", "; ".join(f"mnemos show {key}" for key in part.also)))
    blocks.append(table(facts))
    return "\n\n".join(blocks)


def options_text(options: Iterable[OptionInfo], indent: str = "  ") -> str:
    """A line or two for each option: its name, what it takes, its default, and what it means."""
    lines = []
    for option in options:
        head = f"{option.name}: {facts_of(option)}"
        lines.append(_wrap(head, indent, indent + "    "))
        if option.description:
            lines.append(_wrap(option.description, indent + "    "))
        if option.options:
            lines.append(options_text(option.options, indent + "    "))
    return "\n".join(lines)


def facts_of(option: OptionInfo) -> str:
    """What an option takes, and its default."""
    if option.options and not option.takes.endswith("null"):
        return option.takes
    if option.required:
        return f"{option.takes}; no default"
    return f"{option.takes}; default {shown(option.default)}"


def shown(value: Any) -> str:
    """A default as it can be typed."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def field_text(field: FieldInfo) -> str:
    """All about a field: what it takes, for each part that has it."""
    blocks = []
    alike: dict[str, list[str]] = {}
    for owner, option in field.found:
        alike.setdefault(_field_block(option), []).append(owner)
    for block, owners in alike.items():
        of = ", ".join(filter(None, owners))
        blocks.append(f"{_wrap(field.path + (f', an option of {of}' if of else ''))}\n{block}")
    if field.also:
        blocks.append("also: " + "; ".join(f"mnemos show {key}" for key in field.also))
    return "\n\n".join(blocks)


def _field_block(option: OptionInfo) -> str:
    """What a field takes and means, indented."""
    lines = [_wrap(facts_of(option), "  ")]
    if option.description:
        lines.append(_wrap(option.description, "  "))
    if option.options:
        lines.append(options_text(option.options))
    return "\n".join(lines)


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Names at the left, and texts beside them, wrapped."""
    room = max((len(name) for name, _ in rows), default=0)
    return "\n".join(
        _wrap(f"{name:{room}}  {text}", "  ", " " * (room + 4)) if text else f"  {name}"
        for name, text in rows
    )


def _wrap(text: str, first: str = "", rest: str | None = None) -> str:
    return textwrap.fill(
        text,
        width(),
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def _paragraphs(text: str) -> str:
    """A docstring's paragraphs and the items of its lists, wrapped; formulas and tables keep their lines."""
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("- "):
            items = [" ".join(item.split()) for item in f"\n{block}".split("\n- ")[1:]]
            blocks.append("\n".join(_wrap(item, "- ", "  ") for item in items))
        elif block.startswith((" ", "|")):
            blocks.append(block)
        else:
            blocks.append(_wrap(" ".join(block.split())))
    return "\n\n".join(blocks)
