"""The interface of panels, and the registry that finds them.

A panel is one file in `report/panels`: it turns groups of runs into blocks, and gives none when the runs
don't have what it shows. The page, the figures and the tables come from the blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from mnemos.registry import Part, Registry
from mnemos.report.blocks import Block
from mnemos.report.groups import Group


class Panel(Part):
    """A section of the report."""

    title: ClassVar[str]
    order: ClassVar[int]
    """Where it stands: panels with smaller numbers come first."""

    @abstractmethod
    def blocks(self, groups: Sequence[Group]) -> Iterator[Block]:
        """What it has to show of these runs; nothing, if they don't have the data."""


panels: Registry[Panel] = Registry("panel", Panel, "mnemos.report.panels")
