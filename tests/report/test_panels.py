"""The numbers of each panel against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from synthetic import matrix, overall, write_run

from mnemos.report.blocks import Bars, Block, HeatMaps, Lines, Listings, Table, Text
from mnemos.report.groups import RunGroup, group
from mnemos.report.page import collect, render
from mnemos.report.panel import panels
from mnemos.report.panels.cost import duration, size
from mnemos.report.panels.robustness import families
from mnemos.report.panels.significance import holm, paired
from mnemos.report.reading import read
from mnemos.runs.run import Run


def blocks(panel: str, *runs: Run, **options: Any) -> list[Block]:
    return list(panels[panel](**options).blocks(grouped(*runs)))


def grouped(*runs: Run) -> list[RunGroup]:
    return group([read(run) for run in runs], lambda _note: None)


def texts(table: Block, choice: int = 0) -> list[list[str]]:
    assert isinstance(table, Table)
    return [[cell.text for cell in row.cells] for row in table.rows if row.choice == choice]


def heads(table: Block) -> list[str]:
    assert isinstance(table, Table)
    return [column.label for column in table.columns]


def by_seed(
    folder: Path, accuracies: Mapping[int, float | None], changes: dict[str, Any] | None = None
) -> list[Run]:
    """Runs with these final accuracies; None: not converged."""
    return [
        write_run(
            folder / str(seed),
            {**(changes or {}), "seed": seed},
            status="finished" if value is not None else "diverged",
            accuracy=value,
        )
        for seed, value in accuracies.items()
    ]


def test_every_panel_says_nothing_of_no_runs() -> None:
    for kind in panels:
        assert list(kind().blocks([])) == []


# --- summary ------------------------------------------------------------------------------------------


def test_summary(tmp_path: Path) -> None:
    """0.5, 0.6, 0.7: mean 0.6, standard deviation 0.1."""
    ce = by_seed(tmp_path / "ce", {0: 0.5, 1: 0.6, 2: 0.7, 3: None})
    wsm = by_seed(tmp_path / "wsm", {0: 0.65}, {"method.loss": "wsm"})
    (table,) = blocks("summary", *ce, *wsm)
    assert texts(table) == [
        ["fedavg + ce", "60.0 ± 10.0 % (1 NC)", "70.0 %", "50.0 %", "1", "4", "50", "1 diverged, 3 finished"],
        ["fedavg + wsm", "65.0 %", "65.0 %", "65.0 %", "0", "1", "50", "finished"],
    ]
    assert isinstance(table, Table)
    assert [row.cells[1].best for row in table.rows] == [False, True]
    assert table.rows[0].cells[1].value == pytest.approx(0.6)
    assert table.rows[0].cells[1].spread == pytest.approx(0.1)


def test_the_best_of_each_data_set_is_marked(tmp_path: Path) -> None:
    runs = [
        *by_seed(tmp_path / "a", {0: 0.5}),
        *by_seed(tmp_path / "b", {0: 0.4}, {"local.lr": 0.3}),
        *by_seed(tmp_path / "c", {0: 0.1}, {"data": {"name": "digits", "test": 0.5}}),
    ]
    (table,) = blocks("summary", *runs)
    assert isinstance(table, Table)
    best = {row.cells[2].value for row in table.rows if row.cells[2].best}
    assert best == {0.5, 0.1}
    assert heads(table)[1] == "data"


def test_a_group_that_sometimes_diverged_is_best_only_among_its_like(tmp_path: Path) -> None:
    lucky = by_seed(tmp_path / "a", {0: 0.9, 1: None})
    unlucky = by_seed(tmp_path / "b", {0: 0.3, 1: None}, {"local.lr": 0.3})
    steady = by_seed(tmp_path / "c", {0: 0.5, 1: 0.6}, {"local.lr": 0.1})
    for runs, best in (([*lucky, *unlucky, *steady], 0.55), ([*lucky, *unlucky], 0.9)):
        (table,) = blocks("summary", *runs)
        assert isinstance(table, Table)
        assert [row.cells[1].value for row in table.rows if row.cells[1].best] == [pytest.approx(best)]


def test_which_accuracy_is_told(tmp_path: Path) -> None:
    """A validation accuracy beside test accuracies must not pass for one."""
    once = {"evaluate.test_last": 1}
    tested = write_run(tmp_path / "a", once, rows=overall("test_accuracy", {50: 0.5}), accuracy=0.5)
    not_tested = {"evaluate.test_last": 0, "local.lr": 0.3}
    validated = write_run(
        tmp_path / "b", not_tested, rows=overall("validation_accuracy", {50: 0.6}), accuracy=0.6
    )
    assert "seed: test accuracy after the last round, mean" in blocks("summary", tested)[0].text
    assert "seed: validation accuracy, mean" in blocks("summary", validated)[0].text
    both = blocks("summary", tested, validated)[0].text
    assert "after the last round (validation accuracy of runs that weren't tested), mean" in both


def test_a_run_that_goes_on_shows_how_far_it_is(tmp_path: Path) -> None:
    rows = [*overall("validation_accuracy", {2: 0.3, 4: 0.4}), *overall("train_loss", [1.0] * 5)]
    run = write_run(tmp_path / "a", rows=rows, status="running", rounds=0)
    (table,) = blocks("summary", run)
    row = dict(zip(heads(table), texts(table)[0], strict=True))
    assert (row["final accuracy"], row["so far"], row["rounds"]) == ("–", "40.0 %", "5 of 50")
    assert row["status"] == "interrupted"  # its process is gone
    with run.lock():
        assert texts(blocks("summary", run)[0])[0][-1] == "running"


def test_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", status="diverged", rounds=3, message="round 4: it is not finite")
    (table,) = blocks("runs", run, *by_seed(tmp_path / "b", {1: 0.25}))
    assert texts(table) == [
        ["a", "fedavg + ce", "0", "diverged", "3 of 50", "NC", "round 4: it is not finite"],
        ["1", "fedavg + ce", "1", "finished", "50", "25.0 %", ""],
    ]


# --- curves -------------------------------------------------------------------------------------------


def test_curves(tmp_path: Path) -> None:
    """Round 10: 0.2 and 0.4, so 0.3 ± √0.02; round 20: one seed."""
    one = write_run(tmp_path / "a", rows=overall("validation_accuracy", {10: 0.2, 20: 0.5}))
    two = write_run(tmp_path / "b", {"seed": 1}, rows=overall("validation_accuracy", {10: 0.4}))
    (lines,) = blocks("curves", one, two)
    assert isinstance(lines, Lines)
    (view,) = lines.views
    (series,) = view.series
    assert series.x.tolist() == [10, 20]
    assert series.mean == pytest.approx([0.3, 0.5])
    assert series.std == pytest.approx([math.sqrt(0.02), 0])
    assert view.percent


def test_one_seed_has_no_band_and_metrics_come_in_order(tmp_path: Path) -> None:
    rows = [*overall("train_loss", [2.0, None]), *overall("own_metric", [1.0])]  # type: ignore[list-item]
    rows += [*overall("bytes_up", [1.0]), *overall("validation_accuracy", [0.1])]
    (lines,) = blocks("curves", write_run(tmp_path / "a", rows=rows))
    assert isinstance(lines, Lines)
    assert [view.label for view in lines.views] == ["validation accuracy", "train loss", "own metric"]
    assert lines.views[1].series[0].std is None
    assert lines.views[1].series[0].mean.tolist() == [2.0]


# --- forgetting ---------------------------------------------------------------------------------------


def test_forgetting_maps(tmp_path: Path) -> None:
    rows = [*matrix(1, [0.8, 0.5], [[0.9, 0.1], [0.2, 0.7]], [3, 7]), *matrix(5, [0.5], [[0.5]], [2])]
    rows += list(matrix(9, [0.8, 0.5], [[0.9, 0.1], [0.2, 0.7]], [3, 7]))[:-3]  # is being written
    (block,) = blocks("forgetting-maps", write_run(tmp_path / "a", rows=rows))
    assert isinstance(block, HeatMaps)
    (item,) = block.items
    assert [frame.label for frame in item.frames] == ["1", "5"]
    assert item.frames[0].rows == item.frames[0].columns == (3, 7)
    assert item.frames[0].lost == pytest.approx(np.array([[-0.1, 0.4], [0.6, -0.2]]))
    assert item.frames[0].own.tolist() == [[True, False], [False, True]]
    assert block.maps[0].most == pytest.approx(0.6)


def test_mean_forgetting(tmp_path: Path) -> None:
    """F is 0.25 and 0.35 in round 4, which both seeds have: 0.3 ± 0.0707."""
    one = write_run(tmp_path / "a", rows=overall("forgetting", {4: 0.25, 8: 0.9}))
    two = write_run(tmp_path / "b", {"seed": 1}, rows=overall("forgetting", {4: 0.35}))
    lines, table = blocks("forgetting", one, two)
    assert isinstance(lines, Lines)
    assert lines.views[0].series[0].mean == pytest.approx([0.3, 0.9])
    assert texts(table) == [["fedavg + ce", "4", "0.300 ± 0.071", "–", "2"]]


# --- by client, by class, personalised ----------------------------------------------------------------


def test_clients(tmp_path: Path) -> None:
    """20 clients with 0, 0.05, …, 0.95: mean 0.475; worst two 0.025, best two 0.925; std 0.05·√(399/12)."""
    rows = [
        {"round": 2, "name": "validation_accuracy", "client": 19 - client, "value": client / 20}
        for client in range(20)
    ]
    first = [{"round": 1, "name": "validation_accuracy", "client": 0, "value": 1.0}]
    lines, table = blocks("clients", write_run(tmp_path / "a", rows=first + rows))
    between = 100 * 0.05 * math.sqrt(399 / 12)
    assert texts(table) == [["fedavg + ce", "20", "47.5 %", f"{between:.1f} %", "2.5 %", "92.5 %"]]
    assert isinstance(lines, Lines)
    series = lines.views[0].series[0]
    assert (series.x[[0, 50, 100]].tolist(), series.mean[[0, 50, 100]]) == (
        [0, 50, 100],
        pytest.approx([0, 0.475, 0.95]),
    )


def test_classes(tmp_path: Path) -> None:
    def rows(number: int, name: str, *values: float) -> list[dict[str, Any]]:
        return [{"round": number, "name": name, "class": c, "value": value} for c, value in enumerate(values)]

    one = rows(1, "validation_accuracy", 0.0, 1.0) + rows(2, "test_accuracy", 0.2, 0.4)
    two = rows(2, "test_accuracy", 0.4, 0.8)
    runs = write_run(tmp_path / "a", rows=one), write_run(tmp_path / "b", {"seed": 1}, rows=two)
    block, table = blocks("classes", *runs)
    assert isinstance(block, HeatMaps)
    (item,) = block.items
    assert [(frame.label, frame.values.tolist()) for frame in item.frames] == [
        ("1", [[0.0, 1.0]]),
        ("2", [[pytest.approx(0.3), pytest.approx(0.6)]]),
    ]
    assert texts(table) == [["fedavg + ce", "30.0 ± 14.1 %", "60.0 ± 28.3 %"]]


def test_a_class_that_one_seed_lacks(tmp_path: Path) -> None:
    """Map and table agree: the mean is over the seeds that have the class."""
    rows = [{"round": 1, "name": "validation_accuracy", "class": c, "value": 0.25 * c} for c in (0, 1, 2)]
    runs = write_run(tmp_path / "a", rows=rows), write_run(tmp_path / "b", {"seed": 1}, rows=rows[:2])
    block, table = blocks("classes", *runs)
    assert isinstance(block, HeatMaps)
    assert block.items[0].frames[0].values.tolist() == [[0.0, 0.25, 0.5]]
    assert texts(table)[0][-1] == "50.0 %"


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    values = {0: 0.25, 1: None}
    rows = [{"round": 1, "name": "validation_accuracy", "class": c, "value": v} for c, v in values.items()]
    rows += [{"round": 1, "name": name, "value": None} for name in ("bytes_up", "bytes_down")]
    run = write_run(tmp_path / "a", rows=rows)
    _, table = blocks("classes", run)
    assert texts(table)[0][1:] == ["25.0 %", "–"]
    assert len(render(collect([run])))  # JSON has no word for it, and the page is there all the same


def test_personalised(tmp_path: Path) -> None:
    rows = [*overall("personalised_accuracy", {1: 0.1, 2: 0.75}), *overall("plain_accuracy", {2: 0.5})]
    (table,) = blocks("personalised", write_run(tmp_path / "a", rows=rows))
    assert heads(table)[1:] == ["personalised, own validation", "plain, own validation"]
    assert texts(table) == [["fedavg + ce", "75.0 %", "50.0 %"]]


# --- partition ----------------------------------------------------------------------------------------


def test_partition(tmp_path: Path) -> None:
    """Digits: 1,438 training samples, dealt to 12 clients of 119 each; one view a seed, the rest is told."""
    runs = [write_run(tmp_path / str(seed), {"seed": seed}) for seed in range(3)]
    runs.append(write_run(tmp_path / "other", {"seed": 0, "method.loss": "wsm"}))
    (bars,) = blocks("partition", *runs, most=2)
    assert isinstance(bars, Bars)
    assert [view.label[-6:] for view in bars.views] == ["seed 0", "seed 1"]
    assert [view.groups for view in bars.views] == [(0, 1), (0,)]
    held = np.stack([stack.values for stack in bars.views[0].stacks])
    assert held.shape == (10, 12)
    assert len(set(held.sum(0))) == 1
    assert "1 more" in bars.note


def test_a_partition_whose_data_is_not_here_is_told(tmp_path: Path) -> None:
    (text,) = blocks("partition", write_run(tmp_path / "a", {"data": "cifar10"}))
    assert isinstance(text, Text)
    assert "can't be shown" in text.sentences[0]


def test_of_data_that_stays_with_its_owners_only_sizes_are_drawn(tmp_path: Path) -> None:
    data = {
        "name": "elsewhere", "shape": [4], "kind": "float32", "classes": ["x", "y"], "mean": [0.0] * 4,
        "std": [1.0] * 4, "owners": [{"owner": "north", "train": 30}, {"owner": "south", "train": 70}],
    }  # fmt: skip
    changes = {"data": data, "partition": {"name": "natural"}, "engine": "flower"}
    (bars,) = blocks("partition", write_run(tmp_path / "a", changes))
    assert isinstance(bars, Bars)
    (view,) = bars.views
    assert view.categories == ("north", "south")
    assert [(stack.label, stack.values.tolist()) for stack in view.stacks] == [("samples", [30.0, 70.0])]
    assert view.note == "2 owners · 100 samples · labels stay with them"


# --- learning metrics ---------------------------------------------------------------------------------


def rank(number: int, layer: str | None, value: float, **more: Any) -> dict[str, Any]:
    """A record of a layer, or of the network."""
    name = more.pop("name", "effective_rank")
    about = {"name": f"{name}_network"} if layer is None else {"name": name, "layer": layer}
    return {"round": number, "value": value, **about, **more}


def curves(lines: Block) -> dict[str, dict[str, tuple[list[float], list[float], list[float] | None]]]:
    """x, mean and deviation by view and curve."""
    assert isinstance(lines, Lines)
    return {
        view.label: {
            one.label: (one.x.tolist(), one.mean.tolist(), None if one.std is None else one.std.tolist())
            for one in view.series
        }
        for view in lines.views
    }


def test_learning_metrics_by_hand(tmp_path: Path) -> None:
    """Layer a in round 5: 1 and 3 of two seeds, so 2 ± √2; layer b is in one group alone."""
    ce = [
        write_run(
            tmp_path / str(seed),
            {"seed": seed},
            rows=[rank(5, "a", value), rank(5, None, 10.0), rank(10, "a", 4.0), rank(10, "b", math.nan)],
        )
        for seed, value in ((0, 1.0), (1, 3.0))
    ]
    wsm = write_run(tmp_path / "wsm", {"method.loss": "wsm"}, rows=[rank(5, "a", 7.0), rank(5, "b", 8.0)])
    layers, together = blocks("ranks", *ce, wsm)
    found = curves(layers)
    assert list(found) == ["effective rank, network", "effective rank, a", "effective rank, b"]
    assert found["effective rank, network"] == {"fedavg + ce": ([5], [10], [0])}
    x, mean, std = found["effective rank, a"]["fedavg + ce"]
    assert (x, mean, std) == ([5, 10], [2, 4], pytest.approx([math.sqrt(2), 0]))
    assert found["effective rank, a"]["fedavg + wsm"] == ([5], [7], None)
    assert found["effective rank, b"] == {"fedavg + wsm": ([5], [8], None)}
    both = curves(together)
    assert list(both) == ["effective rank: fedavg + ce", "effective rank: fedavg + wsm"]
    assert both["effective rank: fedavg + wsm"] == {"a": ([5], [7], None), "b": ([5], [8], None)}
    # The network's number isn't shown twice.
    assert blocks("curves", *ce) == []


def test_metrics_before_and_after_evbmf_are_apart(tmp_path: Path) -> None:
    rows = [rank(1, "a", 1.0), rank(1, "a", 2.0, name="effective_rank_noisy"), rank(1, "a", 3.0, name="rank")]
    layers, _ = blocks("ranks", write_run(tmp_path / "a", rows=rows))
    assert list(curves(layers)) == ["effective rank, a", "effective rank, before EVBMF, a", "rank, a"]


def test_layers_without_a_number_are_not_drawn(tmp_path: Path) -> None:
    """The network may have one all the same."""
    rows = [rank(1, "a", math.nan), rank(1, None, 2.0)]
    (layers,) = blocks("ranks", write_run(tmp_path / "a", rows=rows))
    assert list(curves(layers)) == ["effective rank, network"]


def test_a_negative_number_of_a_network_is_explained(tmp_path: Path) -> None:
    """ln √(Σ x² / n), the default, is negative for effective ranks below 1."""
    layers, _ = blocks("ranks", write_run(tmp_path / "a", rows=[rank(1, "a", 0.7), rank(1, None, -0.3)]))
    assert "by default, the logarithm of their root mean square, which is negative" in layers.note


def test_learning_metrics_of_clients_models(tmp_path: Path) -> None:
    """Clients 2 and 5 in round 1: 1 and 3; client 5 alone in round 2."""
    rows = [rank(1, "a", 1.0, model=2), rank(1, "a", 3.0, model=5), rank(2, "a", 5.0, model=5)]
    rows += [rank(1, None, 4.0, model=2), rank(1, None, 6.0, model=5)]
    (clients,) = blocks("ranks", write_run(tmp_path / "a", rows=rows))
    found = curves(clients)
    assert found["effective rank, network"]["fedavg + ce"][:2] == ([1], [5])
    x, mean, std = found["effective rank, a"]["fedavg + ce"]
    assert (x, mean, std) == ([1, 2], [2, 5], pytest.approx([math.sqrt(2), 0]))


# --- weights ------------------------------------------------------------------------------------------


def weight(number: int, client: int, value: float | None, layer: str | None = None) -> dict[str, Any]:
    about = {} if layer is None else {"layer": layer}
    return {"round": number, "name": "weight", "client": client, "value": value, **about}


def test_weights_by_hand(tmp_path: Path) -> None:
    """Two clients, K α = 1.2 and 0.8 in layer a, 1 in b: mean of |K α − 1| 0.1, largest 0.2.

    In round 2 there is one client, with α = 1: nothing is off. So 0.4 over six weights, 1/15.
    """
    rows = [weight(1, 3, 0.6, "a"), weight(1, 3, 0.5, "b"), weight(1, 7, 0.4, "a"), weight(1, 7, 0.5, "b")]
    rows += [weight(2, 7, 1.0, "a"), weight(2, 7, 1.0, "b"), weight(2, 7, None, "c")]
    plain = [weight(1, client, 0.25) for client in range(4)]
    run = write_run(tmp_path / "a", rows=rows)
    same = write_run(tmp_path / "b", {"seed": 1}, rows=plain)
    other = write_run(tmp_path / "c", {"method.loss": "wsm"}, rows=plain)
    table, clients, layers = blocks("weights", run, other)
    assert texts(table) == [
        ["fedavg + ce", "1.5", "2", "0.067", "0.2", "a, round 1"],
        ["fedavg + wsm", "4", "1", "0", "0", "the whole model, round 1"],
    ]
    found = curves(clients)
    x, mean, std = found["fedavg + ce"]["client 7"]
    assert (x, mean, std) == ([1, 2], pytest.approx([-0.1, 0]), pytest.approx([0.1 * math.sqrt(2), 0]))
    assert found["fedavg + ce"]["client 3"][:2] == ([1], pytest.approx([0.1]))
    assert found["fedavg + wsm"]["client 0"] == ([1], [0], None)
    # Only where there are layers, mean over the clients of a round.
    (only,) = curves(layers).values()
    assert only["a"][1] == pytest.approx([0.2, 0])
    assert only["b"][1] == [0, 0]
    # Of several seeds, the table has all and the curves the lowest.
    table, clients, _ = blocks("weights", run, same)
    assert texts(table)[0][3:5] == ["0.033 ± 0.05", "0.1 ± 0.1"]
    assert list(curves(clients)["fedavg + ce"]) == ["client 3", "client 7"]


def test_weights_of_mixed_models_are_beside_their_own_group(tmp_path: Path) -> None:
    """Layer a belongs to clients 0 and 1, layer b to 2, 3 and 4: a plain mean of each, and nothing is off."""
    rows = [weight(1, client, 1 / 2, "a") for client in (0, 1)]
    rows += [weight(1, client, 1 / 3, "b") for client in (2, 3, 4)]
    table, *_ = blocks("weights", write_run(tmp_path / "a", rows=rows))
    assert texts(table) == [["fedavg + ce", "5", "2", "0", "0", "a, round 1"]]


def test_weights_of_many_clients_are_the_ends_and_the_middle(tmp_path: Path) -> None:
    """Three of twelve clients per round."""
    shares = (0.1, 0.3, 0.6)
    rows = [weight(n, 3 * (n - 1) + k, share) for n in range(1, 5) for k, share in enumerate(shares)]
    table, clients = blocks("weights", write_run(tmp_path / "a", rows=rows))
    assert texts(table)[0][1] == "3"
    found = curves(clients)["fedavg + ce"]
    assert {name: mean for name, (_, mean, _) in found.items()} == {
        "largest": pytest.approx([0.8] * 4),
        "median": pytest.approx([-0.1] * 4),
        "smallest": pytest.approx([-0.7] * 4),
    }


def test_weights_almost_those_of_a_plain_mean_are_told(tmp_path: Path) -> None:
    rows = [weight(1, 0, 0.50001), weight(1, 1, 0.49999)]
    table, _ = blocks("weights", write_run(tmp_path / "a", rows=rows))
    assert texts(table)[0][3:5] == ["2e-05", "2e-05"]


# --- robustness ---------------------------------------------------------------------------------------


TCE_PAPER = {0.3: 0.770, 0.1: 0.796, 0.07: 0.751, 0.05: 0.742, 0.03: 0.787, 0.01: 0.742, 0.007: 0.739}
"""FedAvg on CIFAR-10 with group norm, table 1 of the paper without lr 0.5, which its table 2 leaves out."""


def rates(folder: Path, accuracies: Mapping[float, float | None], **changes: Any) -> list[Run]:
    return [
        run
        for lr, value in accuracies.items()
        for run in by_seed(folder / str(lr), {0: value}, {"local.lr": lr, **changes})
    ]


def test_robustness_as_in_the_paper(tmp_path: Path) -> None:
    table, lines = blocks("robustness", *rates(tmp_path, TCE_PAPER))
    assert texts(table) == [
        ["fedavg + ce", "79.6 %", "0.1", "0.03, 0.1", "0.03, 0.1, 0.3", "0.03, 0.07, 0.1, 0.3", ""]
    ]
    assert isinstance(lines, Lines)
    (series,) = lines.views[0].series
    assert series.x.tolist() == sorted(TCE_PAPER)
    assert lines.log


def test_rates_that_diverge_are_listed_apart(tmp_path: Path) -> None:
    runs = rates(tmp_path, {0.1: 0.5, 0.2: 0.48, 0.3: 0.45, 1.0: None})
    # With one seed of two not converged, a rate isn't close to the best, however good the other seed.
    runs += [
        *by_seed(tmp_path / "more", {1: None, 2: 0.9}, {"local.lr": 0.3}),
    ]
    (table, _) = blocks("robustness", *runs)
    assert texts(table) == [["fedavg + ce", "50.0 %", "0.1", "0.1, 0.2", "0.1, 0.2", "0.1, 0.2", "0.3, 1"]]


def test_one_rate_is_no_robustness(tmp_path: Path) -> None:
    runs = rates(tmp_path, {0.1: 0.5}) + rates(tmp_path / "wsm", {0.2: 0.5}, **{"method.loss": "wsm"})
    assert blocks("robustness", *runs) == []


def test_families_are_named_without_the_rate(tmp_path: Path) -> None:
    runs = rates(tmp_path, {0.1: 0.5, 0.2: 0.4})
    runs += rates(tmp_path / "alpha", {0.1: 0.5, 0.2: 0.6}, **{"partition.alpha": 0.5})
    found = families(grouped(*runs))
    assert [(one.label, one.best) for one in found] == [
        ("fedavg + ce, partition.alpha=0.1", 0.1),
        ("fedavg + ce, partition.alpha=0.5", 0.2),
    ]


# --- significance -------------------------------------------------------------------------------------


def test_paired_by_hand() -> None:
    """Differences 1, 2, 3 points: mean 2, standard error 1/√3, t = 2√3, t(0.975; 2) = 4.3027."""
    found = paired({0: 0.51, 1: 0.62, 2: 0.73, 9: 0.1}, {0: 0.5, 1: 0.6, 2: 0.7, 8: 0.2})
    assert (found.seeds, found.difference) == (3, pytest.approx(2))
    assert (found.low, found.high) == (
        pytest.approx(2 - 4.302653 / math.sqrt(3)),
        pytest.approx(2 + 4.302653 / math.sqrt(3)),
    )
    # Of Student's t with two degrees of freedom, P(|T| > t) = 1 − t/√(2 + t²), here t = √12.
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert found.p == pytest.approx(stats.ttest_rel([0.51, 0.62, 0.73], [0.5, 0.6, 0.7]).pvalue)


@pytest.mark.parametrize(
    ("one", "other", "seeds", "why"),
    [
        ({0: 0.5}, {1: 0.5}, 0, "no common seed"),
        ({0: 0.5}, {0: 0.4}, 1, "one common seed: no test"),
        ({0: 0.5, 1: 0.6}, {0: 0.5, 1: 0.6}, 2, "the same accuracies with every seed: no test"),
        ({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.5}, 2, "the same difference with every seed: no test"),
    ],
)
def test_where_there_is_no_test(one: dict[int, float], other: dict[int, float], seeds: int, why: str) -> None:
    found = paired(one, other)
    assert (found.seeds, found.p, found.why) == (seeds, None, why)


def test_holm_by_hand() -> None:
    """0.01·3, then max(0.03, 0.02·2), then max(0.04, 0.5·1); never over 1 and never falling."""
    assert holm([0.5, 0.01, 0.02]) == pytest.approx([0.5, 0.03, 0.04])
    assert holm([0.4, 0.3]) == pytest.approx([0.6, 0.6])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_significance(tmp_path: Path) -> None:
    runs = by_seed(tmp_path / "a", {0: 0.51, 1: 0.62, 2: 0.73})
    runs += by_seed(tmp_path / "b", {0: 0.5, 1: 0.6, 2: 0.7}, {"local.lr": 0.2})
    runs += by_seed(tmp_path / "c", {0: 0.1}, {"local.lr": 0.4})
    (table,) = blocks("significance", *runs)
    p = f"{1 - math.sqrt(12 / 14):.3f}"
    assert texts(table) == [
        ["fedavg + ce, local.lr=0.2", "−2.00", "−4.48", "+0.48", p, p, "3", "no significant difference"],
        ["fedavg + ce, local.lr=0.4", "−41.00", "–", "–", "–", "–", "1", "one common seed: no test"],
    ]
    assert isinstance(table, Table)
    assert table.choices[0] == "fedavg + ce, local.lr=0.05 (best)"
    assert texts(table, 1)[0][:2] == ["fedavg + ce, local.lr=0.05", "+2.00"]


# --- cost ---------------------------------------------------------------------------------------------


def test_cost(tmp_path: Path) -> None:
    """Two seeds: 3 and 5 MB up in 2 rounds; 1, 3 s and 2, 2 s: medians 2 and 2, sums 4 and 4."""
    runs = [
        write_run(
            tmp_path / str(seed),
            {"seed": seed, "rounds": 2},
            rows=[*overall("bytes_up", up), *overall("bytes_down", [5e8, 5e8])],
            seconds=seconds,
        )
        for seed, up, seconds in ((0, [1e6, 2e6], [1, 3]), (1, [2e6, 3e6], [2, 2]))
    ]
    table, bars = blocks("cost", *runs)
    assert texts(table) == [["fedavg + ce", "2 s", "4 s", "2 MB", "500 MB", "4 MB", "1 GB", "2"]]
    assert isinstance(bars, Bars)
    assert [stack.values.tolist() for stack in bars.views[0].stacks] == [[4e6], [1e9]]
    assert bars.views[1].stacks[0].values.tolist() == [4]


def test_a_run_without_a_round_does_not_count_as_rounds(tmp_path: Path) -> None:
    rows = [*overall("bytes_up", [1e6, 1e6]), *overall("bytes_down", [3e6, 3e6])]
    done = write_run(tmp_path / "a", {"rounds": 2}, rows=rows)
    begun = write_run(tmp_path / "b", {"rounds": 2, "seed": 1}, status="interrupted", rounds=0)
    table, _ = blocks("cost", done, begun)
    row = dict(zip(heads(table), texts(table)[0], strict=True))
    assert (row["up per round"], row["down per round"], row["rounds"]) == ("1 MB", "3 MB", "1")


def test_units() -> None:
    assert [size(n) for n in (0, 999, 1000, 123_456, 9.996e8)] == ["0 B", "999 B", "1 kB", "123 kB", "1 GB"]
    assert [duration(n) for n in (0.012, 59, 200, 3600 * 5 + 130)] == [
        "0.012 s",
        "59 s",
        "3 min 20 s",
        "5 h 2 min",
    ]


def test_a_round_done_again_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", seconds=[1, 2])
    with run.file("timing.jsonl").open("a") as file:
        file.write('{"round": 2, "seconds": 5}\n{"round": 3, "sec')
    assert read(run).seconds.tolist() == [1, 5]
    with run.file("timing.jsonl").open("a") as file:  # the disk was full, and then the run was resumed
        file.write('{"round": 3, "seconds": 7}\n{"round": 4, "seconds": 9}\n')
    assert read(run).seconds.tolist() == [1, 5, 9]


# --- configuration ------------------------------------------------------------------------------------


def test_repeat(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"engine": "auto"})
    run.write_json("engine.json", {"engine": {"name": "threads", "workers": 1}, "why": ""})
    (block,) = blocks("repeat", run, write_run(tmp_path / "b", {"seed": 4, "evaluate.every": 7}))
    assert isinstance(block, Listings)
    (item,) = block.items
    (_, yaml), (_, commands) = item.parts
    assert yaml == run.experiment.to_yaml()
    first, second = commands.splitlines()
    assert first == """mnemos run experiment.yaml --seed 0 'engine={"name": "threads", "workers": 1}'"""
    assert second.startswith('mnemos run experiment.yaml --seed 4 \'evaluate={"every": 7')
    assert ("engine", "threads, workers 1") in item.facts
