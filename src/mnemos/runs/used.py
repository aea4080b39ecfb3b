"""What a run's rounds were computed with: its engine and devices, as engine.json keeps them."""

from __future__ import annotations

from typing import Any

import torch

from mnemos.common.devices import describe, device_names, find_devices
from mnemos.engines.engine import Engine, Runner, engines
from mnemos.errors import ConfigError, DataError
from mnemos.runs.run import Run

FILE = "engine.json"
_LISTED = "used"


class UsedDevices:
    """The devices that a run's rounds were done on: what engine.json says, and what it says next."""

    def __init__(self, run: Run) -> None:
        self._run = run
        known = _read(run)
        self._engine = known.get("engine")
        self._device = known.get("device")
        used = known.get(_LISTED)
        self._used = [entry for entry in used if isinstance(entry, dict)] if isinstance(used, list) else []

    def note(self, runner: Runner, round: int) -> bool:
        """Write engine.json if a round was done otherwise than the one before; whether the engine is new."""
        entry = _entry(runner)
        engine = runner.engine.dump()
        new = engine != self._engine
        last = self._used[-1] if self._used else {}
        # A round that is done again, after a resume from an older checkpoint, replaces what was known of it.
        if new or _without_round(last) != entry or _round_of(last) > round:
            before = [known for known in self._used if _round_of(known) < round]
            self._used = [*before, {"round": round, **entry}]
            self._engine, self._device = engine, entry["name"]
            self._run.write_json(
                FILE,
                {
                    "engine": engine,
                    "arithmetic": runner.plan.arithmetic.model_dump(mode="json"),
                    "why": runner.why,
                    "device": self._device,
                    _LISTED: self._used,
                },
            )
        return new

    def change(self, runner: Runner, round: int) -> str:
        """A warning if rounds from `round` on aren't done on the device of those before; else empty."""
        if not self._used:
            return ""
        entry = _entry(runner)
        # Another device of the same kind and name has the same arithmetic.
        if self._device == entry["name"]:
            return ""
        before = _called(self._used[-1].get("device"), self._device)
        now = _called(entry["device"], entry["name"])
        return (
            f"engine.device: rounds before {round} were done on {before}, those from {round} on are done "
            f"on {now}: last bits differ"
        )


def engine_for(run: Run, engine: Engine, first: Engine, device: str | list[str] | None) -> Engine:
    """The engine that a run goes on with: `engine`, on other devices if these are asked for.

    `first` is the experiment's own engine, which chooses again if `engine` takes no device. Raises a
    ConfigError that says where the run was made and what there is, if a device isn't there.
    """
    if device is not None:
        if not engine.devices_elsewhere:
            find_devices(device)
        if not engine.takes_device() and device != "cpu":
            engine = first
        if engine.takes_device() or device != "cpu":
            engine = engines.parse({**engine.dump(), "device": device})
        return engine
    try:
        _ = engine.devices
    except ConfigError:
        there = device_names()
        was = _called(engine.dump().get("device"), _read(run).get("device"))
        made = "was made on" if run.saved_rounds else "is to be made on"
        raise ConfigError(
            f"the run {made} {was}, which isn't here; there is {', '.join(there)}; "
            f"'mnemos resume {run.path} --device {there[-1]}' continues there, with different last bits",
            "engine.device",
        ) from None
    return engine


def _entry(runner: Runner) -> dict[str, Any]:
    """What decides about the last bits of a round, beside the engine's options."""
    device, name = _names(runner.engine)
    if device == "cpu":  # or what workers elsewhere have found
        device = name = runner.plan.arithmetic.device
    return {
        "device": device,
        "name": name,
        "precision": runner.plan.arithmetic.precision,
        "deterministic": runner.plan.arithmetic.deterministic,
        "torch": torch.__version__,
    }


def _names(engine: Engine) -> tuple[str | list[str], str]:
    """(the names of an engine's devices, what the devices call themselves)."""
    devices = engine.devices
    names = [str(device) for device in devices]
    called = dict.fromkeys(describe(device) for device in devices)
    return names[0] if len(names) == 1 else names, ", ".join(called)


def _called(device: object, name: object) -> str:
    """`cuda:0 (NVIDIA A100-SXM4-40GB)`, or the name alone if the device doesn't call itself anything else."""
    names = ", ".join(map(str, device)) if isinstance(device, list | tuple) else str(device or "cpu")
    return f"{names} ({name})" if isinstance(name, str) and name not in {"", names} else names


def _read(run: Run) -> dict[str, Any]:
    """The content of engine.json; empty if there is none, or if it is damaged."""
    try:
        return run.read_json(FILE)
    except DataError:
        return {}


def _round_of(entry: dict[str, Any]) -> int:
    round = entry.get("round")
    return round if isinstance(round, int) else 0


def _without_round(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "round"}
