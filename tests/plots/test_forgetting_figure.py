"""Heat-maps of forgetting, and its curve over rounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from mnemos.errors import ConfigError
from mnemos.plots.curves import curve, draw_curves
from mnemos.plots.forgetting_maps import (
    class_figure,
    draw_class_heatmaps,
    draw_heatmaps,
    forgetting_figure,
    read_grid,
)
from mnemos.plots.style import finish
from mnemos.runs.forgetting_matrix import ForgettingMatrix
from mnemos.runs.run import Run


def matrix(
    before: Sequence[float],
    after: Sequence[Sequence[float]],
    models: Sequence[int],
    data: Sequence[int] | None = None,
    kind: str = "data",
) -> ForgettingMatrix:
    columns = pd.Index(models if data is None else data, name=kind)
    rows = pd.Index(models, name="model")
    return ForgettingMatrix(pd.Series(before, columns), pd.DataFrame(after, rows, columns))


BY_HAND = matrix([0.8, 0.5], [[0.9, 0.1], [0.2, 0.7]], [3, 7])
"""F = (−0.1, 0.4), (0.6, −0.2); F_3 = 0.6, F_7 = 0.4."""


def drawn(count: int, seed: int = 0, most: int = 1000) -> ForgettingMatrix:
    draw = np.random.default_rng(seed)
    clients = np.sort(draw.choice(most, count, replace=False)).tolist()
    return matrix(draw.random(count).tolist(), draw.random((count, count)).tolist(), clients)


def meshes(axes: Axes) -> list[QuadMesh]:
    return [part for part in axes.collections if isinstance(part, QuadMesh)]


def panels(figure: Figure) -> list[Axes]:
    """The maps; colour bars have no y labels."""
    return [axes for axes in figure.axes if axes.get_title(loc="left")]


def numbers(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def headings(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def test_what_is_drawn_by_hand() -> None:
    left, right = panels(forgetting_figure({"fedavg": {4: BY_HAND}}))
    cells, beneath, beside, corner = (np.asarray(mesh.get_array()) for mesh in meshes(left))
    assert np.allclose(cells, [[-0.1, 0.4], [0.6, -0.2]])
    assert np.allclose(beneath, [[0.6, 0.4]])  # F_k
    assert np.allclose(beside, [[0.4], [0.6]])  # caused by model i
    assert np.allclose(corner, [[0.5]])
    assert numbers(left) == ["−.10", ".40", ".60", "−.20", ".60", ".40", ".40", ".60", ".50"]
    cells, beneath = (np.asarray(mesh.get_array()) for mesh in meshes(right))
    assert np.allclose(cells, [[0.9, 0.1], [0.2, 0.7]])
    assert np.allclose(beneath, [[0.8, 0.5]])
    assert [text.get_text() for text in left.get_yticklabels()] == ["3", "7", "$F_k$"]
    assert [text.get_text() for text in left.get_xticklabels()] == ["3", "7", "mean"]
    assert "model of client i" in left.get_ylabel()
    assert "data of client k" in left.get_xlabel()


def test_rows_go_down_as_in_a_table() -> None:
    (left, _) = panels(forgetting_figure({"fedavg": {4: BY_HAND}}))
    assert left.yaxis_inverted()
    texts = {text.get_text(): text.get_position() for text in left.texts[:4]}
    assert texts["−.10"] == (0.5, 0.5)
    assert texts[".60"] == (0.5, 1.5)


def test_all_panels_share_two_scales() -> None:
    """The largest |F| is 0.6; accuracies go from 0 to 1 whatever was reached."""
    mild = matrix([0.5, 0.5], [[0.5, 0.4], [0.5, 0.5]], [1, 2])
    found = panels(forgetting_figure({"a": {1: BY_HAND, 2: mild}, "b": {1: mild, 2: mild}}))
    assert len(found) == 8
    limits = {(mesh.norm.vmin, mesh.norm.vmax) for axes in found[::2] for mesh in meshes(axes)}
    assert limits == {(-0.6, 0.6)}
    assert {(m.norm.vmin, m.norm.vmax) for axes in found[1::2] for m in meshes(axes)} == {(0.0, 1.0)}


def test_nothing_forgotten_still_has_a_scale() -> None:
    same = matrix([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], [1, 2])
    left, _ = panels(forgetting_figure({"a": {1: same}}))
    assert (meshes(left)[0].norm.vmin, meshes(left)[0].norm.vmax) == (-0.1, 0.1)
    assert set(numbers(left)) == {"0"}


@pytest.mark.parametrize(("clients", "numbered"), [(2, True), (12, True), (13, False), (100, False)])
def test_numbers_where_they_can_be_read(clients: int, numbered: bool) -> None:
    left, right = panels(forgetting_figure({"a": {1: drawn(clients)}}))
    assert len(numbers(left)) == ((clients + 1) ** 2 if numbered else 0)
    assert len(numbers(right)) == (clients * (clients + 1) if numbered else 0)
    assert len(left.get_yticklabels()) <= 21


@pytest.mark.parametrize("clients", [2, 12, 20, 100])
def test_no_words_overlap(clients: int) -> None:
    """Headings, titles, names of clients and axes, as they come to lie on the page."""
    grid = {name: {r: drawn(clients, r) for r in (1, 100)} for name in ("fedavg", "fedavg + wsm")}
    figure = forgetting_figure(grid, "Forgetting")
    figure.draw_without_rendering()  # type: ignore[no-untyped-call]
    boxes = [text.get_window_extent() for text in figure.texts]
    for axes in figure.axes:
        words = [axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
        boxes += [word.get_window_extent() for word in words if word.get_text()]
        if axes.get_title(loc="left"):
            boxes.append(axes._left_title.get_window_extent())  # type: ignore[attr-defined]
    page = figure.bbox
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 for box in boxes)
    assert all(page.y0 <= box.y0 and box.y1 <= page.y1 for box in boxes)
    touching = [
        (one, two)
        for place, one in enumerate(boxes)
        for two in boxes[:place]
        if min(one.x1, two.x1) - max(one.x0, two.x0) > 1 and min(one.y1, two.y1) - max(one.y0, two.y0) > 1
    ]
    assert not touching


def test_the_longer_list_goes_down_the_page() -> None:
    rounds = forgetting_figure({name: dict.fromkeys((1, 2, 3), BY_HAND) for name in "ab"})
    assert headings(rounds) == [f"{name}, round {number}" for number in (1, 2, 3) for name in "ab"]
    methods = forgetting_figure({name: dict.fromkeys((1, 2), BY_HAND) for name in "abc"})
    assert headings(methods) == [f"{name}, round {number}" for name in "abc" for number in (1, 2)]


def test_own_data_is_boxed_wherever_it_is() -> None:
    """Model 5 has no data of its own here."""
    some = matrix([0.5, 0.5], [[0.5, 0.5]] * 3, [3, 5, 7], [3, 7])
    left, _ = panels(forgetting_figure({"a": {1: some}}))
    boxes = next(part for part in left.collections if not isinstance(part, QuadMesh))
    assert [path.get_extents().p0.tolist() for path in boxes.get_paths()] == [[0, 0], [1, 2]]


def test_a_round_that_was_not_measured_is_left_empty() -> None:
    figure = forgetting_figure({"a": {1: BY_HAND, 2: None}})
    assert len(panels(figure)) == 2
    assert headings(figure) == ["a, round 1", "a, round 2", "not measured"]
    assert forgetting_figure({"a": {1: None}}).texts


def test_a_cohort_of_one_has_no_means() -> None:
    left, _ = panels(forgetting_figure({"a": {1: matrix([0.5], [[0.9]], [4])}}))
    assert numbers(left) == ["−.40"]


def test_classes_by_hand() -> None:
    lost = matrix([0.9, 0.4, 0.3], [[0.2, 0.4, 0.5], [0.9, 0.0, 0.3]], [3, 7], [0, 1, 8], "class")
    (axes,) = panels(class_figure({"fedavg": {4: lost}}, "Classes"))
    cells, beneath, *_ = (np.asarray(mesh.get_array()) for mesh in meshes(axes))
    assert np.allclose(cells, [[0.7, 0.0, -0.2], [0.0, 0.4, 0.0]])
    assert np.allclose(beneath, [[0.35, 0.2, -0.1]])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "8", "mean"]
    assert headings(class_figure({"fedavg": {4: lost}}, "Classes"))[0] == "Classes"


def test_too_many_for_a_page() -> None:
    with pytest.raises(ConfigError, match="found 31 runs and 2 rounds to draw, which are 62 matrices"):
        forgetting_figure({str(name): dict.fromkeys((1, 2), BY_HAND) for name in range(31)})


@pytest.mark.parametrize(
    "sees",
    [
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    ],
    ids=["all cones", "no L cones", "no M cones"],
)
def test_colours_can_be_told_apart(sees: list[list[float]]) -> None:
    """What was forgotten from what was gained as much, by CIELAB distance (Machado et al., 2009)."""
    left, right = panels(forgetting_figure({"a": {1: BY_HAND}}))

    def seen(axes: Axes, at: Sequence[float]) -> np.ndarray:
        colours = meshes(axes)[0].get_cmap()(np.array(at))[:, :3]
        linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
        to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        xyz = np.clip(linear @ np.array(sees).T, 0, 1) @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)

    for far in (0.1, 0.2, 0.3, 0.4, 0.5):
        forgotten, gained = seen(left, [0.5 + far, 0.5 - far])
        assert np.linalg.norm(forgotten - gained) > 12  # 2 can just be noticed
    steps = np.diff(seen(right, np.linspace(0, 1, 11).tolist()), axis=0)
    assert (steps[:, 0] < 0).all()  # ever darker, so that the order shows
    assert (np.linalg.norm(steps, axis=1) > 2).all()


# --- from runs ----------------------------------------------------------------------------------------


def written(path: Path, rounds: Sequence[int], shift: float = 0.0) -> Run:
    """A run of two clients and one class."""
    path.mkdir()
    rows: list[dict[str, object]] = []
    for number in rounds:
        for key, columns in (("client", (3, 7)), ("class", (0,))):
            rows += [{"name": "before_accuracy", key: k, "value": 0.5} for k in columns]
            rows += [
                {"name": "after_accuracy", "model": i, key: k, "value": 0.25} for i in (3, 7) for k in columns
            ]
        rows += [{"name": "forgetting", "value": 0.25 + shift}]
        rows = [{"round": number, **row} for row in rows]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Run(path)


@pytest.mark.parametrize("draw", [draw_heatmaps, draw_class_heatmaps])
@pytest.mark.parametrize("name", ["a.png", "deep/er/a.pdf", "a.svg"])
def test_writes_by_suffix(draw, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    runs = {"$a_b$ " * 30: written(tmp_path / "run", [1])}
    path = draw(runs, [1, 5], tmp_path / name)
    assert any(magic in path.read_bytes()[:400] for magic in (b"PNG", b"%PDF", b"<svg", b"<?xml"))


def test_reads_what_was_measured(tmp_path: Path) -> None:
    grid = read_grid({"a": written(tmp_path / "a", [4])}, [4, 5])
    assert list(grid["a"]) == [4, 5]
    assert grid["a"][5] is None
    found = grid["a"][4]
    assert found is not None
    assert (found.forgetting.to_numpy() == 0.25).all()


def test_curve_of_forgetting(tmp_path: Path) -> None:
    """0.25 and 0.35: mean 0.3, standard deviation √2/20."""
    runs = [written(tmp_path / "a", [4]), written(tmp_path / "b", [4], 0.1)]
    points = curve(runs, "forgetting")
    assert points.loc[4].tolist() == pytest.approx([0.3, 2**0.5 / 20, 2])
    assert draw_curves({"a": runs}, tmp_path / "a.svg", "forgetting").is_file()


def test_a_curve_of_a_single_round_has_one_tick(tmp_path: Path) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([4.0], [0.3], label="a")
    finish(figure, axes)
    assert axes.get_xticks().tolist() == [4.0]


def test_the_legend_covers_no_curve() -> None:
    """It stands beneath the axes, however long the labels are."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for place in range(9):
        axes.plot([1, 2, 3], [place] * 3, label=f"fedavg + wsm, local.lr=0.{place}, partition.alpha=0.1")
    finish(figure, axes)
    figure.draw_without_rendering()  # type: ignore[no-untyped-call]
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.y1 <= axes.get_window_extent().y0
    assert figure.bbox.x0 <= box.x0
    assert box.x1 <= figure.bbox.x1
    assert axes.get_window_extent().height > 100


def test_axes_are_named_also_where_the_last_map_is_missing() -> None:
    """Below the lowest map of each column, and beside the first of each row."""
    figure = forgetting_figure({"a": {1: BY_HAND, 2: BY_HAND}, "b": {1: None, 2: BY_HAND}})
    names = [(bool(axes.get_xlabel()), bool(axes.get_ylabel())) for axes in panels(figure)[::2]]
    assert names == [(True, True), (False, False), (True, True)]
