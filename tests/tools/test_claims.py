"""From runs to verdicts: on runs that were never run, with effects worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import claim_costs
import claim_figures
import claim_pages
import claim_runs
import claim_table
import claims
import verdicts
from effects import Verdict
from mnemos.errors import ConfigError
from mnemos.runs.run import Run, create
from mnemos.studies.reproduce.catalogue import find_recipe
from mnemos.studies.reproduce.recipe import Recipe

HETEROGENEITY, RATES = "claims/heterogeneity", "claims/rates"


def ended(folder: Path, recipe: str, cell: str, seed: int, accuracy: float | None) -> Run:
    """A run of a cell that has come to its end, with forgetting in two rounds."""
    (found,) = (one for one in find_recipe(recipe)[1].of(None) if one.name == cell)
    run = create(found.experiment.model_copy(update={"seed": seed}), folder)
    status = {"status": "diverged" if accuracy is None else "finished", "rounds": 200, "accuracy": accuracy}
    run.file("status.json").write_text(json.dumps(status))
    metrics = [("forgetting", 1, 0.3), ("forgetting", 200, 0.1), ("bytes_up", 200, 5.0)]
    metrics += [("personalised_test_accuracy", 200, 0.75), ("plain_test_accuracy", 200, 0.5)]
    rows = [{"name": name, "round": number, "value": value} for name, number, value in metrics]
    run.file("metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.file("timing.jsonl").write_text('{"round": 1, "seconds": 1.5}\n{"round": 2, "seconds": 2.0}\n')
    return run


def line(recipe: str, cell: str, seed: int, **figures: float) -> claim_runs.Line:
    return {
        "cells": [f"{recipe}: {cell}"],
        "hash": f"{cell}-{seed}",
        "seed": seed,
        "seconds": 360.0,
        "curves": {},
        "commit": "abc1234",
        "figures": figures,
    }


def part(**fields: object) -> verdicts.Part:
    return verdicts.Part.parse({"says": "s", "recipe": HETEROGENEITY, "margin": 0.005, **fields})


GAIN = {"FedAvg + WSM/α = 0.1": 1, "FedAvg/α = 0.1": -1}


def pairs(gains: list[float]) -> list[claim_runs.Line]:
    """FedAvg at 0.3, and WSM above it by a gain, for each seed."""
    found = []
    for seed, gain in enumerate(gains):
        found.append(line(HETEROGENEITY, "FedAvg/α = 0.1", seed, accuracy=0.3))
        found.append(line(HETEROGENEITY, "FedAvg + WSM/α = 0.1", seed, accuracy=0.3 + gain))
    return found


def test_what_is_kept_of_a_run(tmp_path: Path) -> None:
    run = ended(tmp_path, HETEROGENEITY, "FedAvg/α = 0.1", 3, 0.4)
    kept = tmp_path / "runs.jsonl"
    assert claim_runs.collect(tmp_path, None, kept) == (1, 1)
    (found,) = claim_runs.read_lines(kept)
    # One run for the three columns in which nothing is changed, and for the rate of the other recipe.
    assert found["cells"] == [
        "claims/heterogeneity: FedAvg/α = 0.1",
        "claims/heterogeneity: FedAvg/10 % of clients",
        "claims/heterogeneity: FedAvg/21 iterations",
        "claims/rates: lr 0.05, FedAvg/CIFAR-10",
    ]
    assert (found["seed"], found["status"], found["rounds"]) == (3, "finished", 200)
    assert run.path.name.endswith(found["hash"])
    assert found["seconds"] == 3.5
    assert found["figures"] == {
        "accuracy": 0.4,
        "forgetting": 0.1,
        "mean_forgetting": pytest.approx(0.2),
        "personalised_test_accuracy": 0.75,
        "plain_test_accuracy": 0.5,
        "personal_gain": 0.25,
    }
    assert found["curves"] == {"forgetting": [[1, 0.3], [200, 0.1]]}


def test_collecting_again_changes_nothing_and_keeps_what_is_gone(tmp_path: Path) -> None:
    run = ended(tmp_path, HETEROGENEITY, "FedAvg/α = 0.1", 0, 0.4)
    kept = tmp_path / "runs.jsonl"
    claim_runs.collect(tmp_path, None, kept)
    before = kept.read_bytes()
    assert claim_runs.collect(tmp_path, None, kept) == (0, 1)
    assert kept.read_bytes() == before
    run.file("status.json").write_text(json.dumps({"status": "interrupted"}))
    assert claim_runs.collect(tmp_path, None, kept) == (0, 1)
    assert kept.read_bytes() == before


def test_what_a_record_says_of_cost_and_commit(tmp_path: Path) -> None:
    """A run that was interrupted once has cost what both attempts did."""
    run = ended(tmp_path, HETEROGENEITY, "FedAvg/α = 0.1", 0, 0.4)
    name = run.path.name.rsplit("-", 1)[-1]
    record = tmp_path / "record.jsonl"
    attempts = [{"hash": name, "commit": "abc1234", "cpu_seconds": seconds} for seconds in (10.5, 60.0)]
    record.write_text("".join(json.dumps(one) + "\n" for one in attempts))
    claim_runs.collect(tmp_path, record, tmp_path / "runs.jsonl")
    (found,) = claim_runs.read_lines(tmp_path / "runs.jsonl")
    assert (found["seconds"], found["commit"]) == (70.5, "abc1234")


def test_runs_of_other_experiments_are_left_out(tmp_path: Path) -> None:
    (cell, *_) = find_recipe(HETEROGENEITY)[1].of(1.0)
    run = create(cell.experiment, tmp_path)
    run.file("status.json").write_text(json.dumps({"status": "finished", "rounds": 4000, "accuracy": 0.5}))
    assert claim_runs.collect(tmp_path, None, tmp_path / "runs.jsonl") == (0, 0)


def test_effects_are_paired_by_seed() -> None:
    """Gains of 1, 2 and 3 points: 2 ± 2.48 points, which includes 0."""
    decided = verdicts.Decided(part(contrast=GAIN), pairs([0.01, 0.02, 0.03]))
    assert decided.values == pytest.approx({0: 0.01, 1: 0.02, 2: 0.03})
    assert decided.estimate is not None
    assert decided.estimate.half == pytest.approx(0.0248414)
    assert decided.verdict == Verdict.OPEN


def test_nothing_is_decided_before_all_seeds_are_there() -> None:
    lines = pairs([0.05, 0.05, 0.05])
    assert verdicts.Decided(part(contrast=GAIN), lines).verdict == Verdict.HOLDS
    less = verdicts.Decided(part(contrast=GAIN), lines[:-1])
    assert less.values == pytest.approx({0: 0.05, 1: 0.05})
    assert less.verdict == Verdict.RUNNING


def test_a_run_that_diverged_leaves_its_seed_without_an_effect() -> None:
    lines = pairs([0.05, 0.05, 0.05])
    del lines[0]["figures"]["accuracy"]
    assert verdicts.Decided(part(contrast=GAIN), lines).values.keys() == {1, 2}


def test_ranges_of_rates_and_rates_that_diverge() -> None:
    """WSM is at its best everywhere, from 0.005 to 0.5: two decades. FedAvg diverges but at 0.05.

    Towards a rate of accuracy 0 the range is a tenth of the way: log10(2)/10 on one side, log10(2.5)/10 on
    the other.
    """
    cells = [cell.name for cell in find_recipe(RATES)[1].of(None) if "TCE" not in cell.name]
    lines = []
    for cell in cells:
        good = "WSM" in cell or cell.startswith("lr 0.05,")
        lines.append(line(RATES, cell, 0, **({"accuracy": 0.4} if good else {})))
    wanted = part(
        recipe=RATES, widths=["lr *, FedAvg + WSM/CIFAR-10", "lr *, FedAvg/CIFAR-10"], margin=0.1, seeds=[0]
    )
    decided = verdicts.Decided(wanted, lines)
    assert decided.values == pytest.approx({0: 2.0 - 0.030103 - 0.039794})
    assert verdicts.Decided(wanted, lines[1:]).values == {}


def test_the_table_says_what_runs_and_what_is_decided(tmp_path: Path) -> None:
    one = verdicts.Claim.parse(
        {
            "number": 6,
            "title": "T",
            "source": "S",
            "setting": "LeNet",
            "hours": 2,
            "parts": [part(contrast=GAIN, paper=0.016, paper_says="table 5").model_dump()],
        }
    )
    running = claim_table.table([one], pairs([0.05, 0.05]))
    assert "| 6 |" not in running
    assert (
        "| **[6](claims/claim-6.md)** | **T** (S). LeNet. | **running** |  |  |  | 0.4 of about 2 |  |"
        in running
    )
    assert "| +5.0 ± 0.0 points (seeds 0, 1 so far) | +1.6 points; table 5 | 4 of 6, 3 seeds |" in running
    decided = claim_table.table([one], pairs([0.05, 0.06, 0.07]))
    assert "|  | s | holds | +6.0 ± 2.5 points | +1.6 points; table 5 | 6 of 6, 3 seeds |" in decided
    assert decided.count("\n") == 4
    figure = claim_figures.draw([one], pairs([0.05, 0.06, 0.07]), tmp_path / "effects.png")
    assert figure is not None
    assert figure.stat().st_size > 5_000
    # The paper's effect is drawn before there is any of ours.
    assert claim_figures.draw([one], [], tmp_path / "paper.png") is not None
    unknown = one.model_copy(update={"parts": (part(contrast=GAIN),)})
    assert claim_figures.draw([unknown], [], tmp_path / "none.png") is None


def test_curves_are_drawn_of_what_has_been_run(tmp_path: Path) -> None:
    one = line(HETEROGENEITY, "FedAvg/α = 0.1", 0, accuracy=0.3)
    one["curves"] = {"test_accuracy": [[20, 0.1], [40, 0.2], [41, 0.9]]}
    other = {**one, "seed": 1}
    cells = find_recipe(HETEROGENEITY)[1].of(None)
    figure = claim_figures.draw_curves(HETEROGENEITY, cells, [one, other], tmp_path / "curves.png")
    assert figure is not None
    assert figure.stat().st_size > 5_000
    forgetting = tmp_path / "forgetting.png"
    assert claim_figures.draw_curves(HETEROGENEITY, cells, [one], forgetting, forgetting=True) is None
    one["curves"]["forgetting"] = [[1, 0.0], [20, 0.1]]
    assert claim_figures.draw_curves(HETEROGENEITY, cells, [one], forgetting, forgetting=True) == forgetting
    rates = [line(RATES, f"lr {rate}, FedAvg/CIFAR-10", 0, accuracy=rate) for rate in (0.1, 0.05)]
    cells = find_recipe(RATES)[1].of(None)
    assert claim_figures.draw_curves(RATES, cells, rates, tmp_path / "rates.png") is not None


MATRIX = {
    "round": 200,
    "clients": [4, 7],
    "data": [4, 7],
    "before": [0.5, 0.4],
    "after": [[0.75, 0.1], [0.2, 0.9]],
}


def test_a_matrix_with_the_data_of_a_client_that_has_dropped_out() -> None:
    one = {"round": 9, "clients": [7], "data": [4, 7], "before": [0.5, 0.4], "after": [[0.2, 0.9]]}
    assert claim_runs.as_matrix(one).after.shape == (1, 2)


def test_a_matrix_is_kept_and_read_back(tmp_path: Path) -> None:
    """Client 4's model has lost 0.3 of client 7's data, and client 7's model 0.3 of client 4's."""
    run = ended(tmp_path, HETEROGENEITY, "FedAvg/α = 0.1", 0, 0.4)
    clients, rows = MATRIX["clients"], []
    for place, data in enumerate(clients):
        rows.append({"name": "before_accuracy", "client": data, "value": MATRIX["before"][place]})
        for model, after in zip(clients, MATRIX["after"], strict=True):
            rows.append({"name": "after_accuracy", "client": data, "model": model, "value": after[place]})
    with run.file("metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"round": 200, **row}) + "\n" for row in rows)
    kept = claim_runs.matrix(run)
    assert kept == MATRIX
    found = claim_runs.as_matrix(kept)
    assert found.mean == pytest.approx(0.3)
    assert found.is_own.to_numpy().tolist() == [[True, False], [False, True]]


def test_a_page_shows_what_is_in_and_says_what_is_not(tmp_path: Path) -> None:
    (one,) = (claim for claim in verdicts.read_claims() if claim.number == 6)
    lines = pairs([0.01, 0.02])
    for entry in lines:
        entry["curves"] = {"test_accuracy": [[20, 0.1], [200, 0.2]]}
        entry["matrix"] = MATRIX
    page = claim_pages.page_of(one, lines, tmp_path)
    assert page.startswith("# Claim 6: ")
    assert "**Verdict.** **running**" in page
    assert "| +1.5 ± 6.4 points (seeds 0, 1 so far) | +1.0, +2.0 |" in page
    assert "| FedAvg/α = 0.1 | 30.0 ± 0.0 | – | 0, 1 |" in page
    assert "| FedAvg/α = 10 | – | – | – |" in page
    for name in ("claim-6-heterogeneity.png", "claim-6-heterogeneity-maps.png"):
        assert f"]({name})" in page
        assert (tmp_path / name).stat().st_size > 5_000
    assert "mnemos reproduce claims/heterogeneity --seeds 0,1,2,3,4" in page


def test_a_page_before_the_first_run(tmp_path: Path) -> None:
    (one,) = (claim for claim in verdicts.read_claims() if claim.number == 9)
    calibration = line("claims/continual", "FedAvg/50 clients", claim_runs.CALIBRATION, accuracy=0.3)
    page = claim_pages.page_of(one, [calibration], tmp_path)
    assert "None of its runs is finished." in page
    assert "30.0" not in page
    assert not list(tmp_path.iterdir())


def test_what_recipes_cost() -> None:
    """Two of ten runs took six minutes each.

    Rounds of three and of five clients: 200 · 8 · 21 · 16 samples to train on. Each row tests in the last 20
    rounds and in rounds 20, 40, …, 180 (200 is among the last), and validates four times with 5,000 samples,
    which make (29 · 10,000 + 4 · 5,000) / 3 each. At a millisecond a sample, five seeds take 1.03 hours.
    """
    recipe = "claims/drop-outs"
    lines = [line(recipe, "6 % of clients/CIFAR-10", seed, accuracy=0.3) for seed in (0, 1)]
    few, many = (cell.experiment for cell in claim_runs.cells_of(recipe))
    both = claim_costs.samples(few) + claim_costs.samples(many)
    assert both == pytest.approx(537_600 + 2 * 310_000 / 3)
    speeds = {claim_costs.kind(few): 0.001}
    assert list(speeds) == ["lenet of width 1, 3×32×32, batches of 16"]
    found = claim_costs.costs([recipe], lines, speeds)
    assert "| `claims/drop-outs` | 10 | 2 | 0.2 | 1.0 hours | – |" in found
    assert "| `claims/drop-outs` | 10 | 0 | 0.0 | – | – |" in claim_costs.costs([recipe], [], {})


def test_rotations_and_a_single_learner_count() -> None:
    """Each image in four rotations; five clients' steps, whether there are five clients or one learner."""
    joint, under_tasks = (claim_runs.cells_of("claims/continual")[index].experiment for index in (0, 2))
    assert claim_costs.samples(joint) == claim_costs.samples(under_tasks)
    tested = 10 * 10_000 / 3
    assert claim_costs.samples(joint) == pytest.approx(200 * 5 * 8 * 32 * 4 + tested)


def test_speeds_are_measured_once_for_each_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_costs, "_LONG_ENOUGH", 0.0)
    claim_runs.cells_of("claims/rates")
    monkeypatch.setattr(Recipe, "of", lambda self, scale: [])  # the paper's setting would take longer
    found = claim_costs.measure_all(["claims/rates"], tmp_path / "speeds.json")
    assert list(found) == ["lenet of width 1, 3×32×32, batches of 16"]
    assert claim_costs.read_speeds(tmp_path / "speeds.json") == found
    assert claim_costs.read_speeds(tmp_path / "none.json") == {}


def test_the_report_renews_its_parts_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "claims.md"
    places = [
        claims.BEGIN.format(name=name) + "\nof yesterday\n" + claims.END.format(name=name)
        for name in ("state", "table", "costs")
    ]
    page.write_text("\n".join(["before", *places, "after"]))
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    monkeypatch.setattr(claims, "read_lines", lambda: pairs([0.05] * 5))
    said = claims.report(page)
    assert said[5] == "6: running"
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "yesterday" not in text
    assert "10 runs are finished, of commits abc1234; they took 1.0 core hours." in text
    assert "effects, 1 have all their seeds." in text
    assert "| +5.0 ± 0.0 points |" in text
    assert sorted(path.name for path in tmp_path.glob("*.md")) == sorted(
        ["claims.md", *(f"claim-{number}.md" for number in range(1, 13))]
    )


def test_a_part_takes_one_kind_of_effect() -> None:
    with pytest.raises(ConfigError, match="either a contrast or widths"):
        part()


def test_the_claims_as_registered_name_cells_that_exist(tmp_path: Path) -> None:
    known = verdicts.read_claims()
    assert [claim.number for claim in known] == [*range(1, 13)]
    wrong = tmp_path / "claims.yaml"
    entry = {"number": 1, "title": "T", "source": "S", "setting": "…", "hours": 1}
    entry["parts"] = [{"says": "s", "recipe": RATES, "contrast": {"lr 3, FedAvg/CIFAR-10": 1}, "margin": 1}]
    wrong.write_text(json.dumps([entry]))
    with pytest.raises(ConfigError, match="claim 1: claims/rates has no cell 'lr 3, FedAvg/CIFAR-10'"):
        verdicts.read_claims(wrong)


def test_the_best_rate_by_validation_accuracy() -> None:
    """By the mean of the last three measurements, 0.3 against 0.2, and not by the last or by the test."""

    def calibration(rate: str, last: list[float], **changes: object) -> claim_runs.Line:
        cell = f"{rate}, batch norm, FedAvg/CIFAR-10"
        curve = [[number * 10, value] for number, value in enumerate([0.9, *last], 1)]
        return {
            **line("claims/rates-resnet", cell, 100, accuracy=last[-1]),
            "status": "finished",
            "curves": {"validation_accuracy": curve},
            **changes,
        }

    lines = [
        calibration("lr 0.03", [0.1, 0.1, 0.4]),
        calibration("lr 0.1", [0.3, 0.35, 0.25]),
        calibration("lr 0.3", [0.9, 0.9, 0.9], seed=0),
        calibration("lr 1", [0.9, 0.9, 0.9], status="diverged"),
    ]
    found = claim_runs.best_rates("claims/rates-resnet", lines)
    assert found == {"batch norm, FedAvg/CIFAR-10": (0.1, pytest.approx(0.3))}


def test_seeds_of_the_comparison_are_none_of_the_calibration() -> None:
    assert all(
        claim_runs.CALIBRATION not in one.seeds for claim in verdicts.read_claims() for one in claim.parts
    )
