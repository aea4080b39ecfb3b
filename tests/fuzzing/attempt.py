"""One input at a time, with limits on time and memory; many by hypothesis, which makes failures small."""

from __future__ import annotations

import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase

from fuzzing.inputs import Inputs
from mnemos.errors import MnemosError

SECONDS = 10
"""Of processor time, after which an input counts as a hang."""
MEMORY = 2 << 30
"""Bytes of address space that an input may take beside what the process has."""


@dataclass(frozen=True)
class Target:
    """Something that reads from outside."""

    read: Callable[[bytes], object]
    """Gives a result, or raises a `MnemosError` of one line."""
    inputs: Inputs
    samples: Sequence[bytes]
    """Valid inputs: these must give a result."""
    nasty: Sequence[bytes] = ()
    """Inputs that are known to be hard to read; each is always among those tried."""


Make = Callable[[Path], Target]
"""Makes a target that has a folder for itself."""


@dataclass
class EvaluateReply:
    """What came of many inputs."""

    inputs: int = 0
    refused: int = 0
    failures: dict[str, bytes] = field(default_factory=dict)
    """The smallest input found for each kind of failure."""


class HangError(BaseException):
    """An input took too long; no handler of errors may take it for one of its own."""


def attempt(target: Target, content: bytes) -> bool:
    """Whether an input was read; False if it was refused. Anything else is raised."""
    try:
        with _limits(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(content)
    except MnemosError as error:
        sentence = str(error)
        if len(sentence.splitlines()) != 1 or not sentence.isprintable():
            raise AssertionError(f"not one line that can be printed: {sentence!r}") from error
        return False
    return True


def fuzz(target: Target, inputs: int, seed: int, seen: Callable[[bytes], object] = len) -> EvaluateReply:
    """Try about so many inputs; `seen` gets each before it is tried."""
    tally = EvaluateReply()

    def one(content: bytes) -> None:
        tally.inputs += 1
        seen(content)
        try:
            tally.refused += not attempt(target, content)
        except BaseException as error:
            kind = _kind(error)
            known = tally.failures.get(kind)
            if known is None or len(content) < len(known):
                tally.failures[kind] = content
            raise

    for sample in target.samples:
        refused = tally.refused
        with _noted(tally):
            one(sample)
        if tally.refused > refused:
            tally.failures["a valid input is refused"] = sample
    for content in target.nasty:
        with _noted(tally):
            one(content)
    many = hypothesis.given(target.inputs)(one)
    many = hypothesis.settings(
        max_examples=max(1, inputs - tally.inputs),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )(many)
    with _noted(tally):
        hypothesis.seed(seed)(many)()
    return tally


@contextmanager
def _noted(tally: EvaluateReply) -> Iterator[None]:
    """Go on after a failure that is in the tally; others are those of the fuzzing itself."""
    before = dict(tally.failures)
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        if tally.failures == before:
            raise


def _kind(error: BaseException) -> str:
    """The error's type and the innermost line of Mnemos that it went through."""
    place, trace = "", error.__traceback__
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if "mnemos" in path.parts and "fuzzing" not in path.parts:
            place = f" at {path.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{place}"


@contextmanager
def _limits() -> Iterator[None]:
    def hang(*_: object) -> None:
        raise HangError

    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, hang)  # SIGALRM is pytest's
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_size() + MEMORY, before[1]))
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _size() -> int:
    """Bytes of address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
