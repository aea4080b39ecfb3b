"""A federation as a Flower app: what its nodes and its server run."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from mnemos.engines.flower import Kind
from mnemos.errors import ConfigError, MnemosError
from mnemos.experiment import load_experiment
from mnemos.federate.conduct import Wait, conduct
from mnemos.federate.grid import RECORD, REFUSAL, RUN, GridLink, body_of, packed
from mnemos.federate.holder import REFUSED, DeclinedError, Holder
from mnemos.plain import line
from mnemos.runs.execute import Silent

_LONGEST = 500
"""Characters of why something was refused."""


def client_app(holder_of: Callable[[Context], Holder], say: Callable[[str], None] = print) -> ClientApp:
    """The app of a node, whose data a holder has; says what was refused."""
    app = ClientApp()

    def answers(kind: Kind) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            record = message.content.config_records.get(RECORD, ConfigRecord())
            run, body = record.get(RUN), body_of(message.content)
            try:
                if not isinstance(run, str) or body is None:
                    raise MnemosError("the question can't be read")
                reply = packed({}, holder_of(context).answer(kind, run, body))
            except MnemosError as error:
                say(f"refused: {line(str(error), _LONGEST)}")
                if error.__cause__ is not None:  # perhaps a mistake of ours
                    traceback.print_exception(error.__cause__)
                # The sentence may name files, or speak of samples: it stays here.
                why = error.why if isinstance(error, DeclinedError) else REFUSED
                reply = packed({REFUSAL: why}, b"")
            return Message(reply, reply_to=message)

        return handle

    app.query()(answers("query"))
    app.train()(answers("train"))
    app.evaluate()(answers("evaluate"))
    return app


def configured(context: Context) -> Holder:
    """The holder that a SuperNode's configuration speaks of: `data`, and perhaps `name` and `folder`."""
    config = context.node_config
    data = config.get("data")
    if not isinstance(data, str):
        raise ConfigError("it names no 'data', an npz file or a folder of images", "node-config")
    name = str(config.get("name") or Path(data).stem)
    return _holder(data, str(config.get("folder") or "mnemos-client"), name)


@lru_cache(1)
def _holder(data: str, folder: str, name: str) -> Holder:
    return Holder(data, Path(folder), name)


client = client_app(configured)
"""For nodes that are started with Flower's own commands."""


server = ServerApp()
"""For a SuperLink that is started with Flower's own commands."""


@server.main()
def _main(grid: Grid, context: Context) -> None:
    config = context.run_config
    experiment = load_experiment(str(config["experiment"]))
    wait = Wait(int(config["owners"]), float(config["wait"]))
    conduct(experiment, GridLink(grid), Path(str(config["out"])), wait, Silent(), print)
