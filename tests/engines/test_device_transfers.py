"""How often something is sent to a device: once a round, whatever happens in its steps."""

from contextlib import closing

import pytest
import torch

from mnemos.data.load import load
from mnemos.engines.ray.worker import Data, Worker, as_text, own_of, shared_of
from mnemos.federation.federation import Federation
from support import pretend
from support.lenets import lenet

pretend.install()
DEVICE = torch.device("pretend", 0)


# A worker of a cluster.


class Here:
    """Data that is in this process."""

    def __init__(self, dataset):
        self._data = Data.of(dataset)

    def fetch(self):
        return self._data


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_worker_copies_a_rounds_model_once_to_its_device(method):
    """Each client after the first costs one transfer: its own samples' order, labels and state."""
    experiment = lenet("serial", "cpu", method=method)
    worker = Worker([], "pretend:0")
    worker._device = DEVICE
    worker.prepare(Here(load(experiment.data)), as_text(experiment.plan))
    with closing(Federation(experiment)) as federation, federation.open() as runner:
        requests = list(federation.requests(1, runner))
        layout = federation.layout
    shared = shared_of(requests[0], as_text(requests[0].plan), 1)
    ups, models = [], []
    for request in requests:
        own = own_of(request, requests[0])
        assert "model" not in own
        with pretend.counting() as found:
            worker.train(shared, own)
        ups.append(found().up)
        models.append(worker._mirror(worker_request(worker, own)).model.data_ptr())
    assert layout.size > 0
    assert len(set(models)) == 1
    received = len(requests[0].received)
    assert ups == [ups[-1] + 1 + received] + [ups[-1]] * (len(requests) - 1)
    assert ups[-1] == 1


def worker_request(worker, own):
    """The request that a worker has put together of its two parts."""
    from mnemos.client.messages import TrainRequest
    from mnemos.engines.ray.worker import SHARED, to_tensors

    common = {name: worker._shared[name] for name in SHARED}
    return TrainRequest(**{**common, **to_tensors(own)})
