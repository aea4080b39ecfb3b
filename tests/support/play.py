"""One way to play a small experiment: describe it, carry out its rounds, look at what is left.

    federation, outcomes = play(small(method="scaffold"))

`each_round` gives the outcomes one by one, for tests that look at the federation in between.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

from mnemos.engines.engine import Runner
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.federation.round import Check
from mnemos.methods.exchange import TrainReply
from mnemos.vector import Layout

SMALL = {
    "partition": {"name": "iid", "clients": 8},
    "model": {"name": "mlp", "hidden": [8]},
    "participation": 1.0,
    "local": {"steps": 2, "batch": 16, "lr": 0.1},
    "rounds": 3,
    "engine": "serial",
}
"""Eight clients with alike shares of the digits, all in every round: a fraction of a second."""


def small(**changes: object) -> Experiment:
    """The small experiment with other values of some fields."""
    return Experiment.parse({**SMALL, **changes})


def each_round(
    federation: Federation, count: int | None = None, wrap: Callable[[Runner], Runner] | None = None
) -> Iterator[Outcome]:
    """The outcome of each round, as soon as it is done; all rounds of the experiment, or `count`.

    `wrap` puts something between the federation and its runner. At the end the federation is closed.
    """
    with closing(federation), federation.open() as opened:
        runner = opened if wrap is None else wrap(opened)
        for _ in range(federation.experiment.rounds if count is None else count):
            yield federation.advance(runner)


def play(
    of: Experiment | Federation,
    count: int | None = None,
    checks: tuple[Check, ...] = (),
    wrap: Callable[[Runner], Runner] | None = None,
) -> tuple[Federation, list[Outcome]]:
    """(the federation, the outcomes) after all rounds of an experiment, or after `count`.

    `checks` look at every update before it counts, as those of a `Federation` do.
    """
    federation = Federation(of, checks) if isinstance(of, Experiment) else of
    return federation, list(each_round(federation, count, wrap))


def noting(seen: list[TrainReply]) -> Check:
    """A check of updates that lets every one pass and notes it in `seen`."""

    def check(reply: TrainReply, layout: Layout) -> None:
        seen.append(reply)

    return check
