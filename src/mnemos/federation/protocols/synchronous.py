"""Synchronous rounds: the server sends its model to a cohort and waits for the answers."""

from __future__ import annotations

from collections.abc import Sequence

from mnemos.federation.groups import Group
from mnemos.federation.protocols.protocol import RoundProtocol
from mnemos.federation.retries import Retries
from mnemos.federation.round import GroupResult, RoundContext, RoundResult


class SynchronousRounds(RoundProtocol):
    """The server asks a whole cohort at once, and other clients if it gets too few updates."""

    def __init__(self, groups: Sequence[Group], retries: Retries) -> None:
        """`groups`: one for each model; an ordinary federation has one."""
        self._groups, self._retries = groups, retries

    def run(self, ctx: RoundContext) -> RoundResult:
        """Select a cohort; broadcast, train, screen and aggregate in each group."""
        failed: list[tuple[GroupResult, ...]] = []
        for attempt in self._retries.attempts(ctx.round, ctx.without):
            results = tuple(group.train(ctx, attempt) for group in self._groups)
            enough = (
                self._retries.enough(results, failed) if ctx.attempt is None else len(failed) == ctx.attempt
            )
            if enough:
                return RoundResult(results, tuple(failed))
            failed.append(results)
            ctx.client_states.drop()
            ctx = ctx.after_failed_attempt(results)
        raise self._retries.exhausted(ctx.round, failed)
