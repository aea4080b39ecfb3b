"""Claims as tables in Markdown: verdicts and effects beside the papers'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from claim_runs import Line
from effects import Verdict
from verdicts import Claim, Decided, Elsewhere, Part, decide, outcome

NOTHING = "–"
_HEADER = (
    "#",
    "claim",
    "verdict",
    "effect (95 % interval)",
    "paper's effect",
    "runs",
    "core hours",
    "command",
)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(claims: Iterable[Claim], lines: Sequence[Line]) -> str:
    """A line a claim, and one for each of its parts."""
    rows: list[tuple[str, ...]] = []
    for claim in claims:
        parts = decide(claim, lines)
        hours = f"{spent(parts):.1f} of about {claim.hours:g}" if claim.hours else NOTHING
        title = f"**{claim.title}** ({claim.source}). {claim.setting}."
        number = f"**[{claim.number}](claims/{page_name(claim)})**"
        rows.append((number, title, whole(claim, parts), "", "", "", hours, ""))
        for part in parts:
            command = f"`mnemos reproduce {part.part.recipe}`"
            rows.append(("", part.part.says, *answer(part), "", command))
        rows += [("", one.says, *answer_elsewhere(one, ""), "", "") for one in claim.elsewhere]
    return markdown(_HEADER, rows)


def state(claims: Iterable[Claim], lines: Sequence[Line]) -> str:
    """How far it has come, in two sentences."""
    parts = [part for claim in claims for part in decide(claim, lines)]
    decided = sum(part.verdict != Verdict.RUNNING for part in parts)
    commits = ", ".join(dict.fromkeys(sorted(line["commit"] for line in lines)))
    hours = sum(line["seconds"] for line in lines) / 3600
    return (
        f"{len(lines)} runs are finished, of commits {commits}; they took {hours:.1f} core hours. "
        f"Of {len(parts)} effects, {decided} have all their seeds.\n"
    )


def page_name(claim: Claim) -> str:
    """The file of a claim's page."""
    return f"claim-{claim.number}.md"


def whole(claim: Claim, parts: Sequence[Decided]) -> str:
    """The verdict of the whole claim, and what it waits for."""
    return f"**{outcome(claim, parts)}**" + (f" ({claim.waits})" if claim.waits else "")


def spent(parts: Iterable[Decided]) -> float:
    """Core hours of the runs that speak of some parts; a run of several parts counts once."""
    seconds: dict[str, float] = {line["hash"]: line["seconds"] for part in parts for line in part.runs}
    return sum(seconds.values()) / 3600


def answer(decided: Decided) -> tuple[str, str, str, str]:
    """Verdict, effect, the paper's effect, and the runs there are."""
    part, found = decided.part, decided.estimate
    effect = NOTHING
    if found is not None:
        effect = f"{signed(part, found.mean)} ± {part.shown(found.half):.1f} {part.unit}"
        if len(decided.values) < len(part.seeds):
            effect += f" (seeds {', '.join(map(str, decided.values))} so far)"
    theirs = "" if part.paper is None else f"{signed(part, part.paper)} {part.unit}"
    theirs = "; ".join(filter(None, [theirs, part.paper_says])) or NOTHING
    wanted = len(part.contrast) or len(decided.rated)
    runs = f"{len(decided.runs)} of {wanted * len(part.seeds)}, {len(part.seeds)} seeds"
    return str(decided.verdict), effect, theirs, runs


def answer_elsewhere(one: Elsewhere, up: str) -> tuple[str, str, str, str]:
    """The same of what other runs have decided; `up` leads to the folder of results."""
    return str(one.verdict), one.effect, one.paper_says, f"[page]({up}{one.page})"


def signed(part: Part, value: float) -> str:
    """In the part's unit, with a sign that can be read."""
    return f"{part.shown(value):+.1f}".replace("-", "−")
