"""Somebody who holds data: answers what a federation asks, and gives nothing away beside the answers.

Nothing that comes from the server is run: a plan names parts that are installed here, and parts given by
import path are refused unless their owner allows them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from mnemos.client import Trainer, fresh_model, intra_op
from mnemos.data.dataset import Dataset
from mnemos.data.owned import Agreement, arranged, describe, runs
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.data.sources.owners import Reading
from mnemos.engines.flower import OLDEST, ROUND, Kind
from mnemos.errors import DataError, MnemosError
from mnemos.files import remove_unfinished, write_atomically
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Scores
from mnemos.measures.personalised import personalised
from mnemos.message import Exam, Plan, Tally, Task, pack, unpack, update_to_bytes
from mnemos.methods.exchange import State
from mnemos.plain import parse_json
from mnemos.registry import Options, by_name_alone

REFUSED, UNUSABLE, CHANGED, FORGOTTEN = WHY = (
    "refused",
    "its data can't be used",
    "its data has changed",
    "its memory is gone",
)
"""All that a server hears of why an owner doesn't answer: sentences may name files, or speak of samples."""

_BUFFERS = "holder.buffers"
_RUN = re.compile(r"\w[\w.-]{0,199}")


class DeclinedError(DataError):
    """A question that isn't answered, for a reason that the server hears."""

    def __init__(self, sentence: str, why: str) -> None:
        super().__init__(sentence)
        self.why = why


class Question(Options):
    """What an owner is asked before the first round."""

    reading: Reading | None = None
    """How it is to read its data; none: it is asked for nothing but its name."""
    classes: tuple[str, ...] = ()
    tasks: tuple[tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...], ...] = ()
    """The classes of each task, if there are tasks."""


class Holder:
    """One owner's data, and what its client remembers."""

    def __init__(self, path: str, folder: Path, name: str = "", plugins: bool = False) -> None:
        """`folder`: where it remembers; `plugins`: whether plans may name parts by import path."""
        self.path, self.name, self._folder, self._plugins = path, name, folder, plugins
        self._trainer: tuple[Plan, Trainer] | None = None

    def answer(self, kind: Kind, run: str, body: bytes) -> bytes:
        """What is answered to a question of a run; everything that is wrong with it is a `MnemosError`."""
        try:
            # Not only while a plan is read: an optimiser is imported when it is first made.
            with nullcontext() if self._plugins else by_name_alone():
                return self._answer(kind, run, body)
        except MnemosError:
            raise
        except Exception as error:  # what doesn't fit together shows in the middle of the work
            raise MnemosError(f"that can't be done here ({type(error).__name__}: {error})") from error

    def _answer(self, kind: Kind, run: str, body: bytes) -> bytes:
        if kind == "query":
            return json.dumps(self._query(Question.parse(_json(body)))).encode()
        if not _RUN.fullmatch(run):
            raise DataError(f"the server calls its run {run!r}, which is no name for a folder")
        if kind == "train":
            return self._train(run, Task.from_bytes(body))
        return self._evaluate(Exam.from_bytes(body))

    def _query(self, asked: Question) -> dict[str, Any]:
        """Who it is and what it has; with tasks, also which of them its samples are of."""
        if asked.reading is None:
            return {"owner": self.name}
        with _using():
            own = _read(asked.reading, self.path)
            if not asked.tasks:
                return {"owner": self.name, **describe(own).model_dump(mode="json")}
            # The scale plays no part here.
            dataset = arranged(own, Agreement(asked.classes, own.mean, own.std))
        first = np.zeros(len(asked.classes), np.int64)
        for task in asked.tasks:
            for label in task:
                if label < len(first):
                    first[label] = task[0]
        return {"tasks": runs(first[dataset.train.labels.numpy()])}

    def _train(self, run: str, task: Task) -> bytes:
        dataset = self._dataset(task.plan)
        _check_indices(task.samples, len(dataset.train))
        _check_indices(task.held_out, len(dataset.train))
        if task.relabel is not None:
            raise DataError("the server asks for other labels than those that samples have")
        if self._trainer is None or self._trainer[0] != task.plan:
            self._trainer = task.plan, Trainer(task.plan, dataset)
        trainer = self._trainer[1]
        method, memory = task.plan.method, _Memory(self._folder / run / str(task.client))
        state = method.client_state(trainer.bound.layout)
        remembers = bool(state) or method.buffers.local or task.plan.local.keeps
        last, oldest = (_round(task.state.get(name)) for name in (ROUND, OLDEST))
        self._check_same(run, task.plan, fresh=not last)
        if remembers and last:
            state = memory.recall(last)
        buffers = state.pop(_BUFFERS, task.buffers)
        with intra_op(task.plan.arithmetic.intra_op):
            update = trainer(replace(task, state=state, buffers=buffers))
        if remembers:
            own = {_BUFFERS: update.buffers} if method.buffers.local else {}
            memory.keep(task.round, {**update.state, **own}, last, oldest)
        sent = update.buffers if method.buffers.sent else update.buffers[:0]
        return update_to_bytes(replace(update, state={}, buffers=sent))

    def _evaluate(self, exam: Exam) -> bytes:
        dataset = self._dataset(exam.plan)
        split = dataset.test if exam.part == "test" else dataset.train
        _check_indices(exam.samples, len(split))
        method = exam.plan.method
        module = fresh_model(exam.plan, dataset)
        with closing(Evaluator(module, dataset, method.buffers.in_batches, method.head.read)) as evaluator:
            scores = evaluator(exam.model, exam.buffers, split, exam.samples)
        loss = float(scores.losses.double().sum())
        counts = None if exam.groups is None else scores.counts(exam.groups)
        corrected = None if exam.known is None else _corrected(scores, dataset, exam.known)
        return Tally(len(exam.samples), int(scores.hits.sum()), loss, counts, corrected).to_bytes()

    def _dataset(self, plan: Plan) -> Dataset:
        """Its data, as all of the federation understand theirs."""
        if not isinstance(plan.data, Elsewhere):
            raise DataError("the server names data of its own; expected is that of its owners")
        with _using():
            dataset = _arranged(plan.data.reading, self.path, plan.data.agreement)
        found = len(dataset.train), len(dataset.test)
        # Others would be trained on than the server means, and perhaps those that are held out.
        if found not in [(owner.train, owner.test) for owner in plan.data.owners]:
            raise DeclinedError(
                f"its data has changed since the run began: there are {found[0]} and {found[1]} samples",
                CHANGED,
            )
        return dataset

    def _check_same(self, run: str, plan: Plan, fresh: bool) -> None:
        """Refuse to go on with other samples than those of the client's first round in a run."""
        assert isinstance(plan.data, Elsewhere)
        file, found = self._folder / run / "data", _fingerprint(plan.data.reading, self.path)
        if fresh or not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, found.encode())
        elif file.read_text() != found:
            raise DeclinedError("its data has changed since the run began: samples are others", CHANGED)


@contextmanager
def _using() -> Iterator[None]:
    """What is wrong with an owner's data is its own affair: the server hears that something is."""
    try:
        yield
    except MnemosError as error:
        raise DeclinedError(str(error), UNUSABLE) from None


def _corrected(scores: Scores, dataset: Dataset, known: Tensor) -> int:
    """How many are right once the answers are corrected for the labels of some training samples."""
    _check_indices(known, len(dataset.train))
    counts = dataset.train.labels[known].bincount(minlength=len(dataset.classes))
    owner = np.zeros(len(scores.labels), np.int64)
    predicted = personalised(scores.logits, counts.numpy()[None], owner)
    return int(np.count_nonzero(predicted == scores.labels.numpy()))


@lru_cache(1)
def _read(reading: Reading, path: str) -> Dataset:
    return reading.own(path)


@lru_cache(1)
def _fingerprint(reading: Reading, path: str) -> str:
    dataset, digest = _read(reading, path), hashlib.sha256()
    for split in (dataset.train, dataset.test):
        for tensor in (split.samples, split.labels):
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


@lru_cache(1)
def _arranged(reading: Reading, path: str, agreement: Agreement) -> Dataset:
    return arranged(_read(reading, path), agreement)


class _Memory:
    """What a client remembers after its last rounds, in files.

    The server says from which round the client goes on: the last that counted. A round that came to nothing,
    whose answer was lost, or that the server doesn't know of because it was killed, leaves what was
    remembered before as it was.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, round: int) -> State:
        """What it remembered after a round."""
        try:
            return unpack(self._file(round).read_bytes(), "state")[2]["state"]
        except FileNotFoundError:
            raise DeclinedError(f"what was remembered after round {round} is gone", FORGOTTEN) from None

    def keep(self, round: int, state: State, last: int, oldest: int) -> None:
        """Remember this beside what it came from, `last`, and all that a server at `oldest` would go on from.

        Rounds after `last` didn't count. Those after this one are left alone: the question may be one that a
        server had sent before it was killed.
        """
        counted = [number for number in self._rounds() if number <= last]
        needed = max((number for number in counted if number <= oldest), default=0)
        for number in self._rounds():
            if number < needed or last < number < round:
                self._file(number).unlink(missing_ok=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self._folder)
        write_atomically(self._file(round), pack({}, {"state": state}, {}), sync=True)

    def _rounds(self) -> list[int]:
        return [int(file.stem) for file in self._folder.glob("*.safetensors") if file.stem.isdecimal()]

    def _file(self, round: int) -> Path:
        return self._folder / f"{round}.safetensors"


def _round(told: Tensor | None) -> int:
    """The number of a round; 0: none yet."""
    return 0 if told is None else int(told)


def _check_indices(indices: Tensor, size: int) -> None:
    wrong = indices.dtype != torch.int64 or indices.ndim != 1
    if wrong or (len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < size)):
        raise DataError(f"the server asks for samples that there aren't: there are {size}")


def _json(body: bytes) -> dict[str, Any]:
    try:
        asked = parse_json(body)
    except ValueError as error:
        raise DataError(f"message: can't be read ({error!r})") from None
    if not isinstance(asked, dict):
        raise DataError("message: not a question")
    return asked
