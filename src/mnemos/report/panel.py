"""The interface of panels, and the registry that finds them.

A panel is one file in `report/panels`. It turns groups of runs into blocks, or yields none if the runs don't
have what it shows. The page, the figures and the tables are drawn from the blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.common.registry import Part, Registry
from mnemos.report.blocks import Block
from mnemos.report.groups import RunGroup


class Panel(Part):
    """A section of the report."""

    title: ClassVar[str]
    order: ClassVar[int]
    """The panel's position: panels with smaller numbers come first."""

    @abstractmethod
    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """The blocks for these runs; none if they don't have the data."""


panels: Registry[Panel] = Registry("panel", Panel, "mnemos.report.panels")
