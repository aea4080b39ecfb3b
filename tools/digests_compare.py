"""Which digests of two runs of `tools/digests.py` differ, beside those that were announced."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Digests = dict[str, dict[str, Any]]
Result = dict[str, Any]
"""`rounds` and `digests` of an experiment; or `unknown` or `failed`, with the reason."""
Results = dict[str, Any]
"""A whole file: `about`, which sources and machine, and `experiments`."""
Mappings = Sequence[tuple[str, str]]
"""Names of digests before and after; nothing on one side, if it is gone or new."""

_MACHINE = ("python", "torch", "numpy", "processor")


def read_mappings(lines: Iterable[str]) -> Mappings:
    """The mappings of lines `old=new`; empty lines and what follows a # mean nothing."""
    found = []
    for line in lines:
        text = line.partition("#")[0].strip()
        if not text:
            continue
        old, equals, new = (word.strip() for word in text.partition("="))
        if not equals or not (old or new) or (old and new and old.endswith("*") != new.endswith("*")):
            raise SystemExit(
                f"digests: found the mapping '{text}'; allowed: OLD=NEW, OLD= or =NEW, with a * at the end "
                "of both or of neither"
            )
        found.append((old, new))
    return found


def differences(before: Digests, after: Digests) -> list[str]:
    """The names of the digests that differ or are on one side alone, and how large they are."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            found.append(f"{name} ({'new' if old is None else 'gone'})")
        elif old["sha256"] != new["sha256"]:
            found.append(f"{name} ({_change(old, new)})")
    return found


def _change(old: dict[str, Any], new: dict[str, Any]) -> str:
    if old["size"] != new["size"]:
        return f"{old['size']} → {new['size']} numbers"
    return f"norm {old['norm']:.9g} → {new['norm']:.9g}"


class _Names:
    """Mappings that are applied, and that remember which of them were of use."""

    def __init__(self, mappings: Mappings) -> None:
        self._mappings = mappings
        self._used: set[tuple[str, str]] = set()

    def apply(self, before: Digests, after: Digests) -> tuple[Digests, Digests]:
        """Both under the names of after, without those that are gone or new on purpose."""
        known = {self._renamed(name): digest for name, digest in before.items()}
        return (
            {name: digest for name, digest in known.items() if name},
            {name: digest for name, digest in after.items() if name in known or not self._is_new(name)},
        )

    def _renamed(self, name: str) -> str:
        for old, new in self._mappings:
            if old and _matches(name, old):
                self._used.add((old, new))
                return new[:-1] + name[len(old) - 1 :] if new.endswith("*") else new
        return name

    def _is_new(self, name: str) -> bool:
        for old, new in self._mappings:
            if not old and _matches(name, new):
                self._used.add((old, new))
                return True
        return False

    @property
    def idle(self) -> Iterator[str]:
        """Mappings that nothing had the name of."""
        return (f"{old}={new}" for old, new in self._mappings if (old, new) not in self._used)


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def compare(
    before: Results, after: Results, mappings: Mappings = (), expected: Sequence[str] = ()
) -> tuple[list[str], bool]:
    """What is to be said about two files, and whether they differ in nothing but what was announced."""
    names = _Names(mappings)
    old, new = before["experiments"], after["experiments"]
    every = list(dict.fromkeys((*old, *new)))
    found = {name: text for name in every if (text := _difference(old.get(name), new.get(name), names))}
    groups: dict[str, list[str]] = {"differs": [], "differs as expected": [], "unknown before": []}
    for name in found:
        announced = any(fnmatch.fnmatchcase(name, one) for one in expected)
        # A part that the sources before didn't know has no result that could have changed.
        unknown = "unknown" in old.get(name, {}) and "failed" not in new.get(name, {"failed": ""})
        groups["differs as expected" if announced else "unknown before" if unknown else "differs"].append(
            name
        )
    mistakes = [f"there is no experiment {one}" for one in expected if not fnmatch.filter(every, one)]
    mistakes += [f"no digest has a name for the mapping {one}" for one in names.idle]
    lines = [f"before: {_source(before)}", f"after:  {_source(after)}", *_machines(before, after)]
    lines += [f"{title}: {name}: {found[name]}" for title, group in groups.items() for name in group]
    lines += [
        f"expected to differ, and the same: {one}"
        for one in expected
        if fnmatch.filter(every, one) and not fnmatch.filter(found, one)
    ]
    lines += mistakes
    counts = [f"{len(group)} {title}" for title, group in groups.items()]
    lines.append(f"{len(every) - len(found)} the same, {', '.join(counts)}")
    return lines, not (groups["differs"] or mistakes)


def _difference(old: Result | None, new: Result | None, names: _Names) -> str:
    """What is different about an experiment; nothing, if it is the same."""
    if old is None or new is None:
        return "new experiment" if old is None else "missing experiment"
    for problem in ("unknown", "failed"):
        for side, result in (("before", old), ("after", new)):
            if problem in result:
                return f"{problem} there ({side}): {result[problem]}"
    found = differences(*names.apply(old["digests"], new["digests"]))
    if old["rounds"] != new["rounds"]:
        found.insert(0, f"rounds ({old['rounds']} → {new['rounds']})")
    return ", ".join(found)


def _source(results: Results) -> str:
    about = results["about"]
    return f"{about['commit'][:12] or 'unknown commit'}{' with changes' if about['changed'] else ''}"


def _machines(before: Results, after: Results) -> Iterator[str]:
    """Reasons for other bits that lie outside the sources."""
    for name in _MACHINE:
        old, new = before["about"][name], after["about"][name]
        if old != new:
            yield f"warning: {name} was {old} and is {new}: digests may differ for that reason alone"
