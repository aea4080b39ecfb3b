"""How well a backdoor works."""

from __future__ import annotations

from collections.abc import Iterator

from mnemos.data.trigger import Mark
from mnemos.errors import ConfigError
from mnemos.measures.measure import Measure, Moment, Occasions, Record, measures


@measures.register("backdoor")
class BackdoorSuccess(Mark, Measure):
    """`backdoor_success`: the share of marked test samples of other classes that is predicted as `target`.

    It is recorded in rounds that test the model. Its mark must be that of the fault `backdoor`, if there is
    one.
    """

    @property
    def mark(self) -> Mark:
        """Its own options."""
        return self

    def check(self, occasions: Occasions) -> None:
        """Refuse a target that is no class, and experiments without a test."""
        classes = occasions.flow.setting.classes
        if self.target >= classes:
            raise ConfigError(f"found {self.target}; allowed: 0 to {classes - 1}", "target")
        if not occasions.tests:
            raise ConfigError("it marks test samples, and the model is never tested on any")

    def records(self, moment: Moment) -> Iterator[Record]:
        """The success rate after a round with a test."""
        if moment.test is None or moment.marked is None:
            return
        scores = moment.marked(self)
        if len(scores.labels):
            taken = scores.predicted == self.target
            yield Record(moment.round, "backdoor_success", float(taken.double().mean()))
