"""Cells, their choice, and the paper's numbers beside ours: by hand, on runs that were never run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mnemos.errors import ConfigError
from mnemos.runs.run import Run, create
from mnemos.studies.reproduce.cell import RecipeCell, choose
from mnemos.studies.reproduce.recipe import Recipe
from mnemos.studies.reproduce.reproduction import Reproduction

RATES = {f"lr {rate}": {"local.lr": rate} for rate in (0.1, 0.03, 0.01)}
LOSSES = {"FedAvg": {"method.loss": "ce"}, "FedAvg + WSM": {"method.loss": "wsm"}}


def recipe(**fields: object) -> Recipe:
    return Recipe.parse(
        {
            "title": "Mine",
            "item": "table 1",
            "paper": {"citation": "Nobody, 2020"},
            "base": {"data": "digits", "rounds": 2, "evaluate": {"forgetting": [1, 2]}},
            "rows": LOSSES,
            "columns": {"few": {"partition.clients": 10}, "many": {"partition.clients": 20}},
            **fields,
        }
    )


def reproduction(folder: Path, scale: float | None = 1.0, **fields: object) -> Reproduction:
    return Reproduction("mine", recipe(**fields), folder, scale)


def ended(
    folder: Path,
    cell: RecipeCell,
    seed: int,
    accuracy: float | None,
    metrics: tuple[tuple[str, int, float], ...] = (),
) -> Run:
    """A run that has come to its end, or that did not converge."""
    run = create(cell.experiment.model_copy(update={"seed": seed}), folder)
    status = {"status": "diverged" if accuracy is None else "finished", "rounds": 2, "accuracy": accuracy}
    run.file("status.json").write_text(json.dumps(status))
    rows = [{"name": name, "round": number, "value": value} for name, number, value in metrics]
    run.file("metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def rates(tmp_path: Path) -> Reproduction:
    return reproduction(tmp_path, rows=[RATES, LOSSES])


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        ([], 12),
        (["few"], 6),
        (["FEDAVG"], 6),  # one part of a row; case doesn't matter
        (["lr 0.1"], 4),
        (["lr 0.1, FedAvg"], 2),
        (["lr 0.1, FedAvg/few"], 1),
        (["fedavg/few"], 3),
        (["lr 0.0*/many"], 4),
        (["*WSM/*"], 6),
        (["lr 0.1/few", "lr 0.1/many"], 4),
    ],
)
def test_only(rates: Reproduction, patterns: list[str], count: int) -> None:
    assert len(choose(rates.cells, patterns)) == count


def test_only_without_a_match(rates: Reproduction) -> None:
    with pytest.raises(ConfigError) as error:
        choose(rates.cells, ["few", "FedProx"])
    assert str(error.value).startswith("only: no cell matches 'FedProx'; rows: lr 0.1, FedAvg; ")
    assert str(error.value).endswith("; columns: few; many")


def test_cases_go_column_by_column(rates: Reproduction) -> None:
    cases = replace(rates, only=("lr 0.1",)).cases()
    assert [str(case) for case in cases[::3]] == [
        "lr 0.1, FedAvg, few, seed 0",
        "lr 0.1, FedAvg + WSM, few, seed 0",
        "lr 0.1, FedAvg, many, seed 0",
        "lr 0.1, FedAvg + WSM, many, seed 0",
    ]
    assert [case.experiment.seed for case in cases[:3]] == [0, 1, 2]


def test_side_by_side_by_hand(tmp_path: Path) -> None:
    """Means 0.5 and 0.7, deviations 0.1 (of 0.4, 0.5, 0.6) and none; differences −0.1 and +0.2."""
    numbers = {"FedAvg": {"few": [0.6, 0.05], "many": 0.5}, "FedAvg + WSM": {"few": "NC", "many": None}}
    mine = reproduction(tmp_path, numbers=numbers)
    one, two, three, four = mine.cells
    for seed, accuracy in enumerate((0.4, 0.5, 0.6)):
        ended(tmp_path, one, seed, accuracy)
    ended(tmp_path, two, 0, 0.7)
    ended(tmp_path, two, 1, None)
    ended(tmp_path, three, 0, None)
    ended(tmp_path, four, 7, 0.9)  # a seed that wasn't asked for

    shown = mine.show()

    assert shown.sheet.header == ("row", "column", "paper", "ours", "difference", "seeds")
    assert list(shown.sheet.rows) == [
        ("FedAvg", "few", "0.600 ± 0.050", "0.500 ± 0.100", "−0.100", "3"),
        ("FedAvg", "many", "0.500", "0.700 (1 NC)", "+0.200", "2"),
        ("FedAvg + WSM", "few", "NC", "NC", "–", "1"),
        ("FedAvg + WSM", "many", "–", "–", "–", "–"),
    ]
    first, second, third, _ = shown.sheet.numbers
    assert first["difference"] == pytest.approx(-0.1)
    assert (second["seeds"], second["nc"], second["ours_std"]) == (1, 1, None)
    assert (third["paper_nc"], third["ours_mean"]) == (True, None)
    page = (tmp_path / "mine" / "README.md").read_text()
    assert "| FedAvg | few | 0.600 ± 0.050 | 0.500 ± 0.100 | −0.100 | 3 |" in page
    assert page.startswith("# Mine\n\nNobody, 2020, table 1.\n\n`mnemos reproduce mine`, Mnemos ")
    lines = (tmp_path / "mine" / "table.csv").read_text().splitlines()
    assert lines[0] == "row,column,paper_mean,paper_std,paper_nc,ours_mean,ours_std,seeds,nc,difference"
    assert lines[4] == "FedAvg + WSM,many,,,False,,,0,0,"


def test_runs_are_recorded_for_reports(tmp_path: Path) -> None:
    mine = reproduction(tmp_path, 0.5)
    run = ended(tmp_path, mine.cells[0], 0, 0.5)
    mine.show()
    study = json.loads((tmp_path / "mine-scale-0.5.study.json").read_text())
    assert study["variants"] == {"FedAvg, few": [run.path.name]}
    assert "At scale 0.5 (" in (tmp_path / "mine-scale-0.5" / "README.md").read_text()


def test_the_command_repeats_scale_cells_and_seeds(tmp_path: Path) -> None:
    assert Reproduction("mine", recipe(), tmp_path, 0.5).command == "mnemos reproduce mine --scale 0.5"
    chosen = Reproduction("mine", recipe(), tmp_path, seeds=(3, 5), only=("few", "FedAvg + WSM/many"))
    assert chosen.command == "mnemos reproduce mine --only few --only 'FedAvg + WSM/many' --seeds 3,5"


def test_metrics_and_their_difference_as_values(tmp_path: Path) -> None:
    mine = reproduction(
        tmp_path,
        rows={"WSM": {}},
        columns={"plain": {}, "gain": {}, "absent": {}},
        values={"plain": "plain_accuracy", "gain": "own_accuracy - plain_accuracy", "absent": "other"},
        seeds=[0],
    )
    assert len({case.experiment.hash() for case in mine.cases()}) == 1  # one run serves all columns
    metrics = (("plain_accuracy", 1, 0.1), ("plain_accuracy", 2, 0.25), ("own_accuracy", 2, 0.75))
    ended(tmp_path, mine.cells[0], 0, 0.9, metrics)
    assert [row[3] for row in mine.show().sheet.rows] == ["0.250", "0.500", "–"]


def test_learning_rates_close_to_the_best_by_hand(tmp_path: Path) -> None:
    """0.80 is best; 0.78 is within 2 points, 0.775 within 3, and a rate with an NC doesn't count."""
    theirs = {"FedAvg": {"few": {"best": 0.9, "at": 0.03, "within": [[0.03], [0.1, 0.03], [0.1, 0.03]]}}}
    mine = reproduction(
        tmp_path,
        rows=[{**RATES, "lr 0.001": {"local.lr": 0.001}}, {"FedAvg": {}}],
        columns={"few": {}},
        show={"name": "rates", "reported": theirs},
        seeds=[0, 1],
    )
    for cell, accuracy in zip(mine.cells, (0.78, 0.80, 0.775, 0.79), strict=True):
        ended(tmp_path, cell, 0, accuracy)
    ended(tmp_path, mine.cells[3], 1, None)
    assert list(mine.show().sheet.rows) == [
        ("FedAvg", "few", "paper", "0.900 (0.03)", "0.03", "0.1, 0.03", "0.1, 0.03"),
        ("FedAvg", "few", "ours", "0.800 (0.03)", "0.1, 0.03", "0.1, 0.03, 0.01", "0.1, 0.03, 0.01"),
    ]


def test_forgetting_by_hand(tmp_path: Path) -> None:
    mine = reproduction(tmp_path, rows={"FedAvg": {}}, columns={"few": {}}, show="forgetting")
    for seed, shift in enumerate((0.0, 0.2)):
        metrics = (
            ("forgetting", 1, 0.1 + shift),
            ("own_accuracy", 1, 0.5),
            ("forgetting", 2, 0.3),
            ("own_accuracy", 2, 0.6 + shift),
        )
        ended(tmp_path, mine.cells[0], seed, 0.5, metrics)
    ended(tmp_path, mine.cells[0], 2, None)  # nothing was measured before it ended
    shown = mine.show()
    assert shown.sheet.header == (
        "row",
        "column",
        "F, round 1",
        "F, round 2",
        "own accuracy, round 2",
        "seeds",
    )
    assert list(shown.sheet.rows) == [
        ("FedAvg", "few", "0.200 ± 0.141", "0.300 ± 0.000", "0.700 ± 0.141", "2")
    ]
    assert [path.name for path in shown.figures] == ["forgetting-few.png"]


def test_curves_of_several_metrics(tmp_path: Path) -> None:
    show = {"name": "curves", "metrics": ["validation_accuracy", "train_loss"]}
    mine = reproduction(tmp_path, rows={"FedAvg": {}}, columns={"few": {}}, show=show, seeds=[0])
    metrics = (("validation_accuracy", 1, 0.1), ("train_loss", 1, 2.0))
    ended(tmp_path, mine.cells[0], 0, 0.5, metrics)
    names = [path.name for path in mine.show().figures]
    assert names == ["curves-few-validation_accuracy.png", "curves-few-train_loss.png"]


def test_nothing_run_yet_draws_nothing(tmp_path: Path) -> None:
    for show in ("curves", "forgetting", {"name": "heatmaps", "rounds": [2]}):
        shown = reproduction(tmp_path, show=show).show()
        assert not shown.figures
        assert all(row[-1] == "–" for row in shown.sheet.rows)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ConfigError, match="mine: it can't be written"):
        reproduction(tmp_path).show()


def test_the_example_of_the_format_is_valid(tmp_path: Path) -> None:
    """The one in the module's documentation."""
    from mnemos.studies.reproduce import recipe as module

    text = "\n".join(line for line in (module.__doc__ or "").splitlines() if line.startswith("    "))
    fields = yaml.safe_load(text)
    fields["paper"] = {"citation": "Nobody", "readings": {"augment": "Images are flipped."}}
    fields["base"] = {"data": "cifar10"}
    cells = {cell.name: cell for cell in Recipe.parse(fields).of(1.0)}
    assert cells["FedAvg/CIFAR-100"].experiment.local.lr == 0.005
    assert cells["FedAvg/CIFAR-10"].reported.mean == 0.608


def test_a_small_setting_is_what_the_command_runs_without_a_scale(tmp_path: Path) -> None:
    fields = {"base": {"rounds": 40}, "small": {"rounds": 10, "partition.clients": 5}}
    small, full, half = (reproduction(tmp_path, scale, **fields) for scale in (None, 1.0, 0.5))
    # A column's own clients come after the small setting's.
    assert [(cell.experiment.rounds, cell.experiment.partition.clients) for cell in small.cells[:2]] == [
        (10, 10),
        (10, 20),
    ]
    assert [one.cells[0].experiment.rounds for one in (full, half)] == [40, 20]
    assert [one.command for one in (small, full, half)] == [
        "mnemos reproduce mine",
        "mnemos reproduce mine --scale 1",
        "mnemos reproduce mine --scale 0.5",
    ]
    assert [one.home.name for one in (small, full, half)] == ["mine", "mine-scale-1", "mine-scale-0.5"]
    assert [one.is_full for one in (small, full, half)] == [False, True, False]
    assert small.at_scale.startswith("In the small setting (rounds: 40 → 10): differences are")


def test_without_a_small_setting_the_default_is_the_papers(tmp_path: Path) -> None:
    mine = reproduction(tmp_path, None)
    assert mine.cells == reproduction(tmp_path).cells
    assert (mine.is_full, mine.command, mine.home.name) == (True, "mnemos reproduce mine", "mine")


def test_rounds_of_the_paper_come_to_lie_in_the_small_setting(tmp_path: Path) -> None:
    """Round 20 of 40 is round 5 of 10."""
    show = {"name": "heatmaps", "rounds": [20]}
    mine = reproduction(tmp_path, None, base={"rounds": 40}, small={"rounds": 10}, show=show)
    assert "F, round 5" in mine.show().sheet.header


def test_a_small_setting_that_is_none_is_refused_when_read(tmp_path: Path) -> None:
    fields = {
        "title": "T",
        "item": "i",
        "paper": {"citation": "c"},
        "base": {},
        "rows": {"a": {}},
        "columns": {"b": {}},
        "small": {"round": 3},
    }
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match=r"own\.yaml: cell 'a/b'\.round: .*rounds"):
        Recipe.read(path)
