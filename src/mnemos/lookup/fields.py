"""Completing dotted fields of an experiment and their values."""

from __future__ import annotations

from mnemos.lookup.find import field_options, options_below
from mnemos.lookup.index import Index
from mnemos.lookup.info import OptionInfo
from mnemos.lookup.text import shown

Found = list[tuple[str, str]]
"""Completions, each with a line of help."""


def complete_field(known: Index, word: str, *, values: bool = True) -> Found:
    """What a word such as `method.se` or `method.loss=w` can become, each with a line of help.

    A field that holds others ends in a dot, and one with a value in '='. A completion that is the only one
    is completed further, as a shell puts a space behind it: to the fields inside, or to the values. Without
    `values`, fields are completed and not their values.
    """
    name, equals, value = word.partition("=")
    if equals:
        return _values(known, name, value) if values else []
    before, dot, last = word.rpartition(".")
    options = options_below(before, known) if dot else list(known.fields)
    found: dict[str, str] = {}
    for option in options:
        if option.name.startswith(last):
            path = f"{before}.{option.name}" if dot else option.name
            for end in _ends(option) if values else _plain_ends(option):
                found.setdefault(f"{path}{end}", option.description)
    if len(found) != 1:
        return list(found.items())
    only = next(iter(found))
    further = complete_field(known, only) if values and only.endswith(("=", ".")) else []
    return further or list(found.items())


def _ends(option: OptionInfo) -> list[str]:
    """What follows an option's name: a value, fields inside it, or either."""
    if "list of" in option.takes or not (option.kind or option.options):
        return ["="]
    return ["=", "."] if option.kind else ["."]


def _plain_ends(option: OptionInfo) -> list[str]:
    """The same without values."""
    return ["", "."] if "." in _ends(option) else [""]


def _values(known: Index, name: str, value: str) -> Found:
    """The values of a field that begin as given: names of parts, words, or its default."""
    found: dict[str, str] = {}
    for _, option in field_options(name, known):
        many = "list of" in option.takes
        if option.kind:
            names = {part.name: part.line for part in known.of_kind(option.kind)}
            found |= {f"[{key}]": line for key, line in names.items()} if many else names
        else:
            found |= dict.fromkeys(option.choices, option.description)
            if not option.choices and not option.required and option.default is not None:
                found[shown(option.default)] = option.description
    return [(f"{name}={key}", line) for key, line in found.items() if key.startswith(value)]
