"""How long a report of many runs takes: to write it, and to open it in Chromium.

    python benchmarks/report.py [--runs 200] [--rounds 1000] [--seeds 1] [--keep FOLDER]

Runs have made-up numbers: train loss and bytes of every round, validation in every tenth, and a forgetting
matrix of ten clients in every twentieth. Printed are seconds and megabytes. Opening is measured in a fresh
Chromium ($MNEMOS_CHROMIUM, or the one on the path), from asking for the file until all tables are filled and
the figures on the screen are drawn, and is repeated; it must stay under 2 seconds, the file under 20 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from mnemos.report.write import write_report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "report"))
from synthetic import many_runs  # type: ignore[import-not-found]

_DRAWN = """() => document.querySelectorAll("tbody tr").length > 0
    && [...document.querySelectorAll(".plot")].filter((plot) => {
        const box = plot.getBoundingClientRect();
        return box.height && box.top < innerHeight && box.bottom > 0;
    }).every((plot) => plot.dataset.drawn)"""

_OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"
)  # fmt: skip


def opening(page: Path, repeats: int) -> list[float]:
    """Seconds until the page can be used."""
    chromium = os.environ.get("MNEMOS_CHROMIUM") or shutil.which("chromium")
    found = []
    with sync_playwright() as playwright:
        for _ in range(repeats):
            browser = playwright.chromium.launch(executable_path=chromium, args=[*_OPTIONS])
            tab = browser.new_page(viewport={"width": 1360, "height": 950})
            tab.goto("about:blank")
            begin = time.perf_counter()
            tab.goto(page.resolve().as_uri())
            tab.wait_for_function(_DRAWN)
            found.append(time.perf_counter() - begin)
            browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--keep", type=Path, help="folder for the runs and the report; used again if it is there"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        if not (folder / "runs").is_dir():
            many_runs(folder / "runs", given.runs, given.rounds, given.seeds)
        begin = time.perf_counter()
        written = write_report(folder / "runs", folder / "report.html")
        print(f"{written.runs} runs × {given.rounds} rounds, {written.groups} groups")
        print(f"write: {time.perf_counter() - begin:.1f} s, {written.size / 1e6:.1f} MB")
        seconds = opening(written.page, given.repeats)
        print(f"open:  {statistics.median(seconds):.2f} s (of {given.repeats}; {max(seconds):.2f} s at most)")


if __name__ == "__main__":
    main()
