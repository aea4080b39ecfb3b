"""Mnemos beside its peers: the same work on each, interleaved, as ratios.

    python benchmarks/peers [work ...] [--only peer,...] [--repeats 7] [--small] [--figure]

Works are (a) LeNet, (b) a small MLP, (c) ResNet-18, (d) 100,000 clients, (e) SCAFFOLD, (f) from the command
to the end of one round; all when none is named. Contenders are Mnemos, the fastest loop we know how to write
by hand, a plain loop, and peers, each in a virtual environment of its own, made when it is first needed. All
start from the same weights, have the same samples and, where they can be told, the same cohorts. Each runs
one round to warm up, then they take turns. Ratios are to Mnemos in the same turn; memory is the sum of the
peaks of a contender's processes; the loss is that of the global model after its first round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from contest import Contest, hold
from environments import DEFAULT, PEERS, InstallError, interpreter, version
from results import figure, load, machine, record, table
from works import WORKS

ROOT = Path(__file__).parents[2]


def main() -> None:
    arguments = _arguments()
    names = arguments.only.split(",") if arguments.only else list(PEERS)
    facts = machine() | {"commit": _commit(), "repeats": arguments.repeats, "small": arguments.small}
    facts["load before"] = load()
    contests: dict[str, Contest] = {}
    for letter in arguments.works or WORKS:
        work = WORKS[letter].small() if arguments.small else WORKS[letter]
        print(f"({letter})", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
            contests[letter] = hold(
                work, names, arguments.repeats, arguments.environments, Path(scratch), arguments.patience
            )
        print(table(letter, contests[letter]), flush=True)
    facts["load after"] = load()
    facts["versions"] = _versions(names, arguments.environments)
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        found = json.dumps(record(contests, facts), indent=1, ensure_ascii=False)
        (arguments.out / "peers.json").write_text(found + "\n")
        if arguments.figure:
            figure(contests, arguments.out / "peers.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", choices=[*WORKS, []], metavar="work", help=", ".join(WORKS))
    parser.add_argument("--only", default="", help=f"contenders, with commas between: {', '.join(PEERS)}")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--small", action="store_true", help="tiny versions, to see that all of it works")
    parser.add_argument("--environments", type=Path, default=DEFAULT, help="where peers are installed")
    parser.add_argument("--patience", type=float, default=900, help="seconds that a round may take")
    parser.add_argument("--out", type=Path, help="where peers.json goes; docs/results, or nowhere if small")
    parser.add_argument("--figure", action="store_true", help="also draw peers.png there")
    arguments = parser.parse_args()
    unknown = set(filter(None, arguments.only.split(","))) - set(PEERS)
    if unknown:
        parser.error(f"there is no contender {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    if arguments.out is None and not arguments.small:
        arguments.out = ROOT / "docs" / "results"
    return arguments


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def _versions(names: list[str], environments: Path) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name, interpreter(name, environments))
        except (InstallError, subprocess.CalledProcessError) as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    main()
