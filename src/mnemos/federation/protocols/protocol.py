"""The interface of protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mnemos.federation.round import RoundContext, RoundResult


class RoundProtocol(ABC):
    """How a round proceeds, from the servers before it to what it has come to."""

    @abstractmethod
    def run(self, ctx: RoundContext) -> RoundResult:
        """One round; new client states are held, and not yet committed."""
