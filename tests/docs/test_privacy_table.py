"""What the guide says that clients send is what methods and parts send: nothing new can be forgotten."""

import re
from pathlib import Path

import pytest

from mnemos.methods.method import methods
from mnemos.methods.part import (
    MethodPart,
    buffer_policies,
    corrections,
    server_steps,
    terms,
    weightings,
)

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "privacy.md").read_text()
KINDS = {"term": terms, "correction": corrections, "weighting": weightings, "server step": server_steps}


def rows(head):
    """The rows of the table whose header begins like this, as lists of cells."""
    (table,) = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def uploads(part):
    """Whether a kind of part has something to say about what it sends."""
    return part.sends is not MethodPart.sends


def test_every_method_has_a_row():
    assert sorted(row[0] for row in rows("method")) == [f"`{name}`" for name in methods.names()]


@pytest.mark.parametrize(("name", "sent"), [(row[0].strip("`"), row[1]) for row in rows("method")])
def test_methods_whose_parts_send_something_say_so(name, sent):
    """`pass` keeps its prototypes: the only one with a part that sends something elsewhere and not here."""
    sends = any(uploads(type(part)) for part in methods[name]().parts)
    assert (not sent.startswith("–")) == (sends and name != "pass")


def test_every_part_that_sends_something_has_a_row():
    expected = {f"{kind} `{part.name}`" for kind, known in KINDS.items() for part in known if uploads(part)}
    expected |= {f"buffers `{policy.name}`" for policy in buffer_policies if policy.sent}
    found = {row[0] for row in rows("part")} - {"privacy `gaussian`, adaptive"}
    assert found == expected
    assert all(len(row) == 3 and all(row) for row in rows("part"))
