"""The interface of protocols."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mnemos.federation.round import RoundContext, RoundResult


class RoundProtocol(ABC):
    """How a round proceeds, from the servers before it to its result."""

    @abstractmethod
    def run(self, ctx: RoundContext) -> RoundResult:
        """Run one round; new client states are held, not committed."""
