"""The panel of configurations: the experiment of each group, and the commands to repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from mnemos.report.blocks import Block, Listing, Listings
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels


@panels.register("repeat")
class RepeatPanel(Panel):
    """The whole configuration of each group, commands, and versions."""

    title: ClassVar[str] = "Configuration"
    order: ClassVar[int] = 200

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A listing for each group."""
        if not groups:
            return
        yield Listings(
            id="repeat",
            title="Exact configuration, and how to reproduce it",
            text="The whole experiment of a group, with every default. Save it as experiment.yaml; the "
            "commands run it once for each seed.",
            note="With the same versions and engine, runs are reproducible bit for bit.",
            choice="group",
            items=tuple(_listing(group) for group in groups),
        )


def _listing(group: RunGroup) -> Listing:
    """A group's experiment as YAML, a command for each seed, and the versions that were used."""
    commands = []
    for reading in group.readings:
        words = ["mnemos", "run", "experiment.yaml", "--seed", str(reading.seed)]
        used = reading.engine.get("engine")
        if isinstance(used, dict) and type(reading.experiment.engine).name == "auto":
            words.append(f"engine={_flow(used)}")  # `auto` may choose another engine next time
        # Runs of a group may differ in these fields.
        for field in ("evaluate", "measures"):
            theirs = reading.experiment.model_dump(mode="json")[field]
            if theirs != group.experiment.model_dump(mode="json")[field]:
                words.append(f"{field}={_flow(theirs)}")
        commands.append(shlex.join(words))
    facts = []
    for key in ("mnemos", "python", "torch", "numpy", "platform", "cores", "started"):
        values = dict.fromkeys(
            str(reading.environment[key]) for reading in group.readings if key in reading.environment
        )
        if values:
            facts.append((key, " · ".join(values)))
    engines = dict.fromkeys(
        _engine(reading.engine["engine"])
        for reading in group.readings
        if isinstance(reading.engine.get("engine"), dict)
    )
    if engines:
        facts.append(("engine", " · ".join(engines)))
    devices = dict.fromkeys(str(reading.engine.get("device", "cpu")) for reading in group.readings)
    if devices.keys() - {"cpu"}:
        facts.append(("device", " · ".join(devices)))
    facts.append(("runs", " · ".join(reading.name for reading in group.readings)))
    parts = (("experiment.yaml", group.experiment.to_yaml()), ("commands", "\n".join(commands) + "\n"))
    return Listing(group.label, parts, tuple(facts), (group.id,))


def _flow(value: object) -> str:
    """A value as a command line takes it; JSON is YAML on one line."""
    return json.dumps(value)


def _engine(engine: dict[str, Any]) -> str:
    options = [f"{key} {value}" for key, value in engine.items() if key != "name" and value]
    return ", ".join([str(engine.get("name")), *options])
