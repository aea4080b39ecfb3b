"""Rounds and engines in words."""

from __future__ import annotations

import math
from collections import Counter

from mnemos.display.words import percent
from mnemos.engines.engine import Runner
from mnemos.federation.federation import Outcome
from mnemos.federation.round import NOTED


def describe(runner: Runner) -> str:
    """The engine's name and options, and why it was chosen."""
    options = [f"{key} {value}" for key, value in runner.engine.dump().items() if key != "name" and value]
    text = ", ".join([type(runner.engine).name, *options])
    return f"{text} ({runner.why})" if runner.why else text


def loss_of(outcome: Outcome) -> str:
    """`loss 0.4123`, or that no client has trained."""
    return "no client has trained" if math.isnan(outcome.loss) else f"loss {outcome.loss:.4g}"


def scores_of(outcome: Outcome) -> list[str]:
    """`validation 91.0 %`, `test 90.2 %`: the accuracies that were measured after the round."""
    measured = {"validation": outcome.validation, "test": outcome.test}
    return [f"{name} {percent(scores.accuracy)}" for name, scores in measured.items() if scores]


def left_out_of(outcome: Outcome) -> list[str]:
    """`2 dropped`, `1 rejected: not finite`: how many clients the round went on without, by reason."""
    names = Counter(record.name for record in outcome.records if record.client is not None)
    return [f"{count} {name}" for name, count in names.items() if name.startswith(NOTED)]


def summary(outcome: Outcome) -> str:
    """A round in one line: its loss and accuracies, and how many clients were left out and why."""
    return ", ".join([loss_of(outcome), *scores_of(outcome), *left_out_of(outcome)])
