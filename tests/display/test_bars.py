"""Lines of progress bars at any width."""

import pytest
from rich.cells import cell_len

from mnemos.display.bars import Line, shortened

LONG = Line(
    "wsm with a very long name of its own, seed 12",
    0.25,
    "250/1000",
    ["client 3 of 10, step 12 of 80", "loss 0.4123", "validation 91.0 %", "test 90.2 %", "2 dropped"],
    "3 h 20 min left",
)


@pytest.mark.parametrize("width", range(10, 200, 7))
def test_no_line_is_wider_than_the_terminal(width):
    assert cell_len(LONG.fit(width).plain) <= width


def test_a_wide_terminal_shows_everything():
    text = LONG.fit(200).plain
    assert text.startswith("wsm with a very long name of its own, seed 12  ━━━")
    assert text.endswith(
        "250/1000  client 3 of 10, step 12 of 80  loss 0.4123  validation 91.0 %  test 90.2 %  2 dropped"
        "  3 h 20 min left"
    )
    assert text.count("━") + text.count("╸") == 30


def test_80_columns():
    """The bar gets shorter, the name is cut, and the last notes are left out; the counter and time stay."""
    text = LONG.fit(79).plain
    assert text == "wsm with a…  ━━━━━━━━  250/1000  client 3 of 10, step 12 of 80  3 h 20 min left"


def test_what_stays_longest():
    assert LONG.fit(36).plain == "━━━━━━━━  250/1000  3 h 20 min left"


def test_the_bar():
    """A quarter of 30 cells is 7½."""
    line = Line("", 0.25, "1/4", [], "").fit(80)
    assert line.plain == "━" * 7 + "╸" + "━" * 22 + "  1/4"
    assert [(span.start, span.end) for span in line.spans if span.style == "bright_black"] == [(8, 30)]


def test_nothing_is_counted_yet():
    assert Line("", None, "", ["reading cifar10"], "2 s").fit(80).plain == "reading cifar10  2 s"


def test_wide_characters():
    assert shortened("連合学習の実験", 9) == "連合学習…"
    assert shortened("short", 9) == "short"
