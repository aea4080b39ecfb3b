"""What is known of a part and of an option, as plain data: it can be written to a file and read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from mnemos.lookup.kinds import KINDS


@dataclass(frozen=True)
class OptionInfo:
    """One option of a part, or one field of an experiment."""

    name: str
    takes: str
    """What values it takes, in words: `number > 0`, `one of I, II`, `a loss`."""
    description: str
    default: Any = None
    """The default, as plain data."""
    required: bool = False
    """Whether there is no default."""
    kind: str = ""
    """The name of the kind of parts that it holds, if it holds parts."""
    choices: tuple[str, ...] = ()
    """The values that it takes, if they are a few words."""
    options: tuple[OptionInfo, ...] = ()
    """The options inside it, if it is a group of options."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """The option that `dataclasses.asdict` made a mapping of."""
        inner = tuple(map(cls.read, facts.get("options", ())))
        return cls(**{**facts, "choices": tuple(facts.get("choices", ())), "options": inner})


@dataclass(frozen=True)
class PartInfo:
    """A part: what it does, its options, and how it is used."""

    kind: str
    """The name of its kind, such as `losses`."""
    name: str
    line: str
    """What it does, in one sentence."""
    text: str = ""
    """The rest of its documentation, with its formula and its paper."""
    options: tuple[OptionInfo, ...] = ()
    card: str = ""
    """The path of its page in the documents, if it has one."""
    example: str = ""
    """A command line that uses it."""
    origin: str = "mnemos"
    """Where it is from: `mnemos`, a plug-in's package with its version, or the file of your own class."""
    also: tuple[str, ...] = field(default=(), compare=False)
    """Other parts of this name, as `kind/name`."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """The part that `facts` made a mapping of."""
        options = tuple(map(OptionInfo.read, facts["options"]))
        return cls(**{**facts, "options": options, "also": tuple(facts.get("also", ()))})

    def facts(self) -> dict[str, Any]:
        """The part as plain data."""
        return asdict(self)

    @property
    def one(self) -> str:
        """What such a part is called: `loss`."""
        return KINDS[self.kind].one

    def __str__(self) -> str:
        from mnemos.lookup.text import part_text

        return part_text(self)

    __repr__ = __str__


class Parts(tuple[PartInfo, ...]):
    """Parts, in the order of their kinds and names; shown as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        from mnemos.lookup.text import list_text

        return list_text(self)

    __repr__ = __str__


@dataclass(frozen=True)
class FieldInfo:
    """A field of an experiment, by its dotted name."""

    path: str
    found: tuple[tuple[str, OptionInfo], ...]
    """(the part that has it, as `kind/name`, or empty for a group or the experiment; what is known of it)."""
    also: tuple[str, ...] = ()
    """Parts of this name, as `kind/name`."""

    def facts(self) -> dict[str, Any]:
        """The field as plain data."""
        of = [{"part": part, **asdict(option)} for part, option in self.found]
        return {"field": self.path, "of": of, "also": list(self.also)}

    def __str__(self) -> str:
        from mnemos.lookup.text import field_text

        return field_text(self)

    __repr__ = __str__
