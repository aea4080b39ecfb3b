"""What is known to hurt is said before training, in one sentence each, where people and programs look."""

import shlex
import sys
import warnings

import numpy as np
import pytest
from torch import nn

import mnemos
from mnemos.data.partition import Assignment, label_skew
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.federation.federation import Federation
from mnemos.runs.execute import Silent, resume

with warnings.catch_warnings():
    # Typer 0.20 takes names from click that the newest click warns about.
    warnings.simplefilter("ignore", DeprecationWarning)
    from mnemos.cli.app import main


def skew(labels, *clients):
    sizes = [len(client) for client in clients]
    order = np.concatenate([np.array(client, np.int64) for client in clients])
    return label_skew(np.array(labels), Assignment(order, np.cumsum([0, *sizes])))


def test_label_skew_by_hand():
    """Labels 0 0 0 0 1 1 1 1, so p = (½, ½).

    Client 0 holds two of class 0: ½ (|1 − ½| + |0 − ½|) = ½. Client 1 holds two of class 0 and four of class
    1: ½ (|⅓ − ½| + |⅔ − ½|) = ⅙. The mean is ⅓, whatever the sizes.
    """
    assert skew([0, 0, 0, 0, 1, 1, 1, 1], [0, 1], [2, 3, 4, 5, 6, 7]) == pytest.approx(1 / 3)


def test_label_skew_of_three_classes_by_hand():
    """p = (½, ¼, ¼) of four samples. Client 0 holds classes 0 and 1: ½ (0 + ¼ + ¼) = ¼; client 1 likewise.

    The fifth sample, of class 2, belongs to nobody and doesn't count; neither does a client without any.
    """
    assert skew([0, 1, 0, 2, 2], [0, 1], [], [2, 3]) == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("clients", "expected"), [([[0, 3], [1, 4], [2, 5]], 2 / 3), ([[0, 1, 2], [3, 4, 5]], 0.0)]
)
def test_label_skew_at_its_ends(clients, expected):
    """Labels a b c a b c: a client for each class is 1 − ⅓ away, and shares like the whole's are 0 away."""
    assert skew([0, 1, 2, 0, 1, 2], *clients) == pytest.approx(expected, abs=1e-12)


BATCH_NORM = {"name": "mlp", "hidden": [8], "norm": "batch"}
NORM_SENTENCE = "batch-norm with plain cross-entropy is known to fail"
OPTION_SENTENCE = "SCAFFOLD's option II"
SERVER_SENTENCE = "method.buffers=server never updates batch-norm's statistics"
RHO_SENTENCE = "the server moves models with ρ = 0.5 and batch-norm's statistics with ρ = 1"
SURVEY_SENTENCE = "passes over a client's data with batch-norm's running statistics"


def experiment(**changes):
    return Experiment.parse(
        {
            "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.1},
            "model": {"name": "mlp", "hidden": [8]},
            "local": {"steps": 2, "batch": 8},
            "participation": 0.34,
            "rounds": 2,
            "evaluate": {"every": 2, "test_last": 0},
            "engine": "serial",
            **changes,
        }
    )


def warned(**changes):
    found = Federation(experiment(**changes)).warnings
    for sentence in found:
        assert "\n" not in sentence
        assert not sentence.endswith(".")
    return found


MOMENTUM = {"steps": 2, "batch": 8, "optimizer": {"name": "sgd", "momentum": 0.9}}
OPTION_I = {"name": "scaffold", "correction": {"name": "scaffold", "option": "I"}}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, []),
        ({"model": BATCH_NORM}, [NORM_SENTENCE]),
        ({"model": BATCH_NORM, "method": {"name": "fedavg", "loss": "wsm"}}, []),
        ({"model": BATCH_NORM, "partition": {"name": "dirichlet", "clients": 12, "alpha": 100}}, []),
        ({"model": BATCH_NORM, "partition": {"name": "iid", "clients": 12}}, []),
        ({"model": BATCH_NORM, "partition": {"name": "shards", "clients": 12}}, [NORM_SENTENCE]),
        ({"model": {**BATCH_NORM, "norm": "group"}}, []),
        ({"model": {**BATCH_NORM, "norm": "layer"}}, []),
        ({"method": "scaffold"}, []),
        ({"method": "scaffold", "local": MOMENTUM}, [OPTION_SENTENCE]),
        ({"method": OPTION_I, "local": MOMENTUM}, []),
        ({"method": {"name": "fedavg", "correction": "scaffold"}, "local": MOMENTUM}, [OPTION_SENTENCE]),
        ({"method": "fedavg", "local": MOMENTUM}, []),
        ({"method": {"name": "fedavg", "buffers": "server"}}, []),
        (
            {"method": {"name": "fedavg", "loss": "wsm", "buffers": "server"}, "model": BATCH_NORM},
            [SERVER_SENTENCE],
        ),
        ({"method": {"name": "fedavg", "loss": "wsm", "buffers": "leave-out"}, "model": BATCH_NORM}, []),
        (
            {"method": {"name": "fedcurv", "loss": "wsm", "buffers": "leave-out"}, "model": BATCH_NORM},
            [SURVEY_SENTENCE],
        ),
        ({"method": {**OPTION_I, "loss": "wsm"}, "model": BATCH_NORM}, []),
        ({"method": {"name": "fedavg", "loss": "wsm", "server": "mix"}, "model": BATCH_NORM}, [RHO_SENTENCE]),
        ({"method": {"name": "fedavg", "loss": "wsm", "server": "mix"}}, []),
        (
            {
                "method": {"name": "fedavg", "loss": "wsm", "server": "mix", "buffers": "mix"},
                "model": BATCH_NORM,
            },
            [],
        ),
        ({"method": "scaffold", "model": BATCH_NORM, "local": MOMENTUM}, [NORM_SENTENCE, OPTION_SENTENCE]),
    ],
    ids=str,
)
def test_which_experiments_are_warned_of(changes, sentences):
    found = warned(**changes)
    assert len(found) == len(sentences)
    for sentence, start in zip(found, sentences, strict=True):
        assert start in sentence


def test_the_sentence_says_how_far_labels_differ_and_what_may_help():
    federation = Federation(experiment(model=BATCH_NORM))
    distance = label_skew(federation.dataset.train.labels.numpy(), federation.assignment)
    (sentence,) = federation.warnings
    assert sentence == (
        "batch-norm with plain cross-entropy is known to fail on clients whose labels differ this much "
        f"(mean distance {distance:.2f} of at most 1); model.norm=group or method.loss=wsm may help"
    )
    assert distance > 0.5


def test_what_the_sentences_recommend_ends_the_warning():
    """As overrides, the way they are written."""
    base = experiment(model=BATCH_NORM, method="scaffold", local=MOMENTUM)
    assert len(Federation(base).warnings) == 2
    for name, value in (("model.norm", "group"), ("method.loss", "wsm")):
        assert len(Federation(base.override({name: value})).warnings) == 1
    better = base.override({"model.norm": "group", "method.correction.option": "I"})
    assert Federation(better).warnings == ()


def uploads(**weighting):
    return {"name": "fedavg", "weighting": weighting, "rule": "median"}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (uploads(name="effective-rank", linear=True), "effective-rank"),
        (uploads(name="stable-rank", linear=True), "stable-rank"),
        (uploads(name="network-rank", linear=True), "network-rank"),
        (uploads(name="precision"), "precision"),
        (uploads(precision=0.5, uniform=0.5), "blend"),
        (uploads(name="samples"), None),
        (uploads(name="uniform"), None),
        ({"name": "precision"}, None),
    ],
    ids=str,
)
def test_weights_that_clients_find_for_themselves_are_no_votes(method, said):
    found = warned(method=method)
    if said is None:
        assert found == ()
    else:
        (sentence,) = found
        assert sentence == (
            f"method.rule=median uses weights, and {said} finds them in what clients send: a bad one can "
            "get most of the weight; method.weighting=uniform gives all the same"
        )


OF = [{"model": {"name": "mlp", "hidden": [4 * share]}, "share": share} for share in (3, 1)]
FEW = "screens: {} compares 3 updates at least, and a round has {}: {}"
REMEMBERS = "it looks at earlier rounds, too, and believes the first 2"
NOBODY = "no client will be put aside"
RULE = (
    "method.rule: median takes 3 updates at least to tell a bad one from the others, and a round has {}: "
    "a bad one counts like any other"
)
MEDIAN = {"name": "fedavg", "weighting": "uniform", "rule": "median"}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({"screens": ["norms", "free-riders"], "method": MEDIAN}, []),  # four of twelve
        (
            {"screens": ["norms", "samples", "free-riders"], "method": MEDIAN, "participation": 0.17},
            [
                FEW.format("norms", 2, REMEMBERS),
                FEW.format("samples", 2, REMEMBERS),
                FEW.format("free-riders", 2, NOBODY),
                RULE.format(2),
            ],
        ),
        # All twelve: nine of one model, and three of the other. Of six there are 1.5, on average.
        ({"screens": ["free-riders"], "model": {"name": "mixed", "of": OF}, "participation": 1.0}, []),
        (
            {"screens": ["free-riders"], "model": {"name": "mixed", "of": OF}, "participation": 0.5},
            [FEW.format("free-riders", "1.5 of model.of.1.model, on average", NOBODY)],
        ),
        (
            {"screens": ["norms"], "clock": "fedasync", "method": MEDIAN},
            [FEW.format("norms", 1, REMEMBERS), RULE.format(1)],
        ),
        ({"screens": ["norms"], "clock": {"name": "fedbuff", "buffer": 3}, "method": MEDIAN}, []),
        ({"clock": "fedasync", "method": {**MEDIAN, "rule": {"name": "norm-bounded", "bound": 1.0}}}, []),
    ],
    ids=str,
)
def test_too_few_to_compare_are_said_by_model(changes, sentences):
    assert warned(partition={"name": "iid", "clients": 12}, **changes) == tuple(sentences)


class Listening(Silent):
    """Remembers what it was told, in order."""

    def __init__(self, after=None):
        super().__init__()
        self.told, self.after = [], after

    def started(self, run, experiment, round):
        super().started(run, experiment, round)
        self.told.append("started")

    def warned(self, sentence):
        self.told.append(sentence)

    def round(self, outcome):
        self.told.append(outcome.round)
        if outcome.round == self.after:
            raise KeyboardInterrupt


def test_an_observer_is_warned_before_the_first_round_and_on_resume(tmp_path):
    observer = Listening(after=1)
    description = experiment(model=BATCH_NORM)
    with pytest.raises(KeyboardInterrupt):
        mnemos.run(description, out=tmp_path, observer=observer)
    (sentence,) = Federation(description).warnings
    assert observer.told == ["started", sentence, 1]
    again = Listening()
    resume(observer.run.path, observer=again)
    assert again.told == ["started", sentence, 2]


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # `main` does so too; this puts it back

    def call(line):
        monkeypatch.setattr(sys, "argv", ["mnemos", *shlex.split(line)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        return capsys.readouterr()

    return call


TINY = (
    "partition.clients=12 'model={name: mlp, hidden: [8], norm: batch}' participation=0.34 rounds=1 "
    "evaluate.test_last=1 engine=serial"
)


def test_warnings_reach_the_terminal(command):
    """On standard error, so that what a script reads stays as it is."""
    ended = command(f"run {TINY} partition.alpha=0.1 --json")
    lines = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert len(lines) == 1
    assert NORM_SENTENCE in lines[0]
    assert "warning" not in ended.out
    assert len(ended.out.splitlines()) == 1


def test_without_anything_to_warn_of_nothing_is_said(command):
    assert "warning" not in command(f"run {TINY} partition.alpha=100").err
    assert "warning" not in command(f"run {TINY} partition.alpha=0.1 --loss wsm").err


class Convolutional(nn.Module):
    """Nothing that features could be taken from."""

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Conv2d(1, classes, 8)

    def forward(self, x):
        return self.layer(x).flatten(1)


def test_a_model_without_features_is_refused_where_a_term_wants_them():
    model = {"name": "test_checks:Convolutional"}
    Federation(Experiment.parse({"model": model})).close()
    with pytest.raises(ConfigError, match=r"method\.terms: the model has neither a features"):
        Federation(Experiment.parse({"model": model, "method": "moon"}))


@pytest.mark.parametrize(("rounds", "warned"), [([3, 5], True), ([2, 5], False), (5, False)])
def test_forgetting_that_is_never_measured_is_said(rounds, warned):
    asked = {"rounds": 2, "evaluate": {"forgetting": rounds}}
    federation = Federation(Experiment.parse(asked))
    federation.close()
    assert bool(federation.warnings) is warned
    if warned:
        assert federation.warnings == ("evaluate.forgetting begins with round 3, and there are 2",)
