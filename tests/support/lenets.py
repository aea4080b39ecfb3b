"""Ten clients with LeNets on random images, all in every round: the experiment of the tests on devices."""

from contextlib import closing

import torch

from mnemos.data.dataset import Dataset, Source, Split
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from support import pretend


class Noise(Source):
    """Images of random bytes."""

    count: int
    side: int = 32

    def load(self):
        draw = torch.Generator().manual_seed(0)
        samples = torch.randint(256, (self.count, 3, self.side, self.side), generator=draw, dtype=torch.uint8)
        labels = torch.randint(10, (self.count,), generator=draw)
        scale = (127.5,) * 3
        return Dataset(
            "noise", Split(samples, labels), Split(samples[:9], labels[:9]), (*"abcdefghij",), scale, scale
        )


CLIENTS, BATCH, STEPS = 10, 8, 3


def lenet(engine, device="pretend", epochs=1, options=(), **changes):
    """An experiment with ten clients that make three steps an epoch; `options`: the engine's others."""
    return Experiment.model_validate(
        {
            "data": Noise(count=CLIENTS * BATCH * STEPS),
            "partition": {"name": "iid", "clients": CLIENTS, "validation": 0.0},
            "model": "lenet",
            "participation": 1.0,
            "rounds": 4,
            "local": {"epochs": epochs, "batch": BATCH},
            "evaluate": {"every": 4, "test_last": 0},
            "engine": {"name": engine, "device": device, **dict(options)},
            **changes,
        }
    )


def counted(experiment):
    """What the second round asks of the device."""
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        federation.advance(runner)
        with pretend.counting() as found:
            federation.advance(runner)
    return found()
