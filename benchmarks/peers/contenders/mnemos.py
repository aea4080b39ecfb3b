"""Mnemos, with everything at its default: the engine is `auto`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from contenders.stored import experiment
from contenders.task import Task, place
from contenders.turns import Turns
from mnemos.client.trainer import fresh_model
from mnemos.federation.federation import Federation


def main() -> None:
    turns, folder = Turns(), Path(sys.argv[1])
    task = Task.read(folder)
    model = task.model()
    with closing(Federation(experiment(folder, task.settings))) as federation, federation.open() as runner:
        names = list(fresh_model(federation.plan, federation.dataset).state_dict())
        turns.ready()
        for _ in turns:
            federation.advance(runner)
            turns.stop_clock()
            server = federation.server
            state = federation.layout.state_dict(server.model, server.buffers)
            place(model, [state[name] for name in names])
            turns.answer(task.loss(model), f"engine {type(runner.engine).name}")


if __name__ == "__main__":
    main()
