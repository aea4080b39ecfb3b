"""Flower's client: a module of its own, which the processes of the simulation import."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from contenders.task import Task

FOLDER = "PEERS_WORK"
"""The variable that names the folder of the work."""
app = ClientApp()


@cache
def task() -> Task:
    """The work, read once by each process."""
    return Task.read(Path(os.environ[FOLDER]))


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a client that has one core."""
    work, client = task(), int(context.node_config["partition-id"])
    model = work.model().train()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
    x, y = work.of(client)
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for rows in torch.split(torch.randperm(len(y)), work.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    found = RecordDict()
    found["arrays"] = ArrayRecord(model.state_dict())
    found["metrics"] = MetricRecord({"num-examples": len(y)})
    return Message(content=found, reply_to=message)
