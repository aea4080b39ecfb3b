"""Coverage-guided fuzzing: inputs that reach new lines of Mnemos are kept, and changed further.

    python tools/fuzz_guided.py TARGET [--seconds 60] [--seed 1] [--out fuzz]

TARGET is one of those of tests/fuzzing. It needs the package atheris, which is no dependency of Mnemos. An
input that fails ends it, and is written to a file in `out`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris


def main() -> None:
    """Hand the target over to libFuzzer, which ends the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz"))
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with atheris.instrument_imports(include=["mnemos", "json", "yaml"], enable_loader_override=False):
        from fuzzing.attempt import attempt
        from fuzzing.targets import TARGETS
    corpus, cache, place = (Path(tempfile.mkdtemp()) for _ in range(3))
    os.environ |= {"MNEMOS_CACHE": str(cache), "MNEMOS_DATA": str(cache), "MNEMOS_OFFLINE": "1"}
    target = TARGETS[given.target](place)
    for number, content in enumerate([*target.samples, *target.nasty]):
        (corpus / str(number)).write_bytes(content)
    given.out.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": given.seconds,
        "seed": given.seed,
        "max_len": 20_000,
        "rss_limit_mb": 0,  # each input has its own limit
        "print_final_stats": 1,
        "artifact_prefix": f"{given.out}/",
    }
    words = [sys.argv[0], str(corpus), *(f"-{name}={value}" for name, value in options.items())]
    atheris.Setup(words, lambda content: attempt(target, content))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
