"""Groups of runs that differ in their seed alone, and the labels of groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemos.experiment.experiment import Experiment
from mnemos.experiment.overrides import flatten
from mnemos.report.reading import Note, RunReading
from mnemos.studies.study import recorded

_NOT_THE_METHOD = {"seed", "engine", "evaluate", "measures", "checkpoints"}
"""Fields in which the runs of a group may differ."""

_MOST_NOTES = 3
"""A label names this many fields at most; if more are needed, it names the run's directory."""

_FIRST = ("data.name", "method.name", "method.loss.name")
"""Fields by which groups are ordered first."""

Settings = dict[str, Any]
"""The fields that the runs of a group have in common, by dotted name."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of the same experiment with different seeds."""

    id: int
    label: str
    readings: tuple[RunReading, ...]
    settings: Settings

    @property
    def experiment(self) -> Experiment:
        """The experiment of the first seed."""
        return self.readings[0].experiment

    @property
    def accuracies(self) -> dict[int, float]:
        """The final accuracies of the runs that have one, by seed."""
        return {reading.seed: reading.accuracy for reading in self.readings if reading.accuracy is not None}

    @property
    def diverged(self) -> int:
        """How many runs did not converge."""
        return sum(reading.diverged for reading in self.readings)

    @property
    def data(self) -> str:
        """A text that is equal for groups with the same data set."""
        return json.dumps(self.experiment.data.dump(), sort_keys=True)


def _furthest(reading: RunReading) -> Any:
    """A key that is larger for a run that is finished, or else has gone further."""
    return reading.status.status == "finished", reading.rounds, sum(map(len, reading.records.values()))


def group(
    readings: Sequence[RunReading],
    note: Note,
    *,
    better: Callable[[RunReading], Any] = _furthest,
    ordered: bool = True,
) -> list[RunGroup]:
    """Group runs that differ in their seed alone.

    Of a seed that was run twice, the run with the larger `better` is used (the first of equals), and `note`
    is called with a sentence about the other. Labels and order are those of a study, if exactly one study
    covers all runs. Else labels say what differs, and groups are ordered by that if `ordered`, or come in the
    order of the runs.
    """
    found: dict[str, dict[int, RunReading]] = {}
    for reading in readings:
        runs = found.setdefault(json.dumps(_settings(reading), sort_keys=True), {})
        if reading.seed in runs:
            reading, less = sorted((runs[reading.seed], reading), key=better, reverse=True)
            note(f"left out: {less.run.path}: same method, settings and seed as {reading.run.path}")
        runs[reading.seed] = reading
    listed = [tuple(runs[seed] for seed in sorted(runs)) for runs in found.values()]
    settings = [_settings(runs[0]) for runs in listed]
    study = _study_names(listed)
    order = list(range(len(listed)))
    if study is not None:
        names = [name for _, name in study]
        order.sort(key=lambda index: study[index][0])
    else:
        names = labels(settings, [runs[0].run.path for runs in listed])
        if ordered:
            fields = [*_FIRST, *_differing(settings)]
            order.sort(key=lambda index: _rank(settings[index], fields))
    return [RunGroup(index, names[old], listed[old], settings[old]) for index, old in enumerate(order)]


def settings_of(experiment: Experiment) -> Settings:
    """The settings that the runs of a group have in common, by dotted name: `{"local.lr": 0.1, …}`.

    Data is called what run folders call it: by the name of its file.
    """
    settings = dict(flatten(experiment.model_dump(mode="json", exclude=_NOT_THE_METHOD)))
    return {**settings, "data.name": experiment.data.title}


def _settings(reading: RunReading) -> Settings:
    """The settings of a run. Those of a branch say where it began, and who stays out: `branch`."""
    settings, parent = settings_of(reading.experiment), reading.parent
    if not parent:
        return settings
    words = [f"round {parent.get('round')}"]
    without = parent.get("without")
    if without:
        words.append(f"without {', '.join(map(str, without))}")
        settings["faults"] = _without_absent(settings["faults"], without)
    return {**settings, "branch": " ".join(words)}


def _without_absent(faults: Sequence[Settings], without: Sequence[int]) -> list[Settings]:
    """Faults without the last of the kind `absent` with these clients, which is what a branch adds."""
    kept = list(faults)
    for index in reversed(range(len(kept))):
        if kept[index].get("name") == "absent" and kept[index].get("who") == sorted(set(without)):
            del kept[index]
            break
    return kept


def no_code(experiment: Experiment) -> str:
    """A clause: why something can't be computed from an experiment that names code by import path."""
    return f"that takes {', '.join(experiment.not_imported)}, and a report imports no code"


def labels(everything: Sequence[Settings], paths: Sequence[Path]) -> list[str]:
    """A label for each group: its method and loss, and the fields in which it differs from others.

    If these are more than `_MOST_NOTES`, the label has a few fields that tell all groups apart; if these are
    still more, those in which the group differs from most; and if these are more, the run's directory.

    `everything` are the groups' settings, `paths` the directories of their first runs.
    """
    names = [f"{own['method.name']} + {own['method.loss.name']}" for own in everything]
    noted = _noted_fields(everything, names)
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


def _noted_fields(everything: Sequence[Settings], names: Sequence[str]) -> dict[str, list[str]]:
    """The fields that labels name beside the name of method and loss, by that name.

    Fields of the method differ between methods anyway, so they count only if they differ within a name.
    """
    others = [field for field in _differing(everything) if not field.startswith("method.")]
    if "data.path" in others and _names_say_it(everything):
        others.remove("data.path")
    order = {field: index for index, field in enumerate(_fields(everything))}
    noted = {}
    for name in set(names):
        alike = [own for own, theirs in zip(everything, names, strict=True) if theirs == name]
        within = [field for field in _differing(alike) if field.startswith("method.")]
        noted[name] = sorted([*within, *others], key=lambda field: order[field])
    if all(len(fields) <= _MOST_NOTES for fields in noted.values()):
        return noted
    few = _telling(everything, names, [field for field in order if field in set().union(*noted.values())])
    return dict.fromkeys(noted, few)


def _names_say_it(everything: Sequence[Settings]) -> bool:
    """Whether data with another path has another name, too, so that a label needs no path."""
    files = {(own.get("data.path"), own.get("data.name")) for own in everything}
    return len({name for _, name in files}) == len(files)


def telling_words(everything: Sequence[Settings]) -> list[str]:
    """A few words for each of several settings that tell them apart: `partition.alpha=0.1`."""
    fields = _telling(everything, [""] * len(everything), _differing(everything))
    return [
        ", ".join(f"{field}={short(own[field])}" for field in fields if field in own) for own in everything
    ]


def _usual(everything: Sequence[Settings], field: str) -> str:
    """The most frequent value of a field, the first of equals."""
    return Counter(short(own.get(field)) for own in everything).most_common(1)[0][0]


def _telling(everything: Sequence[Settings], names: Sequence[str], fields: Sequence[str]) -> list[str]:
    """A few of the fields that together with the names tell all settings apart; all fields if none do.

    Each time, the field that tells most of them apart is added, the first of equals.
    """
    chosen: list[str] = []
    seen = {field: [short(own.get(field)) for own in everything] for field in fields}
    keys: list[tuple[str, ...]] = [(name,) for name in names]
    while len(set(keys)) < len(keys):
        best = max(fields, key=lambda field: len(set(zip(keys, seen[field], strict=True))))
        if best in chosen:
            return list(fields)  # no field tells the rest apart
        chosen.append(best)
        keys = [(*key, value) for key, value in zip(keys, seen[best], strict=True)]
    return sorted(chosen, key=list(fields).index)


def _fields(everything: Sequence[Settings]) -> dict[str, None]:
    """All fields, each once, in the order in which they first appear."""
    return dict.fromkeys(field for own in everything for field in own)


def _differing(everything: Sequence[Settings]) -> list[str]:
    """The fields that don't have the same value in all settings."""
    if not everything:
        return []
    first, missing = everything[0], object()
    return [
        field
        for field in _fields(everything)
        if any(own.get(field, missing) != first.get(field, missing) for own in everything)
    ]


def short(value: object) -> str:
    """The text of a value in a label: `1e+12` instead of `1000000000000.0`, if that is exact."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return "none" if value is None else str(value)


def in_words(options: Settings, *without: str) -> str:
    """A part by its name and the options that are set, such as `tasks (tasks 5, order own)`."""
    words = [
        f"{key} {value}"
        for key, value in options.items()
        if value is not None and key not in {"name", *without}
    ]
    return f"{options['name']} ({', '.join(words)})" if words else str(options["name"])


def _rank(own: Settings, fields: Sequence[str]) -> list[tuple[bool, float, str]]:
    """A key to order groups by: the values of some fields; numbers come before words."""
    values = [own.get(field) for field in fields]
    return [
        (False, float(value), "") if isinstance(value, int | float) else (True, 0.0, str(value))
        for value in values
    ]


def _study_names(groups: Sequence[Sequence[RunReading]]) -> list[tuple[int, str]] | None:
    """The position and name of each group in the only study that covers all runs; None without one."""
    runs = [[reading.run.path.resolve() for reading in runs] for runs in groups]
    folders = {path.parent for paths in runs for path in paths}
    if len(folders) != 1:
        return None
    names = [[path.name for path in paths] for paths in runs]
    studies = (_names_in(recorded(path), names) for path in sorted(folders.pop().glob("*.study.json")))
    found = [study for study in studies if study is not None]
    unique = len(found) == 1 and len({name for _, name in found[0]}) == len(groups)
    return found[0] if unique else None


def _names_in(
    variants: Mapping[str, Sequence[str]], groups: Sequence[Sequence[str]]
) -> list[tuple[int, str]] | None:
    """The position and name of each group in a study; None if the study doesn't have all runs.

    `variants` are the study's names of run directories by variant, `groups` those of each group.
    """
    of: dict[str, list[str]] = {}
    for variant, members in variants.items():
        for member in members:
            of.setdefault(member, []).append(variant)
    if not all(run in of for runs in groups for run in runs):
        return None
    # An experiment that the study has under two names was run once.
    names = [list(dict.fromkeys(name for run in runs for name in of[run])) for runs in groups]
    positions = [list(variants).index(known[0]) for known in names]
    return list(zip(positions, map(" / ".join, names), strict=True))
