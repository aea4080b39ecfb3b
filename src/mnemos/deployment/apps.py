"""A federation as a Flower app: the code that its nodes and its server run."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from mnemos.common.devices import AUTO, find_devices
from mnemos.common.plain import line
from mnemos.deployment.conduct import Wait, conduct
from mnemos.deployment.grid import ENDED, RECORD, REFUSAL, ROUNDS, RUN, GridLink, body_of, packed
from mnemos.deployment.holder import REFUSED, DeclinedError, Holder
from mnemos.engines.flower import Kind
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment.experiment import load_experiment
from mnemos.runs.execute import Silent

_COUNT, _WORD = re.compile(r"[0-9]{1,9}"), 40
"""A number of rounds as a server says it, and the most characters of how a run ended."""
_LONGEST = 500
"""The most characters that are printed about a refusal."""


def client_app(holder_of: Callable[[Context], Holder], say: Callable[[str], None] = print) -> ClientApp:
    """The app of a node: `holder_of` returns the holder of its data, `say` is told about refusals."""
    app = ClientApp()

    def answers(kind: Kind) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            record = message.content.config_records.get(RECORD, ConfigRecord())
            run, body = record.get(RUN), body_of(message.content)
            ended, rounds = record.get(ENDED), record.get(ROUNDS)
            try:
                if not isinstance(run, str) or body is None:
                    raise MnemosError("the question can't be read")
                holder = holder_of(context)
                count = int(rounds) if isinstance(rounds, str) and _COUNT.fullmatch(rounds) else 0
                if isinstance(ended, str):
                    holder.end(run, line(ended, _WORD), count, body)
                    return Message(packed({}, b""), reply_to=message)
                holder.diary.rounds(count)
                reply = packed({}, holder.answer(kind, run, body))
            except MnemosError as error:
                say(f"refused: {line(str(error), _LONGEST)}")
                if error.__cause__ is not None:  # it may be a bug of Mnemos
                    traceback.print_exception(error.__cause__)
                # The sentence may name files or samples, so the server isn't told.
                why = error.why if isinstance(error, DeclinedError) else REFUSED
                reply = packed({REFUSAL: why}, b"")
            return Message(reply, reply_to=message)

        return handle

    app.query()(answers("query"))
    app.train()(answers("train"))
    app.evaluate()(answers("evaluate"))
    return app


def configured(context: Context) -> Holder:
    """The holder for a SuperNode's configuration: `data`, and optionally `name`, `folder` and `device`."""
    config = context.node_config
    data = config.get("data")
    if not isinstance(data, str):
        raise ConfigError("it names no 'data', an npz file or a folder of images", "node-config")
    name = str(config.get("name") or Path(data).stem)
    device = str(config.get("device") or AUTO)
    return _holder(data, str(config.get("folder") or "mnemos-client"), name, device)


@lru_cache(1)
def _holder(data: str, folder: str, name: str, device: str) -> Holder:
    (found,) = find_devices(device, "node-config: device")
    return Holder(data, Path(folder), name, device=found)


client = client_app(configured)
"""The app of nodes that are started with Flower's own commands."""


server = ServerApp()
"""The app of a server that is started with Flower's own commands."""


@server.main()
def _main(grid: Grid, context: Context) -> None:
    config = context.run_config
    experiment = load_experiment(str(config["experiment"]))
    wait = Wait(int(config["owners"]), float(config["wait"]))
    conduct(experiment, GridLink(grid), Path(str(config["out"])), wait, Silent(), print)
