"""The page in a real Chromium: filled, drawn, filtered, sorted, slid, dark; without errors or network."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from synthetic import detailed_rows, full_rows, layered_rows, many_runs, matrix, overall, write_run

from mnemos.report.live import Latest, serve
from mnemos.report.page import collect, render
from mnemos.report.reading import runs_of
from mnemos.report.write import write_report
from support.processes import LONG

Open = Callable[..., AbstractContextManager[Page]]

NASTY = "<script>alert(1)</script>"

BLANK = """(canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size < 4;
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two losses × three rates × two seeds with every measure; one diverged, one failed; a nasty name."""
    folder = tmp_path_factory.mktemp("runs")
    variants: dict[str, list[str]] = {}
    for loss, top in (("ce", 0.6), ("wsm", 0.8)):
        for lr in (0.01, 0.1, 10.0):
            for seed in (0, 1):
                name = f"{loss}-{lr}-{seed}"
                gained = top + lr / 10 + (0.02 if loss == "ce" else 0.01) * seed
                write_run(
                    folder / name,
                    {"method.loss": loss, "local.lr": lr, "seed": seed, "rounds": 20},
                    rows=[
                        *full_rows(seed, 20, 5, 5, 4, top),
                        *detailed_rows(seed, 20),
                        *layered_rows(seed, 20, range(4)),
                    ],
                    status="finished" if lr < 1 else "diverged",
                    accuracy=gained if lr < 1 else None,
                    seconds=[0.5] * 20,
                )
                label = NASTY if (loss, lr) == ("ce", 0.01) else f"{loss}, rate {lr:g}"
                variants.setdefault(label, []).append(name)
    by_hand = matrix(1, [0.8, 0.5], [[0.9, 0.1], [0.2, 0.7]], [3, 7])
    write_run(
        folder / "last", {"rounds": 30}, rows=by_hand, status="failed", rounds=1, message="OSError: full"
    )
    variants["by hand"] = ["last"]
    (folder / "all.study.json").write_text(json.dumps({"name": "all", "variants": variants}))
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return write_report(folder, folder / "report.html").page


def column(page: Page, block: str, head: str) -> list[str]:
    """The texts of a column; what is far off the screen isn't rendered, but it is there."""
    heads = page.locator(f"#block-{block} thead button").all_text_contents()
    cells = page.locator(f"#block-{block} tbody tr > :nth-child({heads.index(head) + 1})")
    return [text.removesuffix(" (best)") for text in cells.all_text_contents()]


def sort(page: Page, block: str, head: str) -> str | None:
    found = page.locator(f"#block-{block} thead th").filter(has_text=re.compile(f"^{re.escape(head)}$"))
    found.locator("button").click()
    return found.get_attribute("aria-sort")


def labels(page: Page) -> list[str]:
    """The groups of the summary."""
    return column(page, "summary", "group")


def test_tables_are_filled(opened: Open, report: Path) -> None:
    with opened(report) as page:
        for table in page.locator("table").all():
            assert table.locator("tbody tr").count() > 0
        assert page.locator("table").count() == 11  # with the one of methods by settings
        expect(page.locator("#block-pivot table")).to_have_count(1)
        rows = dict(zip(labels(page), column(page, "summary", "final accuracy"), strict=True))
        assert rows["wsm, rate 0.1"].startswith("81.5 ± 0.7 %")
        assert rows["wsm, rate 10"] == "NC"
        assert page.locator("#block-summary .best").count() == 1
        assert "OSError: full" in column(page, "runs", "message")
        assert page.locator("#block-runs .state.failed").count() == 1
        expect(page.locator("#facts")).to_contain_text("13 runs in 7 groups")


def test_a_name_is_text_whatever_it_holds(opened: Open, report: Path) -> None:
    with opened(report) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        assert labels(page)[0] == NASTY
        assert page.locator("#legend .name").first.inner_text() == NASTY
        assert page.locator("main script").count() == 0


def test_each_figure_is_drawn_when_it_is_seen(opened: Open, report: Path) -> None:
    with opened(report) as page:
        plots = page.locator(".plot")
        assert plots.count() == 14
        assert page.locator(".plot[data-drawn]").count() < 14  # those far down aren't yet
        for plot in plots.all():
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "true")
            canvas = plot.locator("canvas").first
            assert not canvas.evaluate(BLANK)
            assert len(canvas.get_attribute("aria-label") or "") > 20


def test_filter(opened: Open, report: Path) -> None:
    with opened(report) as page:
        assert len(labels(page)) == 7
        page.fill("#search", "WSM rate")
        expect(page.locator("#shown")).to_have_text("3 of 7 shown")
        assert labels(page) == ["wsm, rate 0.01", "wsm, rate 0.1", "wsm, rate 10"]
        assert set(column(page, "runs", "group")) == set(labels(page))
        page.select_option("[data-field='local.lr']", "0.1")
        assert labels(page) == ["wsm, rate 0.1"]
        options = page.locator("#block-forgetting-maps select option").all_text_contents()
        assert options == ["wsm, rate 0.1, seed 0", "wsm, rate 0.1, seed 1"]
        assert page.locator("#block-curves .stacks li").all_text_contents() == [" wsm, rate 0.1"]
        page.fill("#search", "nothing like it")
        expect(page.locator("#block-summary .nothing")).to_be_visible()
        expect(page.locator("#block-curves .nothing")).to_be_visible()
        page.click("#reset")
        assert len(labels(page)) == 7
        assert page.input_value("#search") == ""


def test_legend(opened: Open, report: Path) -> None:
    with opened(report) as page:
        canvas = page.locator("#block-curves canvas").first
        canvas.scroll_into_view_if_needed()
        before = canvas.evaluate("(canvas) => canvas.toDataURL()")
        page.locator("#legend input").nth(1).uncheck()
        assert "ce, rate 0.1" not in labels(page)
        assert canvas.evaluate("(canvas) => canvas.toDataURL()") != before
        page.click("#none")
        assert page.locator("#block-summary tbody tr").count() == 0
        page.click("#all")
        assert len(labels(page)) == 7
        page.locator("#legend .name").nth(2).dblclick()
        assert labels(page) == ["ce, rate 10"]


def test_sort(opened: Open, report: Path) -> None:
    """Numbers as numbers (10 after 0.1), what has none last, and back to the first order."""
    with opened(report) as page:
        first = labels(page)
        assert sort(page, "summary", "final accuracy") == "descending"
        found = column(page, "summary", "final accuracy")
        numbers = [float(re.findall(r"[\d.]+", text)[0]) for text in found[:4]]
        assert numbers == sorted(numbers, reverse=True)
        assert sorted(found[4:]) == ["NC", "NC", "–"]
        assert sort(page, "summary", "final accuracy") == "ascending"
        found = column(page, "summary", "final accuracy")
        assert [float(re.findall(r"[\d.]+", text)[0]) for text in found[:4]] == numbers[::-1]
        assert sorted(found[4:]) == ["NC", "NC", "–"]
        assert sort(page, "summary", "final accuracy") == "none"
        assert labels(page) == first
        assert sort(page, "runs", "seed") == "descending"
        assert column(page, "runs", "seed") == ["1"] * 6 + ["0"] * 7
        # Rows that are equal stay in their order.
        names = column(page, "runs", "run")[:6]
        assert names == [f"{loss}-{lr}-1" for loss in ("ce", "wsm") for lr in (0.01, 0.1, 10.0)]


def test_slider_and_choice(opened: Open, report: Path) -> None:
    with opened(report) as page:
        block = page.locator("#block-forgetting-maps")
        block.scroll_into_view_if_needed()
        slider, canvas = block.locator("input[type=range]"), block.locator("canvas").first
        expect(block.locator("output")).to_have_text("20 (5 of 5)")
        expect(block.locator(".plot").first).to_have_attribute("data-drawn", "true")
        last = canvas.evaluate("(canvas) => canvas.toDataURL()")
        slider.press("ArrowLeft")
        expect(block.locator("output")).to_have_text("15 (4 of 5)")
        assert canvas.evaluate("(canvas) => canvas.toDataURL()") != last
        slider.press("Home")
        expect(block.locator("output")).to_have_text("1 (1 of 5)")
        block.locator("select").select_option("wsm, rate 0.1, seed 1")
        expect(block.locator("output")).to_have_text("1 (1 of 5)")  # the same round
        page.locator("#block-curves select").select_option("train loss")
        assert "train loss" in (page.locator("#block-curves canvas").first.get_attribute("aria-label") or "")


def test_layers_and_weights(opened: Open, report: Path) -> None:
    """A view a layer, a view a group; a group that is hidden takes its curves along."""
    with opened(report) as page:
        shown = page.locator("#block-layers select option").all_text_contents()
        assert shown == [f"effective rank, {where}" for where in ("network", "conv1.weight", "conv2.weight")]
        page.locator("#block-weights select").select_option("wsm, rate 0.1")
        assert page.locator("#block-weights .stacks li").all_text_contents() == [
            f" client {client}" for client in range(4)
        ]
        assert column(page, "weights-table", "clients per round") == ["4"] * 6
        page.fill("#search", "ce")
        expect(page.locator("#block-weights .nothing")).to_be_visible()


def test_values_can_be_read_with_the_keyboard_and_are_those_of_the_run(opened: Open, report: Path) -> None:
    """The matrix by hand: F = (−0.1, 0.4), (0.6, −0.2); F_3 = 0.6; caused by model 3: 0.4; mean 0.5."""
    with opened(report) as page:
        block = page.locator("#block-forgetting-maps")
        block.scroll_into_view_if_needed()
        block.locator("select").select_option("by hand, seed 0")
        plot = block.locator(".plot").first
        expect(plot).to_have_attribute("data-drawn", "true")
        plot.focus()
        read = {}
        keys = ["ArrowRight", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft"]
        for place, key in enumerate(keys):
            page.keyboard.press(key)
            read[place] = plot.locator(".tip").inner_text()
        assert "F = −0.1\n" in read[0]
        assert "model of client 3\ndata of client 7\nF = 0.4\nbefore 50.0 %, after 10.0 %" in read[1]
        assert "mean over the others' data: 0.4" in read[2]
        assert "mean over the others' data: 0.6" in read[3]
        assert "mean of all: 0.5" in read[4]
        assert "F_k" in read[5] or "0.4" in read[5]
        assert "0.6" in read[6]
        page.keyboard.press("Escape")
        expect(plot.locator(".tip")).to_be_hidden()


def test_tooltip_of_a_curve(opened: Open, report: Path) -> None:
    with opened(report) as page:
        plot = page.locator("#block-curves .plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box
        plot.hover(position={"x": box["width"] - 20, "y": 40})
        expect(plot.locator(".tip")).to_contain_text("round 20")
        assert plot.locator(".tip .line").count() == 6
        assert "null" not in plot.locator(".tip").inner_text()
        assert "±" in plot.locator(".tip").inner_text()


def test_no_tooltip_ends_in_null(opened: Open, report: Path) -> None:
    """Of curves and of bars, which leave out a line that has nothing to say."""
    with opened(report) as page:
        for name in ("curves", "partition"):
            plot = page.locator(f"#block-{name} .plot").first
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "true")
            plot.focus()
            page.keyboard.press("ArrowRight")
            expect(plot.locator(".tip")).to_be_visible()
            assert "null" not in plot.locator(".tip").inner_text()


def test_markers_on_an_axis_are_whole(opened: Open, report: Path) -> None:
    """Where the first marker is drawn, there is its colour on both sides of the axis."""
    with opened(report) as page:
        plot = page.locator("#block-curves .plot")
        plot.scroll_into_view_if_needed()
        expect(plot).to_have_attribute("data-drawn", "true")
        sides = plot.evaluate("""(node) => {
            const figure = node.figure, one = figure.series[figure.series.length - 1];
            const ratio = figure.base.width / figure.width, context = figure.base.getContext("2d");
            const x = figure.toX(one.x[0]), y = figure.toY(one.mean[0]);
            const place = (dx) => [(x + dx) * ratio, y * ratio].map(Math.round);
            const at = (dx) => [...context.getImageData(...place(dx), 1, 1).data];
            return [at(-2), at(2), x - figure.box.left];
        }""")
        left, right, from_axis = sides
        assert from_axis == 0
        assert left == right
        assert left[3] == 255


TEXTS = """
    window.drawn = [];
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const wide = this.measureText(text).width, at = this.getTransform();
        const start = x - wide * ({ left: 0, center: 0.5, right: 1 }[this.textAlign] ?? 0);
        const ends = [start, start + wide].map((x) => at.transformPoint(new DOMPoint(x, y)));
        const { width, height } = this.canvas;
        const room = 2; // pixels: another font may be a little wider
        const off = (end) => end.x < room || end.y < room || end.x > width - room || end.y > height - room;
        const inside = !ends.some(off);
        window.drawn.push([text, inside]);
        return fill.apply(this, arguments);
    };
"""
"""Notes every text that is drawn, and whether it begins and ends well inside its canvas."""


def test_no_label_of_a_figure_is_cut(opened: Open, report: Path) -> None:
    with opened(report, script=TEXTS) as page:
        for plot in page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            expect(plot).to_have_attribute("data-drawn", "true")
        drawn = page.evaluate("window.drawn")
        assert "accuracy" in {text for text, _ in drawn}
        assert [text for text, inside in drawn if not inside] == []


def test_dark_and_light(opened: Open, report: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(report) as page:
        light, canvas = page.evaluate(ground), page.locator("#block-curves canvas").first
        canvas.scroll_into_view_if_needed()
        before = canvas.evaluate("(canvas) => canvas.toDataURL()")
        page.click("#theme")
        assert page.evaluate(ground) != light
        assert canvas.evaluate("(canvas) => canvas.toDataURL()") != before
        page.click("#theme")
        assert page.evaluate(ground) == light
    with opened(report, color_scheme="dark") as page:
        assert page.evaluate(ground) != light


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(opened: Open, report: Path, width: int) -> None:
    with opened(report) as page:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for plot in page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            assert plot.evaluate("(plot) => plot.clientWidth") <= width


@pytest.mark.parametrize("width", [1440, 1200, 390])
def test_a_table_that_is_wider_than_its_card_says_so(opened: Open, report: Path, width: int) -> None:
    """A sentence below it, and a shade at each edge beyond which there are columns."""
    wide = []
    with opened(report) as page:
        page.set_viewport_size({"width": width, "height": 800})
        for block in page.locator(".block:has(.scroll)").all():
            scroll, frame, more = (block.locator(name) for name in (".scroll", ".frame", ".more"))
            block.scroll_into_view_if_needed()
            if scroll.evaluate("(node) => node.scrollWidth <= node.clientWidth + 1"):
                expect(more).to_be_hidden()
                continue
            wide.append(block.get_attribute("id"))
            expect(more).to_have_text("→ more columns: scroll sideways")
            expect(more).to_be_visible()
            expect(frame).to_have_class("frame after")
            scroll.evaluate("(node) => node.scrollTo({ left: node.scrollWidth, behavior: 'instant' })")
            expect(frame).to_have_class("frame before")
        if width == 390:
            assert "block-summary" in wide


def test_reference_and_configuration(opened: Open, report: Path) -> None:
    with opened(report) as page:
        block = page.locator("#block-significance")
        assert column(page, "significance", "difference")[0].startswith("−")
        block.locator("select").select_option(NASTY)
        assert column(page, "significance", "difference")[0].startswith("+")
        block = page.locator("#block-repeat")
        block.locator("select").select_option("wsm, rate 0.1")
        expect(block.locator("pre").first).to_contain_text("name: wsm")
        expect(block.locator("pre").nth(1)).to_contain_text("--seed 1")
        block.locator("button").first.click()
        expect(block.locator("button").first).to_have_text("Copied")


def test_print(opened: Open, report: Path) -> None:
    """All figures are drawn for paper, also those that were never on the screen."""
    with opened(report) as page:
        assert len(page.pdf()) > 50_000
        assert page.locator(".plot[data-drawn]").count() == 14


def test_two_hundred_runs(opened: Open, tmp_path: Path) -> None:
    """200 runs with 1,000 rounds stay under 20 MB, and can be filtered."""
    many_runs(tmp_path / "runs", 200, 1000, forgetting=50, different=20)
    written = write_report(tmp_path / "runs", tmp_path / "report.html")
    assert (written.runs, written.groups) == (200, 200)
    assert written.size < 20e6
    with opened(written.page) as page:
        assert page.locator("#block-summary tbody tr").count() == 200
        plot = page.locator("#block-curves .plot")
        plot.scroll_into_view_if_needed()
        expect(plot).to_have_attribute("data-drawn", "true")
        page.select_option("[data-field='method.loss']", "wsm")
        expect(page.locator("#shown")).to_have_text("50 of 200 shown")
        assert page.locator("#block-summary tbody tr").count() == 50


# --- live ------------------------------------------------------------------------------------------------


def test_a_live_page_says_that_it_reads_until_it_has_read(browser: Browser, tmp_path: Path) -> None:
    """It has no data when it is opened, and doesn't pass that for a folder without runs."""
    write_run(tmp_path / "one", {}, rows=full_rows(0, 5, 5, 5, 3))
    may_answer = threading.Event()

    def read() -> dict[str, object]:
        may_answer.wait(LONG)  # which the test ends, however long the page takes to open
        return collect(runs_of([tmp_path]))

    with serve(lambda: render(collect([]), live=True), Latest(read, lambda: 0)) as address:
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("#facts")).to_have_text("reading the runs …")
        expect(page.locator("main")).to_have_text("The runs are being read.")
        may_answer.set()
        expect(page.locator("#facts")).to_contain_text("1 run in 1 group")
        page.close()


def test_a_live_page_keeps_up_and_loses_nothing(browser: Browser, tmp_path: Path) -> None:
    """Empty at first; then runs come; then one goes on, and filter, order, choice and slider stay."""
    runs, latest = tmp_path / "runs", collect([])

    def publish() -> None:
        nonlocal latest
        latest = collect(runs_of([runs]))

    with serve(lambda: render(collect([]), live=True), Latest(lambda: latest, lambda: latest)) as address:
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        expect(page.locator("main")).to_contain_text("No runs yet")
        for loss in ("ce", "wsm"):
            rows = [*full_rows(0, 10, 5, 5, 3), *overall("validation_accuracy", {11: 0.5})]
            write_run(runs / loss, {"method.loss": loss}, rows=rows, status="running", rounds=10)
        publish()
        expect(page.locator("#block-summary tbody tr")).to_have_count(2)
        page.fill("#search", "wsm")
        expect(page.locator("#block-summary tbody tr")).to_have_count(1)
        sort(page, "runs", "rounds")
        page.locator("#block-curves select").select_option("train loss")
        page.locator("#block-forgetting-maps input[type=range]").press("Home")
        with (runs / "wsm" / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in overall("train_loss", {12: 0.25}))
            file.writelines(json.dumps(row) + "\n" for row in matrix(12, [0.5], [[0.5]], [3]))
        publish()
        expect(page.locator("#block-runs tbody")).to_contain_text("12 of 50")
        assert labels(page) == ["fedavg + wsm"]
        assert page.locator("#block-runs th[aria-sort=descending]").count() == 1
        assert page.locator("#block-curves select").input_value() == "train loss"
        expect(page.locator("#block-forgetting-maps output")).to_have_text("1 (1 of 4)")
        expect(page.locator("#live")).to_have_text("● live")
        page.close()
        assert errors == []


def test_labels_of_small_maps_are_whole(tmp_path: Path, opened: Open) -> None:
    """Two rows of cells are shorter than the name of their axis, and a group's name can be long."""
    write_run(
        tmp_path / "a",
        {"rounds": 1},
        rows=[*matrix(1, [0.8, 0.5], [[0.9, 0.1], [0.2, 0.7]], [3, 7]), *detailed_rows(0, 1)],
        status="finished",
        accuracy=0.5,
    )
    study = {"variants": {"SCAFFOLD + WSM, MMMM": ["a"]}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    page = write_report(tmp_path, tmp_path / "report.html").page
    spy = """window.written = new Set();
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
            window.written.add(String(text)); fill.call(this, text, ...at);
        };"""
    with opened(page, spy) as view:
        for figure in view.locator(".plot").all():
            figure.scroll_into_view_if_needed()
            expect(figure).to_have_attribute("data-drawn", "true")
        written = view.evaluate("[...window.written]")
    assert "model of client i" in written
    assert [text for text in written if text.endswith("…")] == []
