"""The messages of a round: what a client needs and sends back, to train and to evaluate a model.

All are plain tensors and a few numbers, and all have a byte form (safetensors with a JSON header): nothing is
ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mnemos.data.dataset import Source, sources
from mnemos.errors import DataError
from mnemos.local import Local
from mnemos.measures.counting import Counts, Groups
from mnemos.methods.exchange import LARGEST_LOSS, State, Update
from mnemos.methods.method import Method, methods
from mnemos.models.model import Model, models
from mnemos.plain import number, parse_json, whole
from mnemos.privacy.privacy import NoPrivacy, Privacy, privacies
from mnemos.registry import Options

_T = TypeVar("_T")


class Arithmetic(Options):
    """What changes the last bits of a result; kept in a run's record and on resume."""

    channels_last: bool = True
    intra_op: int = Field(1, ge=1, description="threads inside one tensor operation")
    compile: bool = False
    vmap: bool = False


class Plan(Options):
    """The part of an experiment a client needs: the same for all clients and rounds."""

    data: Annotated[Source, sources]
    model: Annotated[Model, models]
    method: Annotated[Method, methods]
    local: Local
    privacy: Annotated[Privacy, privacies] = NoPrivacy()
    seed: int
    arithmetic: Arithmetic = Arithmetic()


@dataclass(frozen=True)
class Task:
    """One client's work in one round."""

    plan: Plan
    round: int
    client: int
    model: Tensor
    buffers: Tensor
    received: State
    state: State
    samples: Tensor
    """Indices of the client's training samples in this round."""
    held_out: Tensor
    """Indices of its validation samples: some losses count their labels."""
    met: Tensor
    """Which classes belong to tasks that it has reached so far [classes]: all of them without tasks."""
    present: Tensor
    """Which classes belong to the task that it is in [classes]: none without tasks."""
    noise: float = 0.0
    relabel: Tensor | None = None
    """Which class the client takes each class for [classes], if it is one that doesn't know its labels."""
    steps: int | None = None
    """After how many steps it has to stop, if it can't be through in time."""
    seconds: float | None = None
    """For how long it may train, if real time counts; it makes one step at least."""

    def to_bytes(self) -> bytes:
        """The task as one buffer."""
        tensors = {
            "model": self.model,
            "buffers": self.buffers,
            "samples": self.samples,
            "held_out": self.held_out,
            "met": self.met,
            "present": self.present,
        }
        if self.relabel is not None:
            tensors["relabel"] = self.relabel
        header = {
            "plan": self.plan.model_dump(mode="json"),
            "round": self.round,
            "client": self.client,
            "noise": self.noise,
            "steps": self.steps,
            "seconds": self.seconds,
        }
        return pack(tensors, {"received": self.received, "state": self.state}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Task:
        """The task in a buffer."""
        header, tensors, states = unpack(data, "received", "state")
        try:
            return cls(
                Plan.parse(header["plan"]),
                _read(header, "round", whole),
                _read(header, "client", whole),
                _vector(tensors, "model"),
                _vector(tensors, "buffers"),
                states["received"],
                states["state"],
                _vector(tensors, "samples", torch.int64),
                _vector(tensors, "held_out", torch.int64),
                _vector(tensors, "met", torch.bool),
                _vector(tensors, "present", torch.bool),
                _read(header, "noise", number),
                _vector(tensors, "relabel", torch.int64) if "relabel" in tensors else None,
                _read(header, "steps", _limit),
                _read(header, "seconds", _time),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not a task ({_reason(error)})") from None


def update_to_bytes(update: Update) -> bytes:
    """An update as one buffer."""
    header = {
        "client": update.client,
        "round": update.round,
        "samples": update.samples,
        "steps": update.steps,
        "loss": update.loss,
    }
    tensors = {"delta": update.delta, "buffers": update.buffers}
    return pack(tensors, {"change": update.change, "state": update.state}, header)


def update_from_bytes(data: bytes) -> Update:
    """The update in a buffer."""
    header, tensors, states = unpack(data, "change", "state")
    try:
        return Update(
            _read(header, "client", whole),
            _read(header, "round", whole),
            _read(header, "samples", whole),
            _read(header, "steps", whole),
            _read(header, "loss", number),
            _vector(tensors, "delta"),
            _vector(tensors, "buffers"),
            states["change"],
            states["state"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"message: not an update ({_reason(error)})") from None


@dataclass(frozen=True)
class Exam:
    """A model that a client is to evaluate on some of its samples."""

    plan: Plan
    model: Tensor
    buffers: Tensor
    part: Literal["train", "test"]
    samples: Tensor
    """Indices of them, in the part."""
    groups: Groups | None = None
    """What is counted beside all that is right, if anything."""
    known: Tensor | None = None
    """Indices of training samples by whose labels the client is to correct its answers, if it is."""

    def to_bytes(self) -> bytes:
        """The exam as one buffer."""
        tensors = {"model": self.model, "buffers": self.buffers, "samples": self.samples}
        if self.known is not None:
            tensors["known"] = self.known
        views: State = {}
        if self.groups is not None:
            tensors["groups"] = self.groups.of
            views = {str(number): view for number, view in enumerate(self.groups.views)}
        header = {"plan": self.plan.model_dump(mode="json"), "part": self.part}
        return pack(tensors, {"views": views}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Exam:
        """The exam in a buffer."""
        header, tensors, states = unpack(data, "views")
        try:
            part: Literal["train", "test"] = "test" if header["part"] == "test" else "train"
            return cls(
                Plan.parse(header["plan"]),
                _vector(tensors, "model"),
                _vector(tensors, "buffers"),
                part,
                _vector(tensors, "samples", torch.int64),
                _groups(tensors, states["views"]) if "groups" in tensors else None,
                _vector(tensors, "known", torch.int64) if "known" in tensors else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not an exam ({_reason(error)})") from None


@dataclass(frozen=True)
class Tally:
    """How a model did on a client's samples: all that is said of them."""

    samples: int
    hits: int
    loss: float
    """Summed over the samples."""
    counts: Counts | None = None
    """By groups, if it was asked for."""
    corrected: int | None = None
    """Hits of the corrected answers, if these were asked for."""

    def to_bytes(self) -> bytes:
        """The tally as one buffer."""
        counts = self.counts
        tensors = {} if counts is None else {"sizes": counts.sizes, "right": counts.right}
        header = {"samples": self.samples, "hits": self.hits, "loss": self.loss, "corrected": self.corrected}
        return pack(tensors, {}, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Tally:
        """The tally in a buffer, if it can be one."""
        header, tensors, _ = unpack(data)
        try:
            samples = _read(header, "samples", whole)
            counts = _counts(tensors, samples) if tensors else None
            hits, loss = _read(header, "hits", whole), _read(header, "loss", number)
            tally = cls(samples, hits, loss, counts, _read(header, "corrected", _whole_or_none))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"message: not a tally ({_reason(error)})") from None
        if not (max(tally.hits, tally.corrected or 0) <= tally.samples and abs(tally.loss) <= LARGEST_LOSS):
            raise DataError(f"message: {tally.hits} of {tally.samples} right with a loss of {tally.loss}")
        return tally


def pack(tensors: Mapping[str, Tensor], states: Mapping[str, State], header: Mapping[str, Any]) -> bytes:
    """Tensors, groups of named tensors and a JSON header as one safetensors buffer."""
    flat = dict(tensors)
    for group, state in states.items():
        flat.update({f"{group}/{name}": tensor for name, tensor in state.items()})
    # Rows of a cohort's matrix share memory; safetensors wants each tensor on its own.
    flat = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in flat.items()
    }
    return save(flat, {"mnemos": json.dumps(header, sort_keys=True)})


def unpack(data: bytes, *groups: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, State]]:
    """(header, tensors, groups) of a buffer made by `pack`; the groups named are there even if empty."""
    try:
        flat = load(data)
        length = int.from_bytes(data[:8], "little")
        header = parse_json(parse_json(data[8 : 8 + length])["__metadata__"]["mnemos"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"message: can't be read ({_reason(error)})") from None
    if not isinstance(header, dict):
        raise DataError(f"message: can't be read (its header is a {type(header).__name__})")
    states: dict[str, State] = {group: {} for group in groups}
    tensors: dict[str, Tensor] = {}
    for name, tensor in flat.items():
        group, slash, rest = name.partition("/")
        if slash:
            states.setdefault(group, {})[rest] = tensor
        else:
            tensors[name] = tensor
    return header, tensors, states


def _read(header: Mapping[str, Any], name: str, parse: Callable[[Any], _T]) -> _T:
    try:
        return parse(header[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _limit(value: Any) -> int | None:
    if value == 0:
        raise ValueError("found 0, and one at least is expected")
    return _whole_or_none(value)


def _time(value: Any) -> float | None:
    seconds = None if value is None else number(value)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"found {seconds}, and more than 0 is expected")
    return seconds


def _whole_or_none(value: Any) -> int | None:
    return None if value is None else whole(value)


def _groups(tensors: Mapping[str, Tensor], views: State) -> Groups:
    groups = Groups(
        _vector(tensors, "groups", torch.int64), tuple(views[name] for name in sorted(views, key=int))
    )
    classes = len(groups.of)
    if not (classes and int(groups.of.min()) >= -1 and int(groups.of.max()) < classes and groups.views):
        raise ValueError("groups: a number from -1 on for each class is expected, and a view")
    for view in groups.views:
        if view.dtype != torch.bool or view.shape not in {(1, classes), (groups.count, classes)}:
            raise ValueError(
                f"views: found {view.dtype} {list(view.shape)}, "
                f"and {groups.count} or 1 by {classes} of {torch.bool} is expected"
            )
    return groups


def _counts(tensors: Mapping[str, Tensor], samples: int) -> Counts:
    sizes, right = _vector(tensors, "sizes", torch.int64), tensors["right"]
    if right.dtype != torch.int64 or right.ndim != 2 or right.shape[1] != len(sizes):
        raise ValueError(
            f"right: found {right.dtype} {list(right.shape)}, and {len(sizes)} a row is expected"
        )
    if bool((right < 0).any() or (right > sizes).any()) or _sum(sizes) > samples:
        raise ValueError(f"right: found more than the {samples} samples that there are, or less than none")
    return Counts(samples, sizes, right)


def _sum(sizes: Tensor) -> int:
    return sum(sizes.tolist())  # of any size, without an overflow


def _vector(tensors: Mapping[str, Tensor], name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    found = tensors[name]
    if found.dtype != dtype or found.ndim != 1:
        raise ValueError(
            f"{name}: found {found.dtype} {list(found.shape)}, and a vector of {dtype} is expected"
        )
    return found


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
