"""Runs that differ in their seed alone, together; and what to call them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemos.experiment import Experiment
from mnemos.overrides import flatten
from mnemos.report.reading import Note, Reading
from mnemos.runs.study import recorded

_NOT_THE_METHOD = {"seed", "engine", "evaluate", "measures"}
"""Fields that runs of one group may differ in."""

_MOST_NOTES = 3
"""Fields that a label can name; if there are more, it names the run's directory."""

_FIRST = ("data.name", "method.name", "method.loss.name")
"""Fields that groups are ordered by before all others."""

Settings = dict[str, Any]
"""What makes a group, by dotted names."""


@dataclass(frozen=True)
class Group:
    """Runs of one experiment, by seed."""

    id: int
    label: str
    readings: tuple[Reading, ...]
    settings: Settings

    @property
    def experiment(self) -> Experiment:
        """That of the first seed."""
        return self.readings[0].experiment

    @property
    def accuracies(self) -> dict[int, float]:
        """The final accuracies of the runs that have one, by seed."""
        return {one.seed: one.accuracy for one in self.readings if one.accuracy is not None}

    @property
    def diverged(self) -> int:
        """How many runs did not converge."""
        return sum(one.diverged for one in self.readings)

    @property
    def data(self) -> str:
        """The data set, to keep those of different ones apart."""
        return json.dumps(self.experiment.data.dump(), sort_keys=True)


def _furthest(one: Reading) -> Any:
    return one.status.status == "finished", one.rounds, sum(map(len, one.records.values()))


def group(
    readings: Sequence[Reading],
    note: Note,
    *,
    better: Callable[[Reading], Any] = _furthest,
    ordered: bool = True,
) -> list[Group]:
    """Runs by what was run, and by seed; of a seed that was run twice, the `better` run, the first of equals.

    Labels and order are those of a study, if exactly one covers all runs; else labels say what differs, and
    groups are ordered by it (or come in the order of the runs).
    """
    found: dict[str, dict[int, Reading]] = {}
    for one in readings:
        runs = found.setdefault(json.dumps(settings_of(one.experiment), sort_keys=True), {})
        if one.seed in runs:
            one, less = sorted((runs[one.seed], one), key=better, reverse=True)
            note(f"left out: {less.run.path}: same method, settings and seed as {one.run.path}")
        runs[one.seed] = one
    listed = [tuple(runs[seed] for seed in sorted(runs)) for runs in found.values()]
    settings = [settings_of(runs[0].experiment) for runs in listed]
    study = _study_names(listed)
    order = list(range(len(listed)))
    if study is not None:
        names = [name for _, name in study]
        order.sort(key=lambda place: study[place][0])
    else:
        names = labels(settings, [runs[0].run.path for runs in listed])
        if ordered:
            fields = [*_FIRST, *_differing(settings)]
            order.sort(key=lambda place: _rank(settings[place], fields))
    return [Group(place, names[old], listed[old], settings[old]) for place, old in enumerate(order)]


def settings_of(experiment: Experiment) -> Settings:
    """All fields that make a group, flat: `{"local.lr": 0.1, …}`."""
    return dict(flatten(experiment.model_dump(mode="json", exclude=_NOT_THE_METHOD)))


def labels(everything: Sequence[Settings], paths: Sequence[Path]) -> list[str]:
    """Method and loss of each, with what else differs; if that is much, with what tells them apart; and if
    that is much too, with what each has that most haven't."""
    names = [f"{own['method.name']} + {own['method.loss.name']}" for own in everything]
    # The name tells methods apart; what else differs, such as a learning rate, it doesn't tell.
    others = [field for field in _differing(everything) if not field.startswith("method.")]
    order = {field: place for place, field in enumerate(_fields(everything))}
    noted = {}
    for name in set(names):
        alike = [own for own, theirs in zip(everything, names, strict=True) if theirs == name]
        within = [field for field in _differing(alike) if field.startswith("method.")]
        noted[name] = sorted([*within, *others], key=lambda field: order[field])
    if any(len(fields) > _MOST_NOTES for fields in noted.values()):
        few = _telling(everything, names, [field for field in order if field in set().union(*noted.values())])
        noted = dict.fromkeys(noted, few)
    found = []
    for name, own, path in zip(names, everything, paths, strict=True):
        fields = noted[name]
        if len(fields) > _MOST_NOTES:
            fields = [field for field in fields if short(own.get(field)) != _usual(everything, field)]
        notes = [f"{field}={short(own[field])}" for field in fields if field in own]
        found.append(", ".join([name, *notes] if len(fields) <= _MOST_NOTES else [name, path.name]))
    counts = Counter(found)
    return [
        f"{label}, {path}" if counts[label] > 1 else label for label, path in zip(found, paths, strict=True)
    ]


def _usual(everything: Sequence[Settings], field: str) -> str:
    """The value that most have, the first of equals."""
    return Counter(short(own.get(field)) for own in everything).most_common(1)[0][0]


def _telling(everything: Sequence[Settings], names: Sequence[str], fields: Sequence[str]) -> list[str]:
    """Few of the fields that tell all apart: again and again the one that tells most, the first of equals."""
    chosen: list[str] = []
    seen = {field: [short(own.get(field)) for own in everything] for field in fields}
    keys: list[tuple[str, ...]] = [(name,) for name in names]
    while len(set(keys)) < len(keys):
        best = max(fields, key=lambda field: len(set(zip(keys, seen[field], strict=True))))
        if best in chosen:
            return list(fields)  # nothing tells the rest apart
        chosen.append(best)
        keys = [(*key, value) for key, value in zip(keys, seen[best], strict=True)]
    return sorted(chosen, key=list(fields).index)


def _fields(everything: Sequence[Settings]) -> dict[str, None]:
    """All fields, each once, in the order in which they first come."""
    return dict.fromkeys(field for own in everything for field in own)


def _differing(everything: Sequence[Settings]) -> list[str]:
    if not everything:
        return []
    first, missing = everything[0], object()
    return [
        field
        for field in _fields(everything)
        if any(own.get(field, missing) != first.get(field, missing) for own in everything)
    ]


def short(value: object) -> str:
    """A value as a label has it: `1e+12`, not `1000000000000.0`, as long as nothing is lost."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _rank(own: Settings, fields: Sequence[str]) -> list[tuple[bool, float, str]]:
    """What groups are ordered by: the values of some fields; numbers as numbers, and before words."""
    values = [own.get(field) for field in fields]
    return [
        (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value))
        for value in values
    ]


def _study_names(groups: Sequence[Sequence[Reading]]) -> list[tuple[int, str]] | None:
    """Place and name of each group in the one study that has all runs; None if there is no such study."""
    runs = [[one.run.path.resolve() for one in runs] for runs in groups]
    folders = {path.parent for paths in runs for path in paths}
    if len(folders) != 1:
        return None
    found = []
    for path in sorted(folders.pop().glob("*.study.json")):
        variants = recorded(path)
        of: dict[str, list[str]] = {}
        for variant, members in variants.items():
            for member in members:
                of.setdefault(member, []).append(variant)
        if all(path.name in of for paths in runs for path in paths):
            # The same experiment under two names was run once.
            names = [list(dict.fromkeys(name for path in paths for name in of[path.name])) for paths in runs]
            places = [list(variants).index(known[0]) for known in names]
            found.append(list(zip(places, map(" / ".join, names), strict=True)))
    unique = len(found) == 1 and len({name for _, name in found[0]}) == len(groups)
    return found[0] if unique else None
