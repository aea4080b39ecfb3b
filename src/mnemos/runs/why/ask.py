"""Asking why: from a recorded ledger, or by playing a run's rounds again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation, Outcome
from mnemos.measures.continual import On
from mnemos.measures.ledger import Ledger
from mnemos.runs.replay import Replay, check_replayable, check_round, replaying
from mnemos.runs.run import Run
from mnemos.runs.trust import Trust
from mnemos.runs.why.answer import Answer
from mnemos.runs.why.ledger import Account, Accounts, Subject, read_ledger
from mnemos.runs.why.samples import Samples
from mnemos.runs.why.stay_out import ranked, stayed_out
from mnemos.runs.why.what_if import WhatIf
from mnemos.runs.why.who import shares


@dataclass(frozen=True)
class Question:
    """What is asked of a run."""

    cls: int | None = None
    """The class; None, without a task: the class that has lost most."""
    task: int | None = None
    """The task, in place of a class."""
    rounds: tuple[int, int] | None = None
    """The first and the last round; None: those with a recorded ledger, or all of the run."""
    client: int | None = None
    """Only rounds in which this client's update counted."""
    closely: int = 3
    """How many of the worst rounds, falls or not, are looked at closely, to rank their clients."""
    orders: int = 20
    """How many orders are drawn for Shapley values in cohorts of more than six; 0: no Shapley values."""
    stay_out: tuple[int, ...] = ()
    """Clients without each of which all the rounds, from the first to the last, are played once more."""

    def __post_init__(self) -> None:
        if self.cls is not None and self.task is not None:
            raise ConfigError(f"found class {self.cls} and task {self.task}; allowed: one of them")


def why(run: Run, question: Question, *, trust: Trust = False) -> Answer:
    """Answer why a class or a task was lost; `trust` is as in `Run.load`.

    Rounds without a recorded ledger are played again, and so are the worst rounds, to find out whose updates
    have cost most. Where rounds can't or must not be played again, a recorded ledger is answered from alone.
    """
    known = read_ledger(run.records)
    asked = rounds_asked(run, question, known)
    missing = [round for round in asked if round not in known]
    ledger = {round: known[round] for round in asked if round in known}
    try:
        check_replayable(run.experiment)
    except ConfigError as error:
        if missing or question.stay_out:
            raise
        found = _answer(run, question, ledger)
        return Answer(found.run, found.subject, found.accounts, note=f"Clients aren't ranked: {error}.")
    measure = Ledger(every=1, on=_on(run.experiment))
    with replaying(run, [measure], trust=trust) as replay:
        _check_asked(replay.federation, question)
        for round in missing:
            replay.to(round - 1)
            ledger[round] = _accounts(replay.advance())
        answer = _answer(run, question, {round: ledger[round] for round in asked})
        answer = _ranked(answer, replay, question, measure.on)
        return _staying_out(answer, replay, question, measure.on, asked[0])


def to_play(run: Run, question: Question) -> tuple[int, int, int] | None:
    """(first, last, how often): the rounds that an answer takes to be played again; None: none of them."""
    known = read_ledger(run.records)
    asked = rounds_asked(run, question, known)
    if any(round not in known for round in asked):  # for the ledger, and for the worst rounds
        return asked[0], asked[-1], 2 + len(question.stay_out)
    if question.stay_out:
        return asked[0], asked[-1], 1 + len(question.stay_out)
    worst = _answer(run, question, {round: known[round] for round in asked}).worst[: question.closely]
    experiment = run.experiment
    if not worst or experiment.data.stays_with_owners or experiment.privacy.private:
        return None
    return min(worst), max(worst), 1


def rounds_asked(run: Run, question: Question, known: dict[int, Accounts]) -> Sequence[int]:
    """The rounds that a question is about."""
    if question.rounds is None and known:
        return [*known]
    parent = run.parent
    begun = 0 if parent is None else int(parent["round"])
    first, last = question.rounds or (begun + 1, run.status.rounds)
    check_round(run, first)
    check_round(run, last)
    if first > last:
        raise ConfigError(f"found rounds {first} to {last}; allowed: the first up to the last")
    return range(first, last + 1)


def _ranked(answer: Answer, replay: Replay, question: Question, on: On) -> Answer:
    """The answer with the shares of the clients in its worst rounds."""
    samples = Samples(replay.federation, on, answer.subject)
    worst = sorted(answer.worst[: question.closely])
    seed = replay.federation.experiment.seed
    found = {round: shares(WhatIf(replay, round), samples, question.orders, seed) for round in worst}
    return Answer(answer.run, answer.subject, answer.accounts, found, client=question.client)


def _staying_out(answer: Answer, replay: Replay, question: Question, on: On, first: int) -> Answer:
    """The answer with what would have been without each client that the question names."""
    samples = Samples(replay.federation, on, answer.subject)
    found = [stayed_out(replay, client, first, answer.accounts, samples) for client in question.stay_out]
    return replace(answer, stayed_out=ranked([one for one in found if one is not None]))


def _answer(run: Run, question: Question, ledger: dict[int, Accounts]) -> Answer:
    """The answer from a ledger alone."""
    subject = _subject(question, ledger)
    accounts = {round: accounts[subject] for round, accounts in ledger.items() if subject in accounts}
    if not accounts:
        kind = "classes" if subject.kind == "class" else "tasks"
        there = sorted(
            {known.number for accounts in ledger.values() for known in accounts if known.kind == subject.kind}
        )
        have = ", ".join(map(str, there)) or "none"
        raise ConfigError(f"found {subject}; {kind} with samples to measure on: {have}", subject.kind)
    client = question.client
    if client is not None:
        accounts = {round: account for round, account in accounts.items() if client in account.clients}
        if not accounts:
            rounds = f"{min(ledger)} to {max(ledger)}"
            raise ConfigError(
                f"found client {client}, whose updates counted in none of the rounds {rounds}", "client"
            )
    return Answer(str(run.path), subject, accounts, client=client)


def _subject(question: Question, ledger: dict[int, Accounts]) -> Subject:
    """What is asked about; by default, the class that has lost most since its best."""
    if question.task is not None:
        return Subject("task", question.task)
    if question.cls is not None:
        return Subject("class", question.cls)
    courses: dict[Subject, list[Account]] = {}
    for accounts in ledger.values():
        for subject, account in accounts.items():
            if subject.kind == "class":
                courses.setdefault(subject, []).append(account)
    return max(courses, key=lambda subject: _lost(courses[subject])) if courses else Subject()


def _lost(course: Sequence[Account]) -> float:
    """The accuracy that was lost between the best round and the last one."""
    best = max(max(account.before, account.after) / account.samples for account in course)
    return best - course[-1].after / course[-1].samples


def _accounts(outcome: Outcome) -> Accounts:
    """The ledger of a round that was played again."""
    rows = [{**vars(record), "class": record.cls} for record in outcome.records]
    found = read_ledger(rows)
    if outcome.round not in found:
        raise MnemosError(f"round {outcome.round}: no client trained, so there is no ledger")
    return found[outcome.round]


def _on(experiment: Experiment) -> On:
    """Whose samples the ledger counts: as recorded, or validation samples if clients hold any out."""
    for measure in experiment.measures:
        if isinstance(measure, Ledger):
            return measure.on
    return "validation" if experiment.partition.validation else "test"


def _check_asked(federation: Federation, question: Question) -> None:
    """Refuse classes, tasks and clients that there aren't, before any round is played."""
    clients = federation.assignment.clients
    named = [
        ("class", question.cls, len(federation.dataset.classes)),
        ("task", question.task, len(federation.flow.tasks)),
        *(("client", client, clients) for client in (question.client, *question.stay_out)),
    ]
    for kind, asked, count in named:
        if asked is not None and not 0 <= asked < count:
            there = {"class": "classes", "task": "tasks", "client": "clients"}[kind]
            have = f"the {there} are 0 to {count - 1}" if count else f"the stream has no {there}"
            raise ConfigError(f"found {kind} {asked}; {have}", kind)
