"""The answer to why a class was lost, in a few sentences."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from mnemos.runs.why.stay_out import StayedOut
from mnemos.runs.why.who import Share

if TYPE_CHECKING:
    from mnemos.runs.why.answer import Answer

_NAMED = 3
"""How many of the costliest clients are named."""


def in_words(answer: Answer) -> str:
    """The round with the largest fall, where it happened, who did it, and who else in other rounds."""
    subject = str(answer.subject)
    subject = subject[0].upper() + subject[1:]
    rounds = [*answer.accounts]
    first, last = answer.accounts[rounds[0]], answer.accounts[rounds[-1]]
    where = f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}"
    whole = (
        f"In {where}, {subject[0].lower() + subject[1:]} went from {percent(first.before, first.samples)} to "
        f"{percent(last.after, last.samples)} ({last.samples} samples)."
    )
    sentences = [_fall(answer, subject), whole] if answer.falls else [whole, "It fell in none of them."]
    if len(answer.falls) > 1:
        others = ", ".join(
            f"{round} ({points(answer.accounts[round].change)})" for round in answer.falls[1:4]
        )
        sentences.append(f"Next worst: round{'s' if len(answer.falls) > 2 else ''} {others}.")
    guilty = [suspect for suspect in answer.suspects if suspect.cost > 0][:_NAMED]
    if guilty:
        many = len(answer.shares)
        over = f"round {min(answer.shares)}" if many == 1 else f"the {many} worst rounds"
        named = ", ".join(
            f"client {suspect.client} ({points(suspect.cost)}"
            + (f" ± {100 * suspect.error:.1f}" if suspect.error else "")
            + ")"
            for suspect in guilty
        )
        sentences.append(f"What clients' updates have cost in {over}: {named}.")
    elif answer.shares:
        sentences.append("No client's update has cost accuracy by itself.")
    sentences += [_stayed_out(one, rounds[0], subject) for one in answer.stayed_out[:_NAMED]]
    return _with_note(" ".join(sentences), answer.note)


def _stayed_out(one: StayedOut, first: int, subject: str) -> str:
    """What would have been without any of a client's updates."""
    account = one.accounts[one.last]
    name = subject[0].lower() + subject[1:]
    mean = one.mean_cost
    average = f"{points(mean)} {'more' if mean > 0 else 'less'}" if mean else "the same"
    sentence = (
        f"Had client {one.client} stayed out of rounds {first} to {one.last}, {name} would be at "
        f"{percent(one.right[one.last], account.samples)} after them instead of "
        f"{percent(account.after, account.samples)}, and on average over these rounds at {average}."
    )
    return f"{sentence} It can't be told further ({one.ended})." if one.ended else sentence


def _fall(answer: Answer, subject: str) -> str:
    """The worst round in one sentence."""
    round = answer.falls[0]
    account = answer.accounts[round]
    before, after = percent(account.before, account.samples), percent(account.after, account.samples)
    parts = _parts(account.local, account.aggregation)
    sentence = f"{subject} fell from {before} to {after} in round {round}: {parts}"
    shares = answer.shares.get(round, ())
    if answer.client is not None:
        shares = [share for share in shares if share.client == answer.client]
    return f"{sentence}; {_without(shares[0])}." if shares else f"{sentence}."


def _parts(local: Fraction, aggregation: Fraction) -> str:
    """In which of its two parts a round has lost."""
    lost = -(local + aggregation)
    if aggregation <= 0 and local <= 0:
        larger, name, other = max(
            (-aggregation, "aggregation", "local training"), (-local, "local training", "aggregation")
        )
        rest = "" if larger == lost else f", the rest in {other}"
        return f"{number(larger)} of {points(lost)} in {name}{rest}"
    (down, name), (up, other) = (
        ((-local, "local training"), (aggregation, "aggregation"))
        if local < 0
        else ((-aggregation, "aggregation"), (local, "local training"))
    )
    return f"{points(down)} lost in {name}, {number(up)} gained in {other}"


def _without(share: Share) -> str:
    """What would have been without the costliest client."""
    held = "none" if not share.held else f"{share.held:,} training sample{'s' * (share.held != 1)}"
    change = share.change
    would = (
        f"a fall of {points(change)}"
        if change < 0
        else f"a gain of {points(change)}"
        if change
        else "no fall"
    )
    return f"without client {share.client}, who holds {held} of it, {would}"


def percent(right: int, samples: int) -> str:
    """A share of samples in per cent."""
    return f"{number(Fraction(right, samples))} %"


def number(value: Fraction | float) -> str:
    """A share in hundredths, with a decimal if it matters."""
    return f"{abs(float(value)) * 100:.1f}".removesuffix(".0")


def points(value: Fraction | float) -> str:
    """A change of accuracy, without its sign, in percentage points."""
    found = number(value)
    return f"{found} point{'s' * (found != '1')}"


def _with_note(text: str, note: str) -> str:
    return f"{text} {note}".strip()
