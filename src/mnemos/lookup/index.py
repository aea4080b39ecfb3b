"""The index of all parts: a file in the package, so that looking something up needn't import PyTorch.

`python tools/reference.py` renews it from the registries, together with the reference in the documents. In a
working copy whose sources are newer than the file, the registries themselves are asked. Plug-ins are found by
their entry points, and imported only where more than their names is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from mnemos.common.plugins import package_of, plugins
from mnemos.lookup.info import OptionInfo, PartInfo
from mnemos.lookup.kinds import KINDS

INDEX = Path(__file__).with_name("index.json")
"""The file."""
_PACKAGE = Path(__file__).parents[1]
_SOON = 60.0
"""Seconds by which a source may be newer than the index: a checkout writes its files one after another."""


@dataclass(frozen=True)
class Index:
    """All that can be looked up."""

    parts: tuple[PartInfo, ...]
    """Mnemos's own parts, in the order of kinds and names."""
    fields: tuple[OptionInfo, ...]
    """The fields of an experiment."""
    guesses: Mapping[str, str]
    """Names that are likely to be tried in a wrong place, and the dotted names of the right fields."""

    @classmethod
    def read(cls, text: str) -> Self:
        """The index that `write` made a text of."""
        facts = json.loads(text)
        parts = tuple(map(PartInfo.read, facts["parts"]))
        return cls(parts, tuple(map(OptionInfo.read, facts["fields"])), facts["guesses"])

    def write(self) -> str:
        """The index as JSON."""
        facts: dict[str, Any] = {
            "fields": [asdict(option) for option in self.fields],
            "guesses": dict(self.guesses),
            "parts": [part.facts() for part in self.parts],
        }
        return json.dumps(facts, ensure_ascii=False, indent=1, sort_keys=True) + "\n"

    def of_kind(self, kind: str) -> Iterator[PartInfo]:
        """The parts of a kind, then its plug-ins by name, for which nothing is imported."""
        own = [part for part in self.parts if part.kind == kind]
        yield from own
        for name, points in sorted(plugins(kind).items()):
            if all(part.name != name for part in own):
                packages = " and ".join(sorted({package_of(point) for point in points}))
                line = f"A plug-in, {points[0].value}."
                example = f"mnemos run {KINDS[kind].use.replace('NAME', name)}"
                yield PartInfo(kind, name, line, example=example, origin=packages)

    def named(self, name: str) -> list[PartInfo]:
        """The parts of a name, of all kinds, each with the names of the others."""
        found = [part for kind in KINDS for part in self.of_kind(kind) if part.name == name]
        keys = [f"{part.kind}/{part.name}" for part in found]
        return [
            replace(part, also=tuple(key for key in keys if key != own))
            for part, own in zip(found, keys, strict=True)
        ]


@cache
def index() -> Index:
    """The index: from its file, or from the registries if the file is older than the sources or missing."""
    return registries() if _outdated() else shipped()


@cache
def shipped() -> Index:
    """The index as its file has it, which may be older than the sources of a working copy."""
    return Index.read(INDEX.read_text(encoding="utf-8"))


def registries() -> Index:
    """The index that the registries make, with the cards of the documents where there are some."""
    from mnemos.experiment.experiment import Experiment
    from mnemos.lookup.cards import cards
    from mnemos.lookup.registered import options_of, registered

    known = cards()
    parts = [
        replace(part, card=known.get(f"{kind}/{part.name}", ""))
        for kind in KINDS
        for part in registered(kind)
    ]
    return Index(tuple(parts), options_of(Experiment), Experiment.guesses)


def _outdated() -> bool:
    """Whether this is a working copy whose sources were changed after the index was made."""
    if not INDEX.exists():
        return True
    if not (_PACKAGE.parents[1] / "pyproject.toml").exists():
        return False
    made = INDEX.stat().st_mtime + _SOON
    return any(path.stat().st_mtime > made for path in _PACKAGE.rglob("*.py"))
