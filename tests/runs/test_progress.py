"""How far a run has come, while it is going on."""

import json

import mnemos
from mnemos.runs.execute import Silent
from mnemos.runs.progress import progress


class Looking(Silent):
    """Looks at the run after each round."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def round(self, outcome):
        self.seen.append(progress(self.run, self.run.experiment))


def test_a_run_is_followed_round_by_round(tiny, tmp_path):
    observer = Looking()
    run = mnemos.run(tiny, out=tmp_path, observer=observer)
    # Evaluated every 2 rounds, tested in the last 2 of 4.
    metrics = run.metrics
    overall = metrics[metrics["client"].isna()].set_index(["name", "round"])["value"]
    assert [seen.round for seen in observer.seen] == [1, 2, 3, 4]
    assert [seen.accuracy for seen in observer.seen] == [
        None,
        overall["validation_accuracy", 2],
        overall["test_accuracy", 3],
        overall["test_accuracy", 4],  # not validation's of the same round
    ]
    assert [seen.measured for seen in observer.seen] == ["", "validation", "test", "test"]
    assert all(seen.status.status == "running" and seen.rounds == 4 for seen in observer.seen)
    third = observer.seen[2]
    assert third.left == third.seconds  # one round is left
    last = progress(run, run.experiment)
    assert (last.status.status, last.left) == ("finished", None)
    assert (last.accuracy, last.measured) == (run.accuracy, "final")


def test_the_newest_accuracy_is_found_behind_a_megabyte_of_clients(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path)
    status = run.read_json("status.json") | {"status": "interrupted", "accuracy": None}
    run.write_json("status.json", status)
    with run.file("metrics.jsonl").open("a") as file:
        for client in range(20_000):
            row = {"round": 5, "name": "train_loss", "value": 1.0, "client": client}
            file.write(json.dumps(row) + "\n")
        file.write('{"round": 5, "name": "validation_accuracy", "value": 0.25}\n')
        file.write('{"round": 5, "name": "validation_acc')  # being written
    assert progress(run, run.experiment).accuracy == 0.25


def test_a_run_that_has_not_begun_has_no_figures(tiny, tmp_path):
    run = mnemos.run(tiny, out=tmp_path)
    for name in ("metrics.jsonl", "timing.jsonl", "status.json"):
        run.file(name).unlink()
    start = progress(run, run.experiment)
    assert (start.status.status, start.round, start.accuracy, start.seconds) == ("interrupted", 0, None, None)
