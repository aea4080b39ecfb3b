"""Finding a part or a field by the word that a user types: a name, `kind/name`, a dotted field, a guess."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mnemos.errors import ConfigError, allowed, did_you_mean
from mnemos.lookup.index import Index, index
from mnemos.lookup.info import FieldInfo, OptionInfo, PartInfo, Parts
from mnemos.lookup.kinds import KINDS, Kind, kind_of


def parts(kind: str | None = None) -> Parts:
    """All parts, or those of a kind such as `losses`: Mnemos's own and those of installed plug-ins.

    Printed, they are a table. Each has `name`, `line` (what it does), `options`, `example`, `origin`.
    """
    known = index()
    kinds = list(KINDS) if kind is None else [_kind(kind).name]
    return Parts(part for name in kinds for part in known.of_kind(name))


def describe(name: str) -> PartInfo | FieldInfo:
    """What is known of a part or of a field of an experiment; printed, it is a page of text.

    `name` is a part's name (`scaffold`), `kind/name` if several kinds have such a part
    (`corrections/scaffold`), an import path (`package.module:Class`), or the dotted name of a field
    (`method.server.momentum`). A ConfigError if nothing has this name.
    """
    known = index()
    if all(option.name != name for option in known.fields):  # a field is asked for more than its namesake
        found = _part(name, known)
        if found is not None:
            return found
    path = known.guesses.get(name, name)
    of = tuple(field_options(path, known))
    if of:
        return FieldInfo(path, of, tuple(f"{part.kind}/{name}" for part in known.named(name)))
    options = tuple(_anywhere(name, known))
    if options:
        return FieldInfo(name, options)
    raise ConfigError(_unknown(name, known))


def _kind(word: str) -> Kind:
    kind = kind_of(word)
    if kind is None:
        hint = did_you_mean(word, [*KINDS, *(kind.one for kind in KINDS.values())])
        raise ConfigError(f"there is no kind of parts '{word}'; {hint}{allowed(KINDS)}")
    return kind


def _part(word: str, known: Index) -> PartInfo | None:
    """The part of a word, with the first kind that has it; None if there is none."""
    before, slash, name = word.partition("/")
    if slash and ":" not in word:
        kind = _kind(before)
        of_kind = {part.name: part for part in known.of_kind(kind.name)}
        if name not in of_kind:
            hint = did_you_mean(name, of_kind)
            raise ConfigError(f"there is no {kind.one} '{name}'; {hint}{allowed(of_kind)}")
        return _loaded(of_kind[name])
    if ":" in word:
        return _by_path(word)
    found = known.named(word) or known.named(word.lower())
    return _loaded(found[0]) if found else None


def _loaded(part: PartInfo) -> PartInfo:
    """The part; a plug-in's class is imported to say more of it."""
    if part.origin == "mnemos":
        return part
    from mnemos.lookup.registered import part_info

    found = part_info(part.kind, KINDS[part.kind].load()[part.name], part.origin)
    return replace(found, also=part.also)


def _by_path(path: str) -> PartInfo:
    """Your own class, imported by its path."""
    import inspect

    from mnemos.common.imports import import_path
    from mnemos.common.options import Part
    from mnemos.lookup.registered import part_info

    found = import_path(path, "part")
    for kind in KINDS.values():
        registry = kind.load()
        if isinstance(found, type) and issubclass(found, Part) and issubclass(found, registry.base):
            return part_info(kind.name, registry[path], inspect.getfile(found))
    raise ConfigError(
        f"'{path}' is not a part; {allowed(kind.load().base.__name__ for kind in KINDS.values())}"
    )


def field_options(path: str, known: Index) -> Iterator[tuple[str, OptionInfo]]:
    """The options that a dotted name can mean, each with the part that has it as `kind/name`, or empty.

    Which they are depends on the parts that are chosen on the way: `method.server.momentum` belongs to some
    server steps and not to others.
    """
    *way, last = path.split(".")
    owners: list[tuple[str, tuple[OptionInfo, ...]]] = [("", known.fields)]
    for step in way:
        entered = (option for _, options in owners for option in options if option.name == step)
        owners = _inside(entered, known)
    seen = set()
    for owner, options in owners:
        for option in options:
            if option.name == last and (owner, option.takes) not in seen:
                seen.add((owner, option.takes))
                yield owner, option


def _inside(options: Iterator[OptionInfo], known: Index) -> list[tuple[str, tuple[OptionInfo, ...]]]:
    """The options inside fields: those of a group, or those of every part that a field can hold."""
    owners: dict[str, tuple[OptionInfo, ...]] = {}
    groups: list[tuple[str, tuple[OptionInfo, ...]]] = []
    for option in options:
        if option.kind:
            owners |= {f"{option.kind}/{p.name}": p.options for p in known.parts if p.kind == option.kind}
        elif option.options and ("", option.options) not in groups:
            groups.append(("", option.options))
    return [*groups, *owners.items()]


def _anywhere(name: str, known: Index) -> Iterator[tuple[str, OptionInfo]]:
    """The options of a name, whatever part has them."""
    for part in known.parts:
        for option in part.options:
            if option.name == name:
                yield f"{part.kind}/{part.name}", option


def _unknown(name: str, known: Index) -> str:
    """A sentence about a name that nothing has."""
    steps = name.split(".")
    right: list[str] = []
    for step in steps if len(steps) > 1 else ():
        below = options_below(".".join(right), known) if right else known.fields
        names = list(dict.fromkeys(option.name for option in below))
        if step not in names and names:
            meant = did_you_mean(step, names)
            where = f" in {'.'.join(right)}" if right else ""
            return f"there is no field '{name}', for there is no '{step}'{where}; {meant}{allowed(names)}"
        right.append(step)
    names = [*(part.name for part in parts()), *(option.name for option in known.fields), *KINDS]
    hint = did_you_mean(name, names)
    return f"there is no part, field or kind '{name}'; {hint}'mnemos list' shows all parts"


def options_below(path: str, known: Index) -> list[OptionInfo]:
    """The options inside the field of a dotted name, whatever part it holds."""
    owners = _inside((option for _, option in field_options(path, known)), known)
    return [option for _, options in owners for option in options]
