"""The scripts in `examples/` run as they are, for a single round."""

from pathlib import Path

import pytest

from support.processes import script

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("example", SCRIPTS, ids=lambda example: example.stem)
def test_an_example_runs(example, tmp_path):
    done = script(example, "--rounds", "1", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "accuracy" in done.out


def test_all_examples_are_listed():
    listed = (EXAMPLES / "README.md").read_text()
    assert [example.name for example in SCRIPTS if f"({example.name})" not in listed] == []
