"""Runs that get nowhere end as not converged: recorded, with an exit code, and named so in tables."""

import json
import math

import pytest
import torch

from mnemos.cli.app import main
from mnemos.errors import DivergedError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.evaluation import Evaluation
from mnemos.federation.federation import Federation
from mnemos.measures.measure import Scores
from mnemos.objectives.objective import Objective
from mnemos.runs.execute import Silent, resume, start
from mnemos.runs.run import Run


def stuck(tiny, **changes):
    """Steps so small that nothing is learnt."""
    changes = {"local.lr": 1e-9, "rounds": 20, "evaluate": {"every": 2, "patience": 6}, **changes}
    return Experiment.parse(tiny).override(changes)


@pytest.mark.parametrize(("right", "expected"), [(50, True), (60, True), (61, False)])
def test_chance_by_hand(right, expected):
    """100 samples, half of them of class 0: a constant answer gets ½, and the standard deviation of a
    count of 100 coin tosses is √(100 · ½ · ½) = 5. So at most 50 + 2 · 5 = 60 right answers are chance.
    """
    labels = torch.tensor([0, 1] * 50)
    predicted = torch.where(torch.arange(100) < right, labels, 1 - labels)
    scores = Scores(torch.nn.functional.one_hot(predicted).float(), labels, torch.zeros(100))
    assert scores.at_chance is expected


def test_data_of_one_class_says_nothing_about_chance():
    labels = torch.zeros(10, dtype=torch.int64)
    assert not Scores(torch.eye(2)[labels], labels, torch.zeros(10)).at_chance


def test_a_run_at_chance_for_long_ends_and_keeps_its_last_round(tiny, tmp_path):
    """Evaluated in rounds 2, 4, …: at chance since round 2, so it ends 6 rounds later."""
    with pytest.raises(DivergedError, match=r"round 8: validation accuracy .* at chance since round 2"):
        start(stuck(tiny), tmp_path)
    (path,) = (file.parent for file in tmp_path.glob("*/status.json"))
    run = Run.at(path)
    assert (run.status.status, run.status.rounds, run.accuracy) == ("diverged", 8, None)
    assert run.metrics["round"].max() == run.saved_rounds == 8


def test_the_stretch_survives_a_resume(tiny, tmp_path):
    class Impatient(Silent):
        def round(self, outcome):
            if outcome.round == 5:
                raise KeyboardInterrupt

    observer = Impatient()
    with pytest.raises(KeyboardInterrupt):
        start(stuck(tiny), tmp_path, observer)
    with pytest.raises(DivergedError, match=r"round 8: .* since round 2"):
        resume(observer.run.path)


def test_no_patience_is_endless_patience(tiny, tmp_path):
    run = start(stuck(tiny, **{"evaluate": {"every": 2, "patience": 0}}), tmp_path)
    assert (run.status.status, run.status.rounds) == ("finished", 20)


def test_one_better_evaluation_begins_a_new_stretch(tiny):
    federation = Federation(stuck(tiny))
    labels = torch.tensor([0, 1] * 50)

    def scores(right):
        predicted = torch.where(torch.arange(100) < right, labels, 1 - labels)
        return Scores(torch.nn.functional.one_hot(predicted).float(), labels, torch.zeros(100))

    def says(round, right):
        return bool(federation.evaluation.stuck(round, Evaluation(scores(right), [])))

    said = [says(round, right) for round, right in ((2, 50), (4, 50), (6, 90), (8, 50))]
    later = [says(round, 50) for round in (10, 12, 14)]
    federation.close()
    assert said + later == [False] * 6 + [True]
    assert federation.evaluation.at_chance_since == 8


class Endless(Objective):
    """Infinite, with a gradient of zero: the weights stay finite, only the loss isn't."""

    def __call__(self, logits, labels, counts):
        return 0 * logits.sum(1) + math.inf


def test_a_loss_that_is_not_finite_ends_the_run(tiny):
    method = {"name": "fedavg", "loss": "test_not_converged:Endless"}
    federation = Federation(Experiment.parse({**tiny, "method": method}))
    with (
        pytest.raises(DivergedError, match="round 1: what clients send is not finite"),
        federation.open() as runner,
    ):
        federation.advance(runner)
    federation.close()


def test_tables_say_nc(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(stuck(tiny).to_yaml())
    monkeypatch.setattr("sys.argv", ["mnemos", "run", "e.yaml", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 4
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["status"], said["rounds"], said["exit_code"]) == ("diverged", 8, 4)
    monkeypatch.setattr("sys.argv", ["mnemos", "runs"])
    with pytest.raises(SystemExit):
        main()
    assert " diverged  8       NC" in capsys.readouterr().out
