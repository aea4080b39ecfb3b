"""The panel of differential privacy: the guarantee of each group of runs, and ε so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from mnemos.report.blocks import Block, Cell, Column, Row, Table, dash
from mnemos.report.groups import RunGroup
from mnemos.report.panel import Panel, panels


@panels.register("privacy")
class PrivacyPanel(Panel):
    """Runs with client-level differential privacy: ε, and the settings that it depends on."""

    title: ClassVar[str] = "Privacy"
    order: ClassVar[int] = 15

    def blocks(self, groups: Sequence[RunGroup]) -> Iterator[Block]:
        """A table with a row for each group."""
        rows = [row for group in groups if (row := _row(group)) is not None]
        if not rows:
            return
        yield Table(
            id="privacy",
            title="Client-level differential privacy",
            text="ε and δ of all models released so far, by the longest run of each group; noise in units "
            "of the longest allowed update, and in brackets the part added to updates if some of it "
            "went into the bound.",
            note="ε is an upper bound from Rényi differential privacy. It compares two federations that "
            "differ in one client, as the last column says, and holds against observers of the models "
            "who know neither the seed nor the cohorts. Losses, accuracies and counts in this report "
            "are not private.",
            columns=(
                Column("group"),
                Column("ε", "number"),
                Column("δ", "number"),
                Column("budget", "number", "ε that the run may not exceed"),
                Column("rounds", "number"),
                Column("noise", "number"),
                Column("clip", "number", "longest update"),
                Column("noise added by"),
                Column("secret", help="whether noise and cohorts were drawn with a secret"),
                Column("sampling"),
                Column("ε is about", help="how the two indistinguishable federations differ"),
            ),
            rows=tuple(rows),
        )


def _row(group: RunGroup) -> Row | None:
    """The row of a group, from the run that has gone furthest; None without a guarantee."""
    furthest = max(group.readings, key=lambda reading: len(reading.of("epsilon")))
    rows, facts = furthest.of("epsilon"), furthest.privacy
    if not len(rows) or not facts:
        return None
    epsilon, delta, budget = float(rows.value[-1]), facts["delta"], facts["budget"]
    added = f" ({facts['update_noise']:.3g})" if facts["adaptive"] else ""
    cells = (
        Cell(group.label, group.label),
        Cell(f"{epsilon:.3g}", epsilon),
        Cell(f"{delta:g}", delta),
        dash() if budget is None else Cell(f"{budget:g}", budget),
        Cell(str(furthest.rounds), furthest.rounds),
        Cell(f"{facts['noise']:.3g}{added}", facts["noise"]),
        _clip(furthest.of("clip").value.tolist(), facts),
        Cell(facts["at"], facts["at"]),
        *(Cell(text, text) for text in ("yes" if facts["secret"] else "no", facts["sampling"])),
        Cell(facts["relation"], facts["relation"]),
    )
    return Row(cells, (group.id,))


def _clip(bounds: list[float], facts: dict[str, Any]) -> Cell:
    """The clipping bound; its first and last value if it adapts."""
    last = bounds[-1]
    return Cell(f"{bounds[0]:.3g} → {last:.3g}" if facts["adaptive"] else f"{last:g}", last)
