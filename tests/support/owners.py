"""Three owners with data of their own, for the tests of federations."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from mnemos.data.sources.npz import write_npz
from mnemos.deployment.enrol import among, described, question
from mnemos.deployment.holder import Holder
from mnemos.engines.engine import Lost


def images(path: Path) -> Path:
    """The samples of an npz file as a folder of images."""
    with np.load(path) as arrays:
        samples, labels = arrays["x_train"], arrays["y_train"]
    folder = path.with_suffix("")
    for number, (sample, label) in enumerate(zip(samples, labels, strict=True)):
        file = folder / str(label) / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sample).save(file)
    return folder


def folders(folder: Path, sizes=(60, 90, 120)) -> list[Path]:
    """An npz file of digits for each owner, in random order, each without some class."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    paths, start = [], 0
    for number, size in enumerate(sizes):
        own = order[start : start + size]
        own = own[digits.target[own] != number]
        start += size
        images = digits.images[own].astype(np.uint8) * 15
        path = folder / f"{'abcdefgh'[number]}.npz"
        paths.append(write_npz(path, (images, digits.target[own]), classes=[f"{n}" for n in range(10)]))
    return paths


class Direct:
    """A link to holders in the same process."""

    def __init__(self, holders, run="run"):
        self.holders, self.run, self.asked, self.gone, self.late = holders, run, [], set(), set()

    def ask(self, kind, questions, timeout):
        # Backwards, as answers may come in any order.
        for client, body in reversed(list(questions.items())):
            self.asked.append((kind, client, len(body)))
            if client in self.gone:
                yield client, Lost(client, "timeout")
                continue
            answer = self.holders[client].answer(kind, self.run, body)
            yield client, Lost(client, "timeout") if client in self.late else answer


def joined(experiment, paths, folder, device="cpu", sharing=()):
    """The experiment among these owners, and a link to them; `device` is where all of them train.

    `sharing` are the names of the owners that share how many samples of each class they have.
    """
    own = torch.device(device)
    holders = [Holder(str(path), folder / path.stem, path.stem, device=own) for path in paths]

    for holder in holders:
        holder.share_counts = holder.name in sharing

    def ask(body):
        return {holder.name: holder.answer("query", "", body) for holder in holders}

    answers = ask(question(experiment))
    owners = {name: described(name, answer) for name, answer in answers.items()}
    remote, link = among(experiment, owners, ask), Direct(holders)
    return remote.model_copy(update={"engine": remote.engine.over(link)}), link
