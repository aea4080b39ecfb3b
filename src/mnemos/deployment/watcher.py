"""What is told about the owners of a federation."""

from __future__ import annotations

from collections.abc import Collection


class Watcher:
    """Is told which owners are connected and which have answered; this one does nothing."""

    @property
    def awaited(self) -> list[str]:
        """The names of the owners that haven't come yet, as far as they are known."""
        return []

    def joined(self, name: str) -> None:
        """An owner has joined with data that fit."""

    def refused(self, name: str, sentence: str) -> None:
        """An owner can't take part; the sentence says why."""

    def present(self, names: Collection[str]) -> None:
        """These owners are connected now."""

    def answered(self, name: str) -> None:
        """An owner has trained in the round that goes on."""

    def dropped(self, name: str, why: str) -> None:
        """The round that goes on has to do without an owner."""
