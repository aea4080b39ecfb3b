"""The picture of a partition, and its numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mnemos.data.partition import Assignment, Ints, partitions
from mnemos.errors import ConfigError
from mnemos.plots.partition import (
    draw_partition,
    label_counts,
    palette,
    partition_figure,
    summarise,
)

LABELS = np.array([0, 0, 1, 1, 2, 2, 0, 1])
BY_HAND = Assignment(np.array([0, 1, 2, 3, 4, 5]), np.array([0, 2, 6, 6]), 0.5)
"""Client 0: labels 0 0; client 1: 1 1 2 2; client 2: nothing. Samples 6 and 7 belong to nobody."""


def dirichlet(classes: int, clients: int, samples: int = 3000) -> tuple[Assignment, Ints]:
    labels = np.arange(samples) % classes
    part = partitions.parse({"name": "dirichlet", "clients": clients})
    return part.split(labels, None, np.random.default_rng(0)), labels


def test_numbers_by_hand() -> None:
    """All: (⅓, ⅓, ⅓). Client 0: (1, 0, 0), at distance ⅔. Client 1: (0, ½, ½), at distance ⅓."""
    facts = summarise(BY_HAND, LABELS)
    assert facts == {
        "clients": 3,
        "samples": 6,
        "left_out": 2,
        "training": 3,
        "size_min": 0,
        "size_median": 2.0,
        "size_max": 4,
        "empty": 1,
        "labels_mean": 1.5,
        "one_label": 1,
        "distance_mean": pytest.approx(0.5),
        "distance_max": pytest.approx(2 / 3),
    }


def test_a_sample_of_several_clients_is_left_out_nowhere() -> None:
    everyone = partitions.parse({"name": "whole", "clients": 3}).split(LABELS, None, np.random.default_rng(0))
    facts = summarise(everyone, LABELS)
    assert (facts["samples"], facts["left_out"], facts["distance_max"]) == (3 * len(LABELS), 0, 0)


def test_counts_of_some_clients() -> None:
    assert label_counts(BY_HAND, LABELS, 3, np.array([1, 2])).tolist() == [[0, 2, 2], [0, 0, 0]]


def test_numbers_of_a_hundred_thousand_clients() -> None:
    assignment, labels = dirichlet(100, 100_000, 300_000)
    facts = summarise(assignment, labels)
    assert facts["clients"] == 100_000
    assert 1 <= facts["labels_mean"] <= 3
    assert 0.9 < facts["distance_mean"] < 1


def test_nobody_holds_anything() -> None:
    facts = summarise(Assignment(np.empty(0, np.int64), np.zeros(4, np.int64)), LABELS)
    assert (facts["empty"], facts["labels_mean"], facts["distance_mean"]) == (3, 0.0, 0.0)


def heights(figure: Figure) -> dict[int, int]:
    """Height of the stack at each place."""
    stacks: dict[int, int] = {}
    for patch in figure.axes[0].patches:
        x, height = patch.get_x() + patch.get_width() / 2, patch.get_height()  # type: ignore[attr-defined]
        stacks[round(x)] = stacks.get(round(x), 0) + round(height)
    return stacks


def test_bars_are_as_high_as_clients_are_large() -> None:
    assert heights(partition_figure(BY_HAND, LABELS, 3)) == {0: 2, 1: 4}


def test_shows_clients_all_along() -> None:
    assignment, labels = dirichlet(5, 100)
    figure = partition_figure(assignment, labels, 5, clients=12, title="digits, α = 0.1")
    axes = figure.axes[0]
    assert len(heights(figure)) == 12
    assert [text.get_text() for text in axes.get_xticklabels()][::11] == ["0", "99"]
    assert axes.get_title(loc="left") == "digits, α = 0.1"
    assert axes.texts[0].get_text().startswith("12 of 100 clients · 3,000 samples")


def test_legend_for_few_classes_colour_bar_for_many() -> None:
    assignment, labels = dirichlet(20, 10)
    few = partition_figure(assignment, labels, [f"kind {c}" for c in range(20)])
    assert [text.get_text() for text in few.legends[0].get_texts()] == [
        f"kind {c}" for c in range(19, -1, -1)
    ]
    assert len(few.axes) == 1
    many = partition_figure(*dirichlet(21, 10), 21)
    assert not many.legends
    assert len(many.axes) == 2


def test_noise_is_drawn_as_a_line() -> None:
    part = partitions.parse({"name": "feature-noise", "clients": 3, "noise": 0.5})
    figure = partition_figure(part.split(LABELS, None, np.random.default_rng(0)), LABELS, 3)
    assert list(figure.axes[1].lines[0].get_ydata()) == [0.0, 0.25, 0.5]


@pytest.mark.parametrize("name", ["a.png", "deep/er/a.pdf", "a.SVG"])
def test_writes_by_suffix(name: str, tmp_path: Path) -> None:
    path = draw_partition(BY_HAND, LABELS, ["_silence_", "$5 or $6", "x" * 80], tmp_path / name)
    start = path.read_bytes()[:400]
    assert any(magic in start for magic in (b"PNG", b"%PDF", b"<svg", b"<?xml"))


def test_does_not_write_what_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't be written to 'a\.txt'; allowed: \.pdf, \.png, \.svg"):
        draw_partition(BY_HAND, LABELS, 3, tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_leaves_no_figures_open() -> None:
    partition_figure(BY_HAND, LABELS, 3)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


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
    """CIELAB distances, with and without red and green blindness (Machado et al., 2009)."""
    colours = np.array([to_rgb(colour) for colour in palette(10)])
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(sees).T, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = seen @ np.array(to_xyz).T / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=2) + 1000 * np.eye(10)
    # A distance of 2 can just be noticed; neighbours in a stack are further apart still.
    assert distances.min() > 12
    assert np.diagonal(distances, 1).min() > 18
