"""The recipes themselves: all there, all valid, the papers' numbers and settings in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mnemos.errors import ConfigError
from mnemos.experiment.experiment import load_experiment
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.cell import RecipeCell, Reported
from mnemos.studies.reproduce.names import recipe_names, recipes_folder
from mnemos.studies.reproduce.recipe import Recipe

NAMES = [
    *(f"afcl/{item}" for item in ("table-1", "table-2", "figure-a", "figure-b")),
    "feder/table-4.2",
    *(f"feder/figure-{n}" for n in (*(f"4.{n}" for n in range(1, 16)), "a.1")),
    *(f"tce/{item}" for item in ("table-1", "table-2", *(f"figure-{n}" for n in range(2, 8)))),
    *(f"thesis/table-3.{n}" for n in (1, 2, 3)),
    *(f"thesis/figure-{n}" for n in ("2.2", "3.1", "3.2", "3.3", "3.4", "3.5", "a.1", "a.2")),
    *(f"wsm/table-{n}" for n in range(1, 6)),
    *(f"wsm/figure-{n}" for n in range(2, 11)),
    "wsm/a.4",
]
SMALL = ["afcl/small", "feder/small"]
"""What is run here in full, of tables that take days."""
CLAIMS = [
    f"claims/{item}"
    for item in (
        "bounds",
        "continual",
        "drop-outs",
        "femnist",
        "fractals",
        "heterogeneity",
        "methods",
        "norms",
        "personalised",
        "ranks",
        "rates",
        "rates-methods",
        "rates-resnet",
    )
]
"""With a small setting each, in which claims of several tables are decided."""


def cells(name: str) -> dict[str, RecipeCell]:
    return {cell.name: cell for cell in find_recipe(name)[1].of(1.0)}


def reported(name: str) -> dict[str, tuple[float | None, float | None]]:
    return {name: (cell.reported.mean, cell.reported.std) for name, cell in cells(name).items()}


def test_every_table_and_figure_has_a_recipe() -> None:
    assert sorted(recipe_names()) == sorted([*NAMES, *SMALL, *CLAIMS])
    assert recipe_names().index("wsm/figure-9") < recipe_names().index("wsm/figure-10")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_valid_and_complete(name: str) -> None:
    _, recipe = find_recipe(name)
    found = recipe.of(1.0)
    assert len({cell.name for cell in found}) == len(found) > 0
    assert recipe.item.removeprefix("appendix ").replace(" ", "-").lower() == name.split("/")[1]
    assert recipe.notes["How the paper is read"]
    # Where there are no numbers, the paper's words stand beside ours.
    assert recipe.says or any(cell.reported.mean for cell in found)
    assert {type(cell.experiment.engine).name for cell in found} == {"threads"}


@pytest.mark.parametrize("name", CLAIMS)
def test_each_claim_has_a_small_setting_and_the_papers(name: str) -> None:
    _, recipe = find_recipe(name)
    small, full = recipe.of(None), recipe.of(1.0)
    assert [cell.name for cell in small] == [cell.name for cell in full]
    assert recipe.item.startswith("claim")
    # At full scale the rounds are the paper's.
    assert {cell.experiment.rounds for cell in full} <= {250, 2000, 3000, 4000, 5000}
    assert {cell.experiment.rounds for cell in small} <= {60, 100, 200, 300}
    # One core, so that a run of it is the same anywhere.
    assert {cell.experiment.engine.workers for cell in small} == {1}


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("feder/", "afcl/"))])
def test_what_the_papers_on_forgetting_have_in_common(name: str) -> None:
    for cell in find_recipe(name)[1].of(1.0):
        experiment = cell.experiment
        assert (experiment.partition.clients, experiment.partition.validation) in {
            (100, 0.1),
            (30, 0.1),
            (20, 0.1),
        }
        assert (experiment.local.batch, experiment.local.weight_decay) == (64, 1e-4)
        assert experiment.local.optimizer.momentum == 0
        # Letters aren't mirrored.
        assert bool(experiment.local.augment) == (type(experiment.data).name != "femnist")


@pytest.mark.parametrize("paper", ["tce", "thesis", "wsm"])
def test_a_papers_base_is_an_experiment(paper: str) -> None:
    experiment = load_experiment(recipes_folder() / paper / "base.yaml")
    assert experiment.rounds == 4000
    assert experiment.model.conv_bias
    assert experiment.model.norm == ("mixed" if paper == "thesis" else "group")
    assert experiment.evaluate.test_last == (1 if paper == "tce" else 100)
    assert experiment.local.lr == (0.05 if paper == "wsm" else 0.1)


FEDER = {  # without a federation, FedAvg, FedER
    "Adam": (0.7171, 0.7687, 0.7705),
    "Adam with StepLR": (0.7454, 0.7571, 0.7597),
    "AdamP": (0.7006, 0.5089, 0.4943),
    "AdamP with StepLR": (0.7639, 0.7185, 0.7268),
    "RMSGD": (0.6022, 0.6007, 0.6052),
}


def test_feder_table_4_2_by_hand() -> None:
    """Three methods in the first column, two in the second: the baseline has nobody to split data among."""
    found = cells("feder/table-4.2")
    assert len(found) == 5 * (3 + 2)
    for optimiser, numbers in FEDER.items():
        methods = ("Non-Fed Baseline", "FedAvg", "FedER")
        whole = [found[f"{optimiser}, {method}/all data each"] for method in methods]
        quarter = [found[f"{optimiser}, {method}/a quarter each"] for method in methods[1:]]
        assert tuple(cell.reported.mean for cell in whole) == numbers
        assert tuple(cell.reported.mean for cell in quarter) == numbers[1:]
        for cell in (*whole, *quarter):
            experiment, local = cell.experiment, cell.experiment.local
            assert type(local.optimizer).name == optimiser.split()[0].lower()
            assert local.schedule.dump() == (
                {"name": "step", "over": "rounds", "size": 25, "gamma": 0.5}
                if "StepLR" in optimiser
                else {"name": "constant"}
            )
            assert (local.epochs, local.batch, local.lr, local.weight_decay) == (1, 128, 1e-3, 1e-4)
            assert local.optimizer_state == "kept"
            assert (experiment.rounds, experiment.participation, experiment.partition.clients) == (250, 1, 4)
        assert [type(cell.experiment.method).name for cell in whole] == ["centralised", "fedavg", "feder"]
        assert whole[0].experiment.method.budget == "client"
        assert type(whole[1].experiment.method.weighting).name == "uniform"


def test_feder_figures_are_the_cells_of_the_table() -> None:
    """In the order of the sections, five of each method; A.1 has another weighting, and no number."""
    table = cells("feder/table-4.2")
    methods = ("Non-Fed Baseline", "FedAvg", "FedER")
    wanted = [f"{optimiser}, {method}" for method in methods for optimiser in FEDER]
    for number, row in enumerate(wanted, 1):
        found = cells(f"feder/figure-4.{number}")
        assert list(found) == [name for name in table if name.startswith(f"{row}/")]
        for name, cell in found.items():
            assert (cell.reported, cell.experiment.hash()) == (
                table[name].reported,
                table[name].experiment.hash(),
            )
    for cell in cells("feder/figure-a.1").values():
        assert type(cell.experiment.method.weighting).name == "stable-rank"
        assert cell.reported == Reported()


def test_feder_base_is_an_experiment() -> None:
    experiment = load_experiment(recipes_folder() / "feder" / "base.yaml")
    assert [type(part).name for part in experiment.local.augment] == ["crop", "flip", "cutout"]
    assert experiment.local.augment[2].size == 16
    assert (type(experiment.model).name, experiment.model.norm) == ("resnet18", "batch")
    assert type(experiment.partition).name == "whole"


def test_wsm_table_3_by_hand() -> None:
    assert reported("wsm/table-3") == {
        "FedAvg/CIFAR-10": (0.608, 0.010),
        "FedAvg/CIFAR-100": (0.198, 0.004),
        "FedAvg at WSM's rate/CIFAR-100": (0.168, 0.044),
        "FedAvg + WSM/CIFAR-10": (0.624, 0.009),
        "FedAvg + WSM/CIFAR-100": (0.274, 0.007),
    }


def test_wsm_table_5_by_hand() -> None:
    by_hand = {  # CIFAR-10 and CIFAR-100, each without and with WSM
        0.07: ((0.589, 0.012), (0.624, 0.009), (0.119, 0.002), (0.180, 0.013)),
        0.05: ((0.580, 0.051), (0.615, 0.004), (0.154, 0.011), (0.217, 0.009)),
        0.03: ((0.605, 0.014), (0.621, 0.009), (0.168, 0.001), (0.251, 0.007)),
        0.01: ((0.608, 0.010), (0.624, 0.009), (0.168, 0.044), (0.274, 0.007)),
        0.007: ((0.591, 0.014), (0.620, 0.022), (0.195, 0.004), (0.274, 0.001)),
        0.005: ((0.585, 0.019), (0.615, 0.003), (0.198, 0.004), (0.270, 0.001)),
        0.003: ((0.545, 0.018), (0.566, 0.001), (0.181, 0.009), (0.247, 0.004)),
        0.001: ((0.441, 0.019), (0.478, 0.009), (0.115, 0.007), (0.186, 0.003)),
    }
    found = cells("wsm/table-5")
    assert len(found) == 4 * len(by_hand)
    for rate, numbers in by_hand.items():
        four = [
            found[f"lr {rate}, {method}/{data}"]
            for data in ("CIFAR-10", "CIFAR-100")
            for method in ("FedAvg", "FedAvg + WSM")
        ]
        assert tuple((cell.reported.mean, cell.reported.std) for cell in four) == numbers
        assert [type(cell.experiment.method.loss).name for cell in four] == ["ce", "wsm", "ce", "wsm"]
        assert {cell.experiment.local.lr for cell in four} == {rate}
        assert [cell.experiment.participation for cell in four] == [0.1, 0.1, 0.02, 0.02]


@pytest.mark.parametrize(
    ("name", "cell", "expected"),
    [
        ("wsm/table-1", "lr 0.5, FedAvg/CIFAR-10", Reported(0.326, 0.098)),
        ("wsm/table-1", "lr 0.1, FedAvg/CIFAR-100", Reported(0.500, 0.016)),
        ("wsm/table-1", "lr 0.03, FedAvg + WSM/CIFAR-100", Reported(0.581, 0.005)),
        ("wsm/table-1", "lr 0.05, FedAvg/FEMNIST", Reported(0.853, 0.004)),
        ("wsm/table-2", "FedAvg + WSM/CIFAR-10", Reported()),
        ("wsm/table-4", "lr 0.5, group norm, FedAvg + WSM/FEMNIST", Reported(0.418, 0.177)),
        ("wsm/table-4", "lr 0.07, batch norm, FedAvg/CIFAR-100", Reported(0.513, 0.006)),
        ("wsm/table-4", "lr 0.005, batch norm, FedAvg/FEMNIST", Reported(0.743, 0.053)),
        ("wsm/a.4", "FedAvg + WSM/gain", Reported(0.095)),
        ("tce/table-1", "lr 0.7, FedAvg (group)/CIFAR-10", Reported(converged=False)),
        ("tce/table-1", "lr 0.7, FedAvg + TCE (batch)/CIFAR-100", Reported(0.350, 0.037)),
        ("tce/table-1", "lr 0.3, FedAvg (group)/CIFAR-100", Reported(0.324, 0.148)),
        ("tce/table-1", "lr 0.1, FedAvg + TCE (batch)/CIFAR-10", Reported()),
        ("tce/table-1", "lr 0.1, FedAvg (group)/CIFAR-10", Reported(0.796)),
        ("tce/table-1", "lr 0.007, FedAvg + TCE (batch)/CIFAR-100", Reported(0.524, 0.010)),
        ("tce/table-1", "lr 0.05, FedAvg (group)/FEMNIST", Reported(0.829)),
        ("thesis/table-3.1", "lr 0.07, FedAvg + WSM/CIFAR-100", Reported(0.596)),
        ("thesis/table-3.1", "lr 0.03, FedAvg/FEMNIST", Reported(0.740)),
        ("thesis/table-3.2", "SCAFFOLD + WSM/CIFAR-100", Reported(0.598)),
        ("thesis/table-3.2", "FedProx/CIFAR-10", Reported(0.752)),
        ("thesis/table-3.3", "lr 0.05, batch norm, FedAvg + WSM/CIFAR-10", Reported(0.882)),
        ("thesis/table-3.3", "lr 0.007, group norm, FedAvg/CIFAR-10", Reported(0.808)),
    ],
)
def test_some_numbers_of_the_others_by_hand(name: str, cell: str, expected: Reported) -> None:
    assert cells(name)[cell].reported == expected


def test_tables_1_and_4_of_wsm_agree() -> None:
    """Table 1 is the part of table 4 with FedAvg's group norm and WSM's batch norm: the same runs."""
    whole = cells("wsm/table-4")
    for name, cell in cells("wsm/table-1").items():
        norm = "batch norm" if "WSM" in name else "group norm"
        rate, rest = name.split(", ", 1)
        other = whole[f"{rate}, {norm}, {rest}"]
        assert (other.reported, other.experiment.hash()) == (cell.reported, cell.experiment.hash())


def test_common_cells_are_the_same_experiment() -> None:
    three, five = cells("wsm/table-3"), cells("wsm/table-5")
    for name, other in {
        "FedAvg/CIFAR-10": "lr 0.01, FedAvg/CIFAR-10",
        "FedAvg/CIFAR-100": "lr 0.005, FedAvg/CIFAR-100",
        "FedAvg at WSM's rate/CIFAR-100": "lr 0.01, FedAvg/CIFAR-100",
        "FedAvg + WSM/CIFAR-100": "lr 0.01, FedAvg + WSM/CIFAR-100",
    }.items():
        assert three[name].experiment.hash() == five[other].experiment.hash()
    heat, table = cells("wsm/figure-9")["FedAvg/CIFAR-10"], cells("wsm/table-1")["lr 0.05, FedAvg/CIFAR-10"]
    assert heat.experiment.hash() == table.experiment.hash()


def test_the_studies_with_other_methods() -> None:
    prox = cells("thesis/table-3.2")["FedProx + WSM/CIFAR-100"].experiment
    assert (prox.partition.clients, prox.participation, prox.rounds) == (20, 0.1, 1500)
    assert (prox.method.mu, prox.local.lr, prox.evaluate.test_last) == (1.1, 0.01, 1)
    nova = cells("wsm/table-2")["FedNova + WSM/CIFAR-10"].experiment
    assert (nova.partition.clients, nova.participation, nova.rounds) == (30, 0.1, 2000)
    assert (nova.local.lr, nova.model.norm) == (0.05, "batch")


def test_rounds_of_femnist_and_of_the_long_study() -> None:
    assert cells("wsm/table-1")["lr 0.5, FedAvg/FEMNIST"].experiment.rounds == 3000
    assert cells("thesis/table-3.1")["lr 0.5, FedAvg/FEMNIST"].experiment.rounds == 2000
    assert {cell.experiment.rounds for cell in cells("thesis/table-3.3").values()} == {8000}
    tce = cells("tce/table-1")["lr 0.5, FedAvg (group)/CIFAR-100"].experiment
    assert (tce.participation, tce.rounds, tce.evaluate.patience) == (0.01, 4000, 200)


@pytest.mark.parametrize(
    ("name", "rounds"),
    [("thesis/figure-2.2", 2800), ("thesis/figure-a.1", 1), ("tce/figure-6", 2000), ("wsm/figure-8", 3600)],
)
def test_a_heat_maps_round_is_measured(name: str, rounds: int) -> None:
    _, recipe = find_recipe(name)
    assert recipe.show.rounds == (rounds,)
    assert all(rounds in cell.experiment.evaluate.forgetting for cell in recipe.of(1.0))


# what is wrong with a recipe


def own(folder: Path, **fields: object) -> Path:
    recipe = {
        "title": "Mine",
        "item": "table 1",
        "paper": {"citation": "Nobody", "readings": {"short": "A sentence."}},
        "base": {"data": "digits"},
        "rows": {"a": {"local.lr": 0.1}, "b": {"local.lr": 0.2}},
        "columns": {"x": {}},
        **fields,
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = own(
        tmp_path, cells={"b/*": None}, numbers={"a": {"x": [0.5, 0.1]}}, reading=["short", "Long one."]
    )
    name, recipe = find_recipe(str(path))
    assert name == "mine"
    assert [cell.name for cell in recipe.of(1.0)] == ["a/x"]
    assert recipe.notes == {"How the paper is read": ["A sentence.", "Long one."]}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"numbers": {"c": {"x": 1}}}, "numbers has 'c', which is none of: a; b"),
        ({"numbers": {"a": {"y": 1}}}, "numbers of 'a' has 'y', which is none of: x"),
        (
            {"numbers": {"a": {"x": "many"}}},
            "numbers.a.x: found 'many'; allowed: a number, [mean, std], NC, or null",
        ),
        ({"values": {"y": "loss"}}, "values has 'y', which is none of: x"),
        ({"cells": {"c/x": None}}, "cells has 'c/x', which no row/column matches"),
        (
            {"reading": ["shart"]},
            "reading has 'shart', which the paper's readings don't have; did you mean 'short'?",
        ),
        ({"rows": {"a": {"local.lr": -1}}}, "cell 'a/x'.local.lr: found -1; allowed: > 0"),
        ({"show": "pie"}, "show: there is no way to show 'pie'; "),
        ({"show": "heatmaps"}, "show.rounds: it has no default and must be given"),
        ({"title": None}, "title: found None; expected text"),
        ({"colour": 1}, "colour: unknown field; "),
        ({"base": "none.yaml"}, "none.yaml: there is no such file"),
        ({"extends": "mine.yaml"}, "extends: it extends itself"),
        ({"extends": 3}, "extends: found 3; expected the name of a recipe's file"),
    ],
)
def test_mistakes_are_answered_with_file_and_field(tmp_path: Path, fields: dict, sentence: str) -> None:
    path = own(tmp_path, **fields)
    with pytest.raises(ConfigError) as error:
        Recipe.read(path)
    assert str(path) in str(error.value) or "none.yaml" in str(error.value)
    assert sentence in str(error.value)


def test_an_unknown_recipe_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="there is no recipe 'wsm/tabel-3'; did you mean 'wsm/table-3'"):
        find_recipe("wsm/tabel-3")


def test_the_numbers_of_the_slides_on_fedspace() -> None:
    """In percent, with 50, 100 and 500 clients."""
    by_hand = {
        "afcl/table-1": {
            "FedAvg": (2.86, 2.01, 2.63),
            "PASS + FedAvg": (29.08, 22.97, 13.39),
            "FedSpace": (37.18, 29.99, 28.42),
        },
        "afcl/table-2": {
            "prototypes only": (28.76, 29.58, 23.45),
            "without prototype aggregation": (30.82, 25.89, 23.45),
            "without pre-training": (35.72, 25.89, 19.01),
            "without representation loss": (35.96, 26.84, 27.05),
            "without server aggregation": (35.60, 31.90, 17.46),
            "FedSpace": (37.18, 29.99, 28.42),
        },
    }
    for name, rows in by_hand.items():
        found = reported(name)
        expected = {
            f"{row}/{clients} clients": pytest.approx(value / 100)
            for row, values in rows.items()
            for clients, value in zip((50, 100, 500), values, strict=True)
        }
        assert {cell: mean for cell, (mean, _) in found.items()} == expected
        assert all(
            round(cell.experiment.participation * int(cell.column.split()[0])) == 5
            for cell in cells(name).values()
        )
