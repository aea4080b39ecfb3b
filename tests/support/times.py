"""How many seconds of a processor each folder of tests takes, with all processes that its tests start.

    PYTHONPATH=tests pytest -p support.times [--numprocesses 3 --dist worksteal]

prints a table at the end. On a busy machine these seconds mean more than those of a clock.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_KEY = pytest.StashKey[Counter[str]]()


def _used() -> float:
    """Seconds of this process and of what came of it; those of a process that ended are its parent's."""
    parents, seconds = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    ours, before = {os.getpid()}, 0
    while len(ours) > before:
        before = len(ours)
        ours |= {number for number, parent in parents.items() if parent in ours}
    return sum(seconds[number] for number in ours)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = Counter()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _used()
    yield
    folder = item.nodeid.split("::")[0].removeprefix("tests/").split("/")[0]
    # A process whose parent ended before it leaves the tree, and takes its seconds along.
    item.config.stash[_KEY][folder] += max(0.0, _used() - before)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """What a worker has counted; a worker that was killed has nothing to say."""
    node.config.stash[_KEY].update(getattr(node, "workeroutput", {}).get("times", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["times"] = dict(session.config.stash[_KEY])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    times = config.stash[_KEY]
    terminalreporter.section(f"{times.total():.0f} s of a processor")
    for folder, seconds in times.most_common():
        terminalreporter.write_line(f"{seconds:8.1f}  {folder}")
