"""Sending runs to Weights & Biases, online or offline."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from mnemos.errors import ConfigError
from mnemos.runs.directory import Status
from mnemos.runs.run import Run
from mnemos.track.sink import FINAL, Channel, Sink, Values, keep_id, known_id, parameters, require, sinks

_PRIVATE = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "host": "",
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_viewer": True,
    "x_save_requirements": False,
}
"""Settings with which nothing about the machine, the code or the terminal is sent."""

_WAIT = 60.0
"""Seconds to wait at the end for uploads; what isn't uploaded stays on disk for `wandb sync`."""


@sinks.register("wandb")
class WeightsAndBiases(Sink):
    """Sends a history by round, and the experiment as configuration. Options default to W&B's settings."""

    project: str | None = Field(None, min_length=1)
    """The project; if left out, W&B's setting."""
    entity: str | None = Field(None, min_length=1)
    """The user or team; if left out, W&B's setting."""
    mode: Literal["online", "offline"] | None = None
    """Whether to send at once or keep for `wandb sync`; if left out, W&B's setting."""

    def check(self) -> None:
        """Check that W&B is installed and, online, that the user is logged in, so that it won't ask later."""
        wandb = _package()
        online = wandb.setup().settings.mode == "online" and self.mode != "offline"
        if online and not wandb.login(prompt=False, verify=False):
            raise ConfigError("you are not logged in to W&B; run 'wandb login', or set mode=offline")

    def open(self, run: Run, round: int) -> Channel:
        """Go on with W&B's run of the same id, or begin one."""
        wandb = _package()
        identifier = known_id(run, "wandb")
        if identifier is None:
            identifier = secrets.token_hex(4)
            keep_id(run, "wandb", identifier)
        mode = self.mode or wandb.setup().settings.mode
        return _History(
            wandb.init(
                project=self.project,
                entity=self.entity,
                mode=mode,
                id=identifier,
                name=run.path.name,
                dir=str(run.path),
                config=parameters(run.experiment),
                resume="allow" if mode == "online" else None,
                reinit="create_new",
                allow_val_change=True,
                settings=wandb.Settings(
                    silent=True, finish_timeout=_WAIT, finish_timeout_raises=True, **_PRIVATE
                ),
            )
        )


class _History:
    """A run in W&B."""

    def __init__(self, run: Any) -> None:
        self._run = run
        # Offline this is 0, so each offline folder of a resumed run has all its rounds. `wandb sync` needs
        # that: uploading a folder replaces what an earlier folder with the same id has uploaded.
        self.reached = max(int(run.starting_step) - 1, 0)

    def log(self, rounds: Mapping[int, Values]) -> None:
        """Log a step for each round."""
        for round, values in rounds.items():
            self._run.log(dict(values), step=round, commit=True)

    def close(self, status: Status) -> None:
        """Put the final accuracy and how the run ended into the summary."""
        self._run.summary["status"] = status.status
        if status.accuracy is not None:
            self._run.summary[FINAL] = status.accuracy
        self._run.finish(exit_code=0 if status.status == "finished" else 1)


def _package() -> Any:
    # W&B reads this from the environment only; the user's own value is kept.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    return require("wandb", "wandb")
