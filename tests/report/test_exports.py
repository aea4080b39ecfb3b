"""Tables as Markdown, CSV and LaTeX; figures as PNG and PDF; the page's data."""

from __future__ import annotations

import base64
import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from synthetic import detailed_rows, full_rows, layered_rows, overall, write_run

from mnemos.errors import ConfigError
from mnemos.plots.style import save
from mnemos.report.blocks import (
    Bars,
    BarView,
    Block,
    Cell,
    Column,
    Frame,
    HeatMaps,
    Item,
    Lines,
    Map,
    Row,
    Series,
    Stack,
    Strip,
    Strips,
    StripView,
    Table,
    View,
)
from mnemos.report.figures import draw_figures, not_drawn
from mnemos.report.page import collect, render
from mnemos.report.page import encode as encoding
from mnemos.report.page.encode import BlockEncoder, packed, quantised
from mnemos.report.panel import panels
from mnemos.report.panels.significance import told_apart
from mnemos.report.paper import inches
from mnemos.report.tables import as_csv, latex, markdown, write_tables

OF_TASKS = {"continual", "task-forgetting", "timeline"}
"""Panels of runs whose clients meet classes task by task."""
NASTY = 'a|b_c & 50% $x$ <i> #{1}~^\\ "q" *'

TABLE = Table(
    id="table",
    title="Title",
    text="What it shows.",
    note="A note.",
    columns=(Column("group"), Column("accuracy", "spread"), Column("close")),
    rows=(
        Row((Cell(NASTY, NASTY), Cell("60.0 ± 10.0 %", 0.6, True, 0.1), Cell("0.1, 0.3", 2)), (0,)),
        Row((Cell("plain", "plain"), Cell("NC"), Cell("", 0)), (1,)),
        Row((Cell("other choice"), Cell("–"), Cell("")), (1,), choice=1),
    ),
    choice="reference",
    choices=("plain (best)", "other"),
)


def test_markdown() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "## Title"
    assert lines[2] == "What it shows. Reference: plain (best)."
    assert lines[4:6] == ["| group | accuracy | close |", "| --- | ---: | --- |"]
    assert lines[6] == (r'| a\|b\_c & 50% $x$ \<i\> \#\{1\}\~^\\ "q" \* | **60.0 ± 10.0 %** | 0.1, 0.3 |')
    assert lines[7] == "| plain | NC |  |"
    assert lines[-1] == "A note."
    assert len(lines) == 10


def test_csv() -> None:
    """Numbers in full; a comma and quotes survive."""
    heads, first, second = csv.reader(io.StringIO(as_csv(TABLE)))
    assert heads == ["group", "accuracy", "accuracy (std)", "close"]
    assert first == [NASTY, "0.6", "0.1", "0.1, 0.3"]
    assert second == ["plain", "", "", ""]


def test_csv_has_the_deviation_of_every_mean() -> None:
    """Also of means that the page draws without a bar."""
    columns = (Column("group"), Column("class 0", "number"), Column("class 1", "number"))
    cells = Cell("a", "a"), Cell("60.0 ± 10.0 %", 0.6, spread=0.1), Cell("50.0 %", 0.5)
    table = Table(id="table", title="", text="", columns=columns, rows=(Row(cells),))
    heads, row = csv.reader(io.StringIO(as_csv(table)))
    assert heads == ["group", "class 0", "class 0 (std)", "class 1"]
    assert row == ["a", "0.6", "0.1", "0.5"]


def test_latex() -> None:
    lines = latex(TABLE).splitlines()
    assert lines[0].startswith("% needs ")
    assert lines[1:6] == [
        "% A note.",
        r"\begin{table}",
        r"\centering",
        r"\caption{Title. What it shows. Reference: plain (best).}",
        r"\label{tab:table}",
    ]
    assert r"\begin{tabular}{lrl}" in lines
    (row,) = (line for line in lines if line.startswith("a"))
    assert row == (
        r"a\textbar{}b\_c \& 50\% \$x\$ \textless{}i\textgreater{} \#\{1\}\textasciitilde{}"
        r"\textasciicircum{}\textbackslash{} \textquotedbl{}q\textquotedbl{} *"
        r" & \textbf{60.0 $\pm$ 10.0 \%} & 0.1, 0.3 \\"
    )
    assert r"plain & NC &  \\" in lines
    assert lines[-2:] == [r"\end{tabular}", r"\end{table}"]


def test_latex_leaves_out_states_and_marks_only_what_is_told_apart() -> None:
    columns = (Column("group"), Column("accuracy", "spread"), Column("status", state=True))
    best = Cell("60.0 %", 0.6, best=True)
    rows = tuple(
        Row((Cell(name), replace(best, apart=apart), Cell("finished")))
        for name, apart in (("sure", True), ("unsure", False))
    )
    lines = latex(Table(id="table", title="", text="", columns=columns, rows=rows)).splitlines()
    assert r"sure & \textbf{60.0 \%} \\" in lines
    assert r"unsure & 60.0 \% \\" in lines
    assert not any("status" in line or "finished" in line for line in lines)


@pytest.mark.parametrize(
    ("others", "apart"),
    [
        ([[0.40, 0.49, 0.58]], True),
        ([[0.49, 0.61, 0.67]], False),
        ([[0.40, 0.49, 0.58], [0.49, 0.61, 0.67]], False),
        ([[0.40]], False),
        ([], False),
    ],
)
def test_what_is_told_apart(others: list[list[float]], apart: bool) -> None:
    """Of 50, 60 and 70 %, by paired t-tests with two degrees of freedom.

    Differences of 10, 11 and 12 points: mean 11, deviation 1, t = 11 √3 = 19.1, p = 0.003. Differences of 1,
    −1 and 3: mean 1, deviation 2, t = √3 / 2 = 0.87, p = 0.48.
    """
    mine, *rest = (
        SimpleNamespace(id=index, data="digits", accuracies=dict(enumerate(values)))
        for index, values in enumerate([[0.5, 0.6, 0.7], *others])
    )
    assert told_apart(mine, [mine, *rest]) == apart


def test_fonts_of_a_pdf_are_type_42(tmp_path: Path) -> None:
    figure = Figure()
    figure.text(0.5, 0.5, "accuracy ± ε")
    pdf = save(figure, tmp_path / "figure.pdf").read_bytes()
    assert b"/Subtype /Type3" not in pdf
    assert b"/FontFile2" in pdf


def test_tables_are_files(tmp_path: Path) -> None:
    written = write_tables([TABLE], tmp_path / "deep" / "er")
    assert [path.name for path in written] == ["table.md", "table.csv", "table.tex"]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't be written"):
        write_tables([TABLE], tmp_path / "file")


# --- figures --------------------------------------------------------------------------------------


def maps(count: int) -> HeatMaps:
    frames = tuple(
        Frame(str(number), (3, 7), (3, 7), np.array([[0.9, 0.1], [0.2, 0.7]]), np.array([0.8, 0.5]))
        for number in (1, 5, 9, 12)
    )
    items = tuple(Item(f"run {place}", frames, (place // 2,)) for place in range(count))
    both = (Map("F", "lost", "i", "k", "F", 0.6), Map("after", "value", "i", "k", "accuracy"))
    return HeatMaps(id="maps", title="Maps", text="", choice="run", maps=both, items=items)


BLOCKS: list[Block] = [
    Lines(
        id="lines",
        title="Lines",
        text="",
        x="round",
        views=(
            View("$a_b$", "$a_b$", (Series(NASTY, np.array([1.0, 2]), np.array([0.1, 0.2]), np.zeros(2)),)),
            View("b", "b", (Series("one point", np.array([3.0]), np.array([0.1])),), percent=True),
        ),
    ),
    Lines(
        id="log",
        title="Log",
        text="",
        x="lr",
        log=True,
        marked=True,
        views=(View("a", "a", (Series("s", np.array([0.1, 1]), np.array([0.1, 0.2])),)),),
    ),
    Bars(
        id="bars",
        title="Bars",
        text="",
        x="client",
        views=(
            BarView("few", "n", ("0", "1"), tuple(Stack(str(c), np.ones(2)) for c in range(12))),
            BarView("many", "n", ("0", "1"), tuple(Stack(str(c), np.ones(2)) for c in range(30))),
            BarView(
                "by group",
                "B",
                (NASTY, "b"),
                (Stack("up", np.array([1e6, np.nan])),),
                owners=(0, 1),
                unit="bytes",
            ),
        ),
    ),
    Strips(
        id="strips",
        title="Strips",
        text="",
        x="round",
        y="client",
        views=(
            StripView("few", (NASTY, "b"), (Strip("0", (3, 9), (0, 1)), Strip("7", (9,), (1,)))),
            StripView(
                "many", tuple(map(str, range(12))), (Strip("0", tuple(range(1, 13)), tuple(range(12))),)
            ),
        ),
    ),
    maps(1),
    HeatMaps(
        id="classes",
        title="Classes",
        text="",
        choice="data",
        maps=(Map("accuracy", "value", "group", "class", "accuracy"),),
        items=(
            Item(
                "digits",
                (Frame("1", (NASTY, "b"), (0, 1, 2), np.array([[0, 1, 0.5], [np.nan] * 3]), owners=(0, 1)),),
            ),
        ),
    ),
    TABLE,
]


def test_every_figure_is_drawn(tmp_path: Path) -> None:
    written = draw_figures(BLOCKS, tmp_path)
    assert sorted(path.name for path in written if path.suffix == ".png") == [
        "bars-by-group.png",
        "bars-few.png",
        "bars-many.png",
        "classes.png",
        "lines-a_b.png",
        "lines-b.png",
        "log.png",
        "maps.png",
        "strips-few.png",
        "strips-many.png",
    ]
    for path in written:
        if path.suffix == ".png":
            pixels = np.asarray(Image.open(path).convert("L"))
            assert min(pixels.shape) > 200
            assert (pixels < 200).mean() > 0.001
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")


def test_of_many_runs_the_first_of_each_group_is_drawn(tmp_path: Path) -> None:
    many = maps(4)
    assert len(draw_figures([many], tmp_path)) == 5  # two figures as PNG and PDF, and their captions
    assert not_drawn([many]) == ["left out: figures of 2 of 4 heat-maps in 'Maps'; the page has them all"]
    assert not_drawn(BLOCKS) == []


# --- the page's data ------------------------------------------------------------------------------


def unpack(data: dict[str, str], kind: str) -> np.ndarray:
    ((_, text),) = data.items()
    return np.frombuffer(base64.b64decode(text), kind)


def test_numbers_are_packed() -> None:
    assert packed([1.0, 2.0, 3.0]) == {"from": 1, "step": 1, "count": 3}
    assert packed([10, 20]) == {"from": 10, "step": 10, "count": 2}
    assert unpack(packed([0.5, np.nan, 4]), "<f4").tolist()[::2] == [0.5, 4]
    assert unpack(quantised([0, 1, 0.31, np.nan]), "<u2").tolist() == [0, 65_000, 20_150, 65_535]
    assert unpack(packed([]), "<f4").tolist() == []


def lines_of(count: int, points: int) -> Lines:
    x = np.arange(1.0, points + 1)
    series = tuple(Series(str(place), x, x / points) for place in range(count))
    return Lines(id="l", title="", text="", note="Before.", x="round", views=(View("v", "v", series),))


def test_curves_are_thinned_when_there_is_too_much_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = lines_of(2, 1000), lines_of(5, 1000)
    monkeypatch.setattr(encoding, "_POINTS", 2500)
    whole, thinned = BlockEncoder([few])(few), BlockEncoder([many])(many)
    assert whole["note"] == "Before."
    assert whole["views"][0]["series"][0]["x"] == {"from": 1, "step": 1, "count": 1000}
    assert thinned["note"] == "Before. Of long curves, every 2nd point is drawn, and the last."
    places = unpack(thinned["views"][0]["series"][0]["x"], "<f4")
    assert (places[0], places[1], places[-2], places[-1], len(places)) == (1, 3, 999, 1000, 501)


def test_heat_maps_are_thinned_when_there_is_too_much_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    many = maps(1)
    monkeypatch.setattr(encoding, "_CELLS", 3 * (4 + 8 + 40))  # three of four frames
    data = BlockEncoder([many])(many)
    assert [frame["label"] for frame in data["items"][0]["frames"]] == ["1", "9", "12"]
    assert data["note"] == "3 of 4 measured rounds are shown, evenly spread."
    assert len(unpack(data["items"][0]["data"], "<u2")) == 3 * (2 + 4)


def test_data_is_plain_json_whatever_a_run_has(tmp_path: Path) -> None:
    """Also of runs that have nothing yet, or that went wrong; and of none."""
    rows = [*full_rows(0, 20, 5, 10, 3), *detailed_rows(0, 20), *layered_rows(0, 20, range(3))]
    runs = [
        write_run(tmp_path / "full", {"rounds": 20}, rows=rows, accuracy=0.8, seconds=[1.0] * 20),
        write_run(tmp_path / "empty", {"local.lr": 0.1}, status="interrupted", rounds=0),
        write_run(
            tmp_path / "odd", {"local.lr": 0.2}, rows=overall("train_loss", [1, None]), status="diverged"
        ),
    ]
    data = collect(runs)
    assert json.loads(json.dumps(data, allow_nan=False))["groups"][0]["id"] == 0
    assert {panel["id"] for panel in data["panels"]} == set(panels.names()) - {
        "advice",
        "clock",
        "left-out",
        "owners",
        "pivot",
        "privacy",
        "significance",
        "why",
        *OF_TASKS,
    }
    assert collect([])["panels"] == []
    assert "There are no runs" in render(collect([]))


def test_runs_that_have_only_begun_are_shown(tmp_path: Path) -> None:
    """Two rates, and nothing measured yet: what a live page sees first."""
    runs = [write_run(tmp_path / str(lr), {"local.lr": lr}, status="running", rounds=0) for lr in (0.1, 0.2)]
    found = [panel["id"] for panel in collect(runs)["panels"]]
    assert found == ["summary", "partition", "robustness", "runs", "repeat"]


def test_nothing_in_the_data_can_end_the_script(tmp_path: Path) -> None:
    data = collect([write_run(tmp_path / "</script><!--<script>")], title="</title><b>{{script}}")
    html = render(data)
    begin = html.index('<script id="data" type="application/json">') + 42
    inside = html[begin : html.index("</script>", begin)]
    assert "<" not in inside
    assert json.loads(inside) == json.loads(json.dumps(data))
    assert "<title>&lt;/title&gt;&lt;b&gt;{{script}}</title>" in html


def test_a_page_names_no_other_place(tmp_path: Path) -> None:
    html = render(collect([write_run(tmp_path / "a")]))
    assert "http:" not in html
    assert "https:" not in html
    assert "connect-src 'none'" in html
    assert "connect-src 'self'" in render(collect([]), live=True)


@pytest.mark.parametrize(
    ("word", "width"), [("1", 3.25), ("2", 6.75), ("8.5cm", 3.346), ("85 mm", 3.346), ("3in", 3)]
)
def test_widths(word: str, width: float) -> None:
    assert inches(word) == pytest.approx(width, abs=1e-3)


@pytest.mark.parametrize("word", ["3", "wide", "0.1cm", "5km", "-3in"])
def test_no_widths(word: str) -> None:
    with pytest.raises(ConfigError, match=f"width: found '{word}'; allowed: 1 or 2"):
        inches(word)


def test_figures_are_as_wide_as_is_asked_for_and_have_captions(tmp_path: Path) -> None:
    """At 160 dots per inch, a figure of 3.25 inches has 520 dots."""
    written = draw_figures([lines_of(2, 5), maps(1)], tmp_path, 3.25)
    sizes = [np.asarray(Image.open(path)).shape[1] for path in written if path.suffix == ".png"]
    assert len(sizes) == 2
    assert sizes == [520, 520]
    captions = (tmp_path / "figures.tex").read_text()
    assert captions.count("\\begin{figure}") == 2
    assert "\\includegraphics[width=3.25in]" in captions
    assert "\\label{fig:" in captions
