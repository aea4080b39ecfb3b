"""Run the recipes `claims/*`, collect what is finished, decide the claims, and write their pages.

    python tools/claims.py run --runs runs/reproduce   # all that is left, in the order of order.yaml
    mnemos reproduce claims/rates                   # or any number of recipes, into one folder of runs
    python tools/claims.py collect runs/reproduce   # adds what is finished to docs/results/claims/runs.jsonl
    python tools/claims.py report                   # decides; renews docs/results/claims.md and the pages
    python tools/claims.py speeds                   # times a step of each model, for estimates of time
    python tools/claims.py rates claims/rates-resnet   # the best rate of each row, by validation at seed 100

All can be repeated at any time. Claims, the contrasts that decide them and their rules are in
docs/results/claims/claims.yaml, which is fixed before the runs.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from claim_costs import costs, measure_all, read_speeds
from claim_figures import draw
from claim_pages import page_of
from claim_queue import work
from claim_runs import FOLDER, LINES, RESULTS, best_rates, collect, read_lines
from claim_table import page_name, state, table
from mnemos.common.files import write_atomically
from mnemos.studies.reproduce.names import recipe_names
from verdicts import decide, outcome, read_claims

BEGIN, END = "<!-- {name}: tools/claims.py report -->", "<!-- end of {name} -->"


def report(page: Path = RESULTS / "claims.md") -> list[str]:
    """Renew the tables, the figures and the claims' pages; one line a claim for the screen."""
    claims, lines = read_claims(), read_lines()
    draw(claims, lines, FOLDER / "effects.png")
    for claim in claims:
        write_atomically(FOLDER / page_name(claim), page_of(claim, lines, FOLDER).encode())
    text = _between(page.read_text(), "state", state(claims, lines))
    text = _between(text, "table", table(claims, lines))
    text = _between(text, "costs", costs(_recipes(), lines, read_speeds()))
    write_atomically(page, text.encode())
    return [f"{claim.number}: {outcome(claim, decide(claim, lines))}" for claim in claims]


def _recipes() -> list[str]:
    return [name for name in recipe_names() if name.startswith("claims/")]


def _between(text: str, name: str, new: str) -> str:
    begin, end = BEGIN.format(name=name), END.format(name=name)
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    return f"{head}{begin}\n\n{new}\n{end}{tail}"


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="carry out what is left, one run at a time on one core")
    running.add_argument("--runs", type=Path, required=True, help="the folder of runs")
    running.add_argument(
        "--hours", type=float, help="stop after so long; what is unfinished goes on next time"
    )
    running.add_argument("--only", metavar="RECIPE", help="this recipe alone, such as claims/rates")
    collecting = commands.add_parser("collect", help="add finished runs to the file of results")
    collecting.add_argument("runs", type=Path)
    collecting.add_argument("--record", type=Path, help="JSON lines with hash, commit and cpu_seconds")
    commands.add_parser("report", help="decide the claims, and renew tables, figures and pages")
    commands.add_parser("speeds", help="measure what a sample costs each model, for estimates of time")
    choosing = commands.add_parser("rates", help="show the best rates of a recipe at the calibration seed")
    choosing.add_argument("recipe")
    given = parser.parse_args()
    if given.command == "run":
        done = work(given.runs, given.hours, given.only, say=partial(print, flush=True))
        print(f"{done} runs came to their end")
    elif given.command == "collect":
        added, every = collect(given.runs, given.record)
        print(f"{added} added, {every} in {LINES}")
    elif given.command == "speeds":
        for name, seconds in measure_all(_recipes()).items():
            print(f"{name}: {1000 * seconds:.3g} ms a sample")
    elif given.command == "rates":
        for name, (rate, accuracy) in sorted(best_rates(given.recipe, read_lines()).items()):
            print(f"{name}: {rate:g} ({accuracy:.3f})")
    else:
        print("\n".join(report()))


if __name__ == "__main__":
    main()
