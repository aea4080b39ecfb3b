"""The owner's side of a federation: it answers the server's questions with its data, which stays there.

No code that comes from the server is run: a plan names parts that are installed here, and parts that are
given by import path are refused unless the owner allows them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from mnemos.client.evaluation import EvaluateReply, EvaluateRequest
from mnemos.client.messages import Plan, TrainRequest, reply_to_bytes
from mnemos.client.packing import pack, unpack
from mnemos.client.precision import tf32
from mnemos.client.trainer import Trainer, fresh_model, intra_op
from mnemos.common.devices import CPU
from mnemos.common.files import remove_unfinished, write_atomically
from mnemos.common.imports import by_name_alone
from mnemos.common.plain import parse_json
from mnemos.common.registry import Options
from mnemos.data.dataset import Dataset, Split
from mnemos.data.owned import Agreement, arranged, describe, runs
from mnemos.data.sources.elsewhere import Elsewhere
from mnemos.data.sources.owners import ReadingOptions
from mnemos.deployment.diary import Diary
from mnemos.engines.devices import Mirror, arithmetic_on, deterministic
from mnemos.engines.flower import OLDEST, ROUND, Kind
from mnemos.errors import DataError, MnemosError
from mnemos.measures.evaluate import Evaluator
from mnemos.measures.measure import Scores
from mnemos.measures.personalised import personalised
from mnemos.methods.exchange import State

REFUSED, UNUSABLE, CHANGED, FORGOTTEN = WHY = (
    "refused",
    "its data can't be used",
    "its data has changed",
    "its memory is gone",
)
"""The only reasons that a server is told for a refusal; whole sentences could name files or samples."""

_BUFFERS = "holder.buffers"
_RUN = re.compile(r"\w[\w.-]{0,199}")


class DeclinedError(DataError):
    """A question is refused for a reason that the server is told, one of `WHY`."""

    def __init__(self, sentence: str, why: str) -> None:
        super().__init__(sentence)
        self.why = why


class Question(Options):
    """A question to an owner before the first round."""

    reading: ReadingOptions | None = None
    """How the owner is to read its data; None if it is asked for its name alone."""
    classes: tuple[str, ...] = ()
    tasks: tuple[tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...], ...] = ()
    """The classes of each task, if there are tasks."""


class Holder:
    """An owner's data and its client's states; answers the server's questions."""

    def __init__(
        self,
        path: str,
        folder: Path,
        name: str = "",
        plugins: bool = False,
        device: torch.device = CPU,
        diary: Diary | None = None,
    ) -> None:
        """`path` has the data, `folder` the states; `plugins` allows plans to name parts by import path.

        `device` is where the owner's client trains and evaluates, whatever the server's plan names. `diary`
        tells the owner what was asked.
        """
        self.path, self.name, self._folder, self._plugins = path, name, folder, plugins
        self.device, self.diary = device, diary or Diary()
        self.share_counts = False
        """Whether the server is told how many training samples of each class there are."""
        self._trainer: tuple[Plan, Trainer] | None = None
        self._evaluated: Split | None = None

    def answer(self, kind: Kind, run: str, body: bytes) -> bytes:
        """The answer to a question of a run; any error is raised as a MnemosError."""
        try:
            # This covers more than reading the plan, because an optimiser is imported when it is first used.
            with nullcontext() if self._plugins else by_name_alone():
                return self._answer(kind, run, body)
        except MnemosError:
            raise
        except Exception as error:  # a question that is wrong can fail anywhere
            raise MnemosError(f"that can't be done here ({type(error).__name__}: {error})") from error

    def end(self, run: str, status: str, rounds: int, model: bytes) -> None:
        """Take note of how a run has ended; keep its model, a safetensors file, if there is one."""
        path = None
        if model:
            _check_run(run)
            try:
                load(model)  # so that a file that can't be read isn't kept
            except SafetensorError as error:
                raise DataError(f"the server sends a model that can't be read ({error})") from None
            path = self._folder / run / "model.safetensors"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, model)
        self.diary.ended(status, rounds, path)

    def _answer(self, kind: Kind, run: str, body: bytes) -> bytes:
        if kind == "query":
            return json.dumps(self._query(Question.parse(_json(body)))).encode()
        _check_run(run)
        if kind == "train":
            return self._train(run, TrainRequest.from_bytes(body))
        return self._evaluate(EvaluateRequest.from_bytes(body))

    def _query(self, asked: Question) -> dict[str, Any]:
        """The owner's name and a description of its data; for a question with tasks, its samples' tasks."""
        if asked.reading is None:
            return {"owner": self.name}
        with _using():
            own = _read(asked.reading, self.path)
            self.diary.described(len(own.train) + len(own.test))
            if not asked.tasks:
                return {"owner": self.name, **describe(own, counts=self.share_counts).model_dump(mode="json")}
            # Only labels matter here, so the owner's own scale will do.
            dataset = arranged(own, Agreement(asked.classes, own.mean, own.std))
        first = np.zeros(len(asked.classes), np.int64)
        for task in asked.tasks:
            for label in task:
                if label < len(first):
                    first[label] = task[0]
        return {"tasks": runs(first[dataset.train.labels.numpy()])}

    def _train(self, run: str, request: TrainRequest) -> bytes:
        """Train, keep the client's state, and return the update."""
        begin = time.perf_counter()
        self.diary.asked("train", request.round)
        dataset = self._dataset(request.plan)
        _check_indices(request.samples, len(dataset.train))
        _check_indices(request.held_out, len(dataset.train))
        if request.label_map is not None or request.trigger is not None:
            raise DataError("the server asks for labels that the samples don't have")
        request = replace(request, plan=self._own(request.plan))
        if self._trainer is None or self._trainer[0] != request.plan:
            self._trainer = request.plan, Trainer(request.plan, dataset, self.device)
        trainer = self._trainer[1]
        method, memory = request.plan.method, _Memory(self._folder / run / str(request.client))
        state = method.client_state(trainer.bound.layout)
        remembers = bool(state) or method.buffers.local or request.plan.local.keeps
        last, oldest = (_round(request.state.get(name)) for name in (ROUND, OLDEST))
        self._check_same(run, request.plan, fresh=not last)
        if remembers and last:
            state = memory.recall(last)
        buffers = state.pop(_BUFFERS, request.buffers)
        arithmetic = request.plan.arithmetic
        with (
            intra_op(arithmetic.intra_op),
            deterministic(arithmetic.deterministic),
            tf32(False, self.device),
        ):
            update = trainer(Mirror(self.device)(replace(request, state=state, buffers=buffers)))
        if remembers:
            own = {_BUFFERS: update.buffers} if method.buffers.local else {}
            memory.keep(request.round, {**update.state, **own}, last, oldest)
        self.diary.trained(update.samples, update.steps, update.loss, time.perf_counter() - begin)
        sent = update.buffers if method.buffers.sent else update.buffers[:0]
        return reply_to_bytes(replace(update, state={}, buffers=sent))

    def _own(self, plan: Plan) -> Plan:
        """The plan with the arithmetic of the owner's own device."""
        return plan.model_copy(update={"arithmetic": arithmetic_on(self.device.type, plan.arithmetic)})

    def _evaluate(self, request: EvaluateRequest) -> bytes:
        """Evaluate a model, and return counts."""
        self.diary.asked("evaluate")
        dataset = self._dataset(request.plan)
        split = dataset.test if request.part == "test" else dataset.train
        _check_indices(request.samples, len(split))
        method = request.plan.method
        module = fresh_model(request.plan, dataset)
        batches, read = method.buffers.in_batches, method.head.read
        evaluator = Evaluator(module, dataset, batches, read, self.device)
        self._evaluated = split.on(self.device)  # so that it stays there for the next time
        with closing(evaluator), tf32(False, self.device):
            scores = evaluator(request.model, request.buffers, split, request.samples)
        right, samples = int(scores.hits.sum()), len(request.samples)
        self.diary.evaluated(request.part, right, samples, clients_model=request.clients_model)
        loss = float(scores.losses.double().sum())
        counts = None if request.groups is None else scores.counts(request.groups)
        corrected = None if request.known is None else _corrected(scores, dataset, request.known)
        return EvaluateReply(len(request.samples), int(scores.hits.sum()), loss, counts, corrected).to_bytes()

    def _dataset(self, plan: Plan) -> Dataset:
        """The owner's data, with the classes and the scale that the federation has agreed on."""
        if not isinstance(plan.data, Elsewhere):
            raise DataError("the server names data of its own; expected is that of its owners")
        with _using():
            dataset = _arranged(plan.data.reading, self.path, plan.data.agreement)
        found = len(dataset.train), len(dataset.test)
        # With other data, indices would mean other samples, perhaps some that are held out.
        if found not in [(owner.train, owner.test) for owner in plan.data.owners]:
            raise DeclinedError(
                f"its data has changed since the run began: there are {found[0]} and {found[1]} samples",
                CHANGED,
            )
        return dataset

    def _check_same(self, run: str, plan: Plan, fresh: bool) -> None:
        """Raise a DeclinedError if the samples aren't those of the client's first round in the run."""
        assert isinstance(plan.data, Elsewhere)
        file, found = self._folder / run / "data", _fingerprint(plan.data.reading, self.path)
        if fresh or not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, found.encode())
        elif file.read_text() != found:
            raise DeclinedError("its data has changed since the run began: the samples differ", CHANGED)


@contextmanager
def _using() -> Iterator[None]:
    """Around the use of an owner's data: the server is told that they can't be used, but not why."""
    try:
        yield
    except MnemosError as error:
        raise DeclinedError(str(error), UNUSABLE) from None


def _corrected(scores: Scores, dataset: Dataset, known: Tensor) -> int:
    """The number of right answers, once they are corrected for the labels of the training samples `known`."""
    _check_indices(known, len(dataset.train))
    counts = dataset.train.labels[known].bincount(minlength=len(dataset.classes))
    owner = np.zeros(len(scores.labels), np.int64)
    predicted = personalised(scores.logits, counts.numpy()[None], owner)
    return int(np.count_nonzero(predicted == scores.labels.numpy()))


@lru_cache(1)
def _read(reading: ReadingOptions, path: str) -> Dataset:
    if reading.text is not None and isinstance(reading.text.words, str):
        raise DataError("the server names a file of words on this machine; expected are the words themselves")
    return reading.own(path)


@lru_cache(1)
def _fingerprint(reading: ReadingOptions, path: str) -> str:
    dataset, digest = _read(reading, path), hashlib.sha256()
    for split in (dataset.train, dataset.test):
        for tensor in (split.samples, split.labels):
            digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


@lru_cache(1)
def _arranged(reading: ReadingOptions, path: str, agreement: Agreement) -> Dataset:
    return arranged(_read(reading, path), agreement)


class _Memory:
    """A client's states after its last rounds, in files.

    The server says from the state of which round a client goes on: the last whose update counted. A round
    whose update doesn't count (it was rejected, its answer was lost, or the server was killed and doesn't
    know about it) leaves the states before it as they were.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, round: int) -> State:
        """The state after a round; a DeclinedError if it is gone."""
        try:
            return unpack(self._file(round).read_bytes(), "state")[2]["state"]
        except FileNotFoundError:
            raise DeclinedError(f"the state after round {round} is gone", FORGOTTEN) from None

    def keep(self, round: int, state: State, last: int, oldest: int) -> None:
        """Keep the state after `round`, and delete states that aren't needed any more.

        The training began with the state of round `last`, so rounds between `last` and `round` didn't count.
        The server may go back as far as round `oldest`, so the states since then are kept. States after
        `round` are kept too: this question may be one that the server sent before it was killed.
        """
        counted = [kept for kept in self._rounds() if kept <= last]
        needed = max((kept for kept in counted if kept <= oldest), default=0)
        for kept in self._rounds():
            if kept < needed or last < kept < round:
                self._file(kept).unlink(missing_ok=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self._folder)
        write_atomically(self._file(round), pack({}, {"state": state}, {}), sync=True)

    def _rounds(self) -> list[int]:
        return [int(file.stem) for file in self._folder.glob("*.safetensors") if file.stem.isdecimal()]

    def _file(self, round: int) -> Path:
        return self._folder / f"{round}.safetensors"


def _round(told: Tensor | None) -> int:
    """A round as a whole number; 0 for None, before the first."""
    return 0 if told is None else int(told)


def _check_indices(indices: Tensor, size: int) -> None:
    """Raise a DataError unless these are indices of `size` samples."""
    wrong = indices.dtype != torch.int64 or indices.ndim != 1
    if wrong or (len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < size)):
        raise DataError(f"the server asks for samples that don't exist: there are {size}")


def _check_run(run: str) -> None:
    """Raise a DataError unless a run's name can be a folder's."""
    if not _RUN.fullmatch(run):
        raise DataError(f"the server calls its run {run!r}, which is no name for a folder")


def _json(body: bytes) -> dict[str, Any]:
    try:
        asked = parse_json(body)
    except ValueError as error:
        raise DataError(f"message: can't be read ({error!r})") from None
    if not isinstance(asked, dict):
        raise DataError("message: not a question")
    return asked
