"""Owners of texts: the experiment gives one vocabulary for all; a federation ends as the laboratory does."""

import csv

import pytest
import torch

from mnemos.data.load import load
from mnemos.data.messages import messages
from mnemos.data.sources.owners import Owners
from mnemos.data.sources.text import SharedTexts
from mnemos.deployment.enrol import among, described, question
from mnemos.deployment.holder import Holder, Question
from mnemos.errors import DataError
from support.owners import joined
from support.play import play, small

LENGTH = 12


@pytest.fixture
def owners(tmp_path):
    """Three writers' messages, a table each, and a file of words."""
    paths = []
    for name in ("british-00", "american-00", "british-01"):
        path = tmp_path / f"{name}.csv"
        with path.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["text", "label", "writer"])
            table.writerows(message for message in messages(4, 40) if message.owner == name)
        paths.append(path)
    words = sorted({word for message in messages(2, 40) for word in message.text.replace(",", "").split()})
    (tmp_path / "words.txt").write_text("\n".join(words))
    return sorted(paths), tmp_path / "words.txt"


def experiment(owners, paths=()):
    data = {
        "name": "owners",
        "text": {"words": str(owners[1]), "length": LENGTH},
        "paths": [*map(str, paths)],
    }
    partition, method = {"name": "natural", "validation": 0.2}, {"name": "scaffold", "loss": "wsm"}
    return small(data=data, partition=partition, model="text", method=method, rounds=2)


def test_a_federation_of_texts_ends_as_the_laboratory(owners, tmp_path):
    paths, file = owners
    remote, _ = joined(experiment(owners), paths, tmp_path / "states")
    federation, outcomes = play(remote, 2)
    laboratory, same = play(experiment(owners, paths), 2)
    assert torch.equal(federation.server.model, laboratory.server.model)
    accuracies = [
        [record.value for record in found[-1].records if record.name == "test_accuracy"]
        for found in (outcomes, same)
    ]
    assert accuracies[0] == accuracies[1] != []
    words = tuple(file.read_text().split())
    assert load(remote.data).vocabulary.words == words
    assert load(Owners(**dict(experiment(owners, paths).data))).vocabulary.words == words


def test_owners_of_something_else_are_refused(owners, tmp_path):
    """Numbers among texts, texts of another length, and a server that names a file on the owner's machine."""
    paths, file = owners
    answers = {
        name: Holder(str(paths[0]), tmp_path / "states", name).answer(
            "query", "", question(experiment(owners))
        )
        for name in ("a", "b")
    }
    known = {name: described(name, answer) for name, answer in answers.items()}
    assert (known["a"].kind, known["a"].shape, known["a"].mean) == ("int32", (LENGTH,), ())
    for change, sentence in (
        (
            {"kind": "float32", "mean": (0.0,) * 12, "variance": (1.0,) * 12},
            "the experiment is for texts of 12 words",
        ),
        ({"shape": (9,)}, "the experiment is for texts of 12 words"),
        ({"mean": (0.0,)}, "a has a mean of 1 numbers; 0 are expected"),
    ):
        wrong = {"a": known["a"].model_copy(update=change)}
        with pytest.raises(DataError, match=sentence):
            among(experiment(owners), wrong, dict)
    asked = Question(
        reading=Owners(text=SharedTexts(words=str(file))).reading.model_copy(
            update={"text": SharedTexts(words=str(file))}
        )
    )
    with pytest.raises(DataError, match="names a file of words on this machine"):
        Holder(str(paths[0]), tmp_path / "s").answer("query", "", asked.model_dump_json().encode())
