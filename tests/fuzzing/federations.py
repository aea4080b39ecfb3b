"""What owners and the server of a federation hear from each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from fuzzing import tensors
from fuzzing.attempt import Target
from fuzzing.inputs import as_json, changes, deep_json
from mnemos.client.evaluation import EvaluateReply
from mnemos.client.packing import pack
from mnemos.data.owned import agree
from mnemos.data.sources.npz import write_npz
from mnemos.deployment.enrol import among, described, question
from mnemos.deployment.holder import Holder, Question
from mnemos.engines.engine import Lost
from mnemos.engines.flower import Kind
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.measures.counting import Counts, Groups

_QUESTION = {"reading": {"test": 0.2}, "classes": ["0", "1", "2"], "tasks": [[0, 1], [2]]}


class _Overheard:
    """A link to one holder, of which the questions are kept."""

    def __init__(self, holder: Holder) -> None:
        self.holder, self.asked = holder, dict[str, bytes]()

    def ask(self, kind: Kind, questions, timeout):  # type: ignore[no-untyped-def]
        for client, body in questions.items():
            self.asked[kind] = body
            yield client, Lost(client, "timeout")


def train(folder: Path) -> Target:
    """A task, up to its answer."""
    return _asked(folder, "train")


def evaluate(folder: Path) -> Target:
    """A model to evaluate, up to the tally."""
    return _asked(folder, "evaluate")


def query(folder: Path) -> Target:
    """What an owner is asked before the first round."""
    holder, sample = _holder(folder), as_json(_QUESTION)
    nasty = [b"", b"null", b"[]", b"{}", deep_json(), as_json({**_QUESTION, "tasks": [[]]})]
    nasty += [as_json({**_QUESTION, "tasks": [[2**70]]}), as_json({**_QUESTION, "classes": ["0", "0"]})]
    return Target(
        lambda body: holder.answer("query", "run", body), changes(_QUESTION).map(as_json), [sample], nasty
    )


def description(folder: Path) -> Target:
    """What an owner says of its data, and that beside others'."""
    holder = _holder(folder)
    sample = holder.answer("query", "", Question(reading={}).model_dump_json().encode())
    known, honest = json.loads(sample), described("honest", sample)
    nasty = [b"", b"null", b"[]", b"{}", deep_json(), as_json({**known, "train": 2**70})]
    nasty += [as_json({**known, "mean": [float("nan")]}), as_json({**known, "shape": [10**6] * 3})]

    def read(answer: bytes) -> None:
        agree({"a": described("a", answer), "honest": honest})

    return Target(read, changes(known).map(as_json), [sample], nasty)


def tally(folder: Path) -> Target:
    """How a model did at an owner."""
    counts = Counts(10, torch.tensor([6, 3]), torch.tensor([[5, 2], [6, 0]]))
    samples = [EvaluateReply(10, 7, 3.5).to_bytes(), EvaluateReply(10, 7, 3.5, counts).to_bytes()]
    header = {"samples": 10, "hits": 2, "loss": 0.0}
    nasty = [pack({}, {}, {**header, "hits": 11}), pack({}, {}, {**header, "loss": float("nan")})]
    most = torch.full((2,), 2**63 - 1)  # their sum is below zero
    nasty += [pack({"sizes": most, "right": most[None]}, {}, header), pack({"sizes": most}, {}, header)]
    return Target(EvaluateReply.from_bytes, tensors.files(samples, "mnemos"), samples, nasty)


def _holder(folder: Path) -> Holder:
    generator = np.random.default_rng(0)
    data = (generator.integers(0, 256, (12, 2, 2), np.uint8), np.arange(12) % 3)
    return Holder(str(write_npz(folder / "own.npz", data, data)), folder / "memory", "a")


def _asked(folder: Path, kind: Kind) -> Target:
    holder = _holder(folder)
    experiment = Experiment.parse(
        {
            "data": "owners",
            "partition": {"name": "natural", "validation": 0.2},
            "model": {"name": "mlp", "hidden": [2]},
            "method": "scaffold",
            "local": {"steps": 1, "batch": 4},
            "participation": 1.0,
            "retries": 0,
            "rounds": 1,
        }
    )
    answer = holder.answer("query", "", question(experiment))
    remote = among(experiment, {"a": described("a", answer)}, lambda _body: {})
    link = _Overheard(holder)
    federation = Federation(remote.model_copy(update={"engine": remote.engine.over(link)}))  # type: ignore[attr-defined]
    with federation.open() as runner:
        list(runner.run(federation.requests(1, runner)))
        scores = federation.evaluation.evaluate(federation.servers, federation.dataset.test).together
        scores.counts(Groups.of_classes(scores.classes))
    federation.close()
    sample = link.asked[kind]
    return Target(
        lambda body: holder.answer(kind, "run", body),
        tensors.files([sample], "mnemos"),
        [sample],
        tensors.nasty(sample, "mnemos"),
    )
