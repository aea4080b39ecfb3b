"""Clients that are away for some rounds."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator, model_validator

from mnemos.errors import ConfigError
from mnemos.faults.fault import Fault, faults


@faults.register("absent")
class Absent(Fault):
    """Named clients vanish in some rounds, or in all: the server gets no update of theirs and doesn't wait.

    It can be given several times, for other clients in other rounds. Under an asynchronous clock the rounds
    are those in which a client is sent the model.
    """

    several: ClassVar[bool] = True

    who: tuple[int, ...] = Field(min_length=1, description="the clients, by their numbers")
    first: int = Field(1, ge=1, description="the first round that they are away")
    last: int | None = Field(None, ge=1, description="the last such round; by default, the run's last")

    @field_validator("who")
    @classmethod
    def _each_once(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _in_order(self) -> Absent:
        if self.last is not None and self.last < self.first:
            raise ValueError(f"found first: {self.first} and last: {self.last}; allowed: last from first on")
        return self

    def check_population(self, clients: int) -> None:
        """Refuse clients that there aren't."""
        unknown = [client for client in self.who if not 0 <= client < clients]
        if unknown:
            raise ConfigError(f"found client {unknown[0]}; the clients are 0 to {clients - 1}", "who")

    def vanishes(self, client: int, round: int, seed: int, attempt: int) -> bool:
        """Whether it is one of them, in one of these rounds."""
        within = self.first <= round and (self.last is None or round <= self.last)
        return within and client in self.who
