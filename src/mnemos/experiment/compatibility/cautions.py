"""What is known to hurt; said before any training."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mnemos.data.partition import label_skew
from mnemos.experiment.compatibility.row import Row, Table, always, errors, first, named
from mnemos.experiment.compatibility.setup import Setup
from mnemos.methods.exchange import When

_SKEWED = 0.5
"""Mean distance (total variation) of the clients' label distributions from the federation's."""


_ROUNDING = 1e-9
"""What a product of a share and a number of clients may be off by."""


def _skewed(setup: Setup) -> tuple[str, str] | None:
    """How far the clients' labels differ, if it is far and the loss takes no account of it."""
    if setup.dataset.remote or not setup.experiment.method.loss.over_all_classes:
        return None
    skew = label_skew(setup.dataset.train.labels.numpy(), setup.held)
    return (f"{skew:.2f}", setup.field) if skew > _SKEWED else None


def _apart(setup: Setup) -> tuple[str, str] | None:
    """ρ of the model and of the buffers, if they differ."""
    model, buffers = setup.experiment.method.server.moves, setup.experiment.method.buffers.moves
    return None if model is None or buffers in (None, model) else (f"{model:g}", f"{buffers:g}")


def _stale(setup: Setup) -> tuple[str, str] | None:
    """The part that passes over data at the end, with running statistics that the policy never renews."""
    method = setup.experiment.method
    after: When = "end"
    part = first(part for part in method.parts if part.data_pass_at == after)
    return (part, method.buffers.name) if part and not method.buffers.sent else None


NORMED: Table[Setup] = Table(
    lambda s: s.batch_norm,
    (
        Row(
            "",
            _skewed,
            "batch-norm with plain cross-entropy is known to fail on clients whose labels differ this much "
            "(mean distance {0} of at most 1); {1}.norm=group or method.loss=wsm may help",
        ),
        Row(
            "",
            lambda s: named(s.experiment.method.buffers, s.experiment.method.buffers.stays),
            "method.buffers={} never updates batch-norm's statistics: the global model is evaluated with "
            "those it began with",
        ),
        Row(
            "",
            _apart,
            "the server moves models with ρ = {} and batch-norm's statistics with ρ = {}; method.server and "
            "method.buffers should agree",
        ),
        Row(
            "",
            _stale,
            "{} passes over a client's data with batch-norm's running statistics, which method.buffers={} "
            "never renews",
        ),
    ),
)
"""Batch-norm: what is known to hurt it."""


def _less_than_one(setup: Setup) -> tuple[str, str] | None:
    """(the participation, the number of clients), if that is less than one client."""
    share, clients = setup.experiment.participation, setup.flow.assignment.clients
    one_learner = not setup.experiment.method.federated
    return None if one_learner or share * clients >= 1 - _ROUNDING else (f"{share:g}", str(clients))


def _alone(setup: Setup) -> tuple[str, str] | None:
    """(the participation, one with two clients), if forgetting is to be measured in rounds of one client."""
    experiment, clients = setup.experiment, setup.flow.assignment.clients
    alone = clients > 1 and experiment.participation * clients < 2 - _ROUNDING
    if not (alone and experiment.forgetting_rounds and experiment.method.federated):
        return None
    return (f"{experiment.participation:g}", f"{math.ceil(200 / clients) / 100:g}")


def _never(setup: Setup) -> tuple[str, str, str] | None:
    """(the field that asks for forgetting, its first round, the last round), if the first comes too late."""
    asked, rounds = setup.experiment.forgetting_rounds, setup.experiment.rounds
    began = min(asked) if isinstance(asked, tuple) and asked else 0
    field = "evaluate" if setup.experiment.evaluate.forgetting else "measures"
    return (field, str(began), str(rounds)) if began > rounds else None


ASKED: Table[Setup] = Table(
    always,
    (
        Row(
            "",
            lambda s: named(
                s.experiment.method.loss,
                s.experiment.method.loss.counted == "tasks" and s.loads.shape[1] == 1,
            ),
            "method.loss={} leaves out the classes of tasks to come, and there are no tasks: it is plain "
            "cross-entropy; a stream of tasks would make the difference",
        ),
        Row(
            "",
            lambda s: not s.experiment.guard.enabled,
            "guard.enabled=false: nothing keeps one bad client from ending the run or ruining its model",
        ),
        Row(
            "",
            _less_than_one,
            "participation={} of {} clients is less than one client: one is taken",
        ),
        Row(
            "",
            _alone,
            "forgetting compares the clients of a round, and with participation={} a round has one: nothing "
            "is measured; participation={} has two, participation=1 all",
        ),
        Row("", _never, "{}.forgetting begins with round {}, and there are {}"),
    ),
)
"""What is asked for in vain, or was better left."""


def _short(setup: Setup) -> tuple[str, ...] | None:
    """The steps of a round, and how many of how many clients need more for one pass over their samples."""
    steps, batches = setup.local.steps, setup.batches
    short = 0 if steps is None else int((batches > steps).any(axis=1).sum())
    return (str(steps), str(short), str(len(batches))) if short else None


def _lost(setup: Setup) -> str:
    """The optimiser's name, if it learns at the end of epochs, of which a round has one, and forgets it."""
    local, batches = setup.local, setup.batches
    epochs = local.epochs if local.steps is None else int((local.steps // batches[batches > 0]).max())
    return named(local.optimizer, local.optimizer.counts_epochs and not local.keeps and epochs <= 1)


EPOCHS: Table[Setup] = Table(
    lambda s: s.local.optimizer.counts_epochs or s.local.schedule.counts_epochs,
    (
        Row(
            "",
            _short,
            "local.steps={} is less than a pass over the samples of {} of {} clients; such a round counts as "
            "one local epoch",
        ),
        Row(
            "",
            _lost,
            "{} learns at the end of a local epoch, and there is one in a round: what it learns is lost "
            "unless local.optimizer_state=kept",
        ),
    ),
)
"""Local epochs: what rounds of a few steps, or of one epoch, mean for parts that count them."""


IDLE: Table[Setup] = Table(
    lambda s: s.experiment.model.serverless,
    (
        Row(
            "{0}",
            lambda s: (s.field, str(s.idle), str(len(s.members))) if s.idle else None,
            "{1} of the {2} peers that have it hold no training sample; their untrained models have a say "
            "in the ensemble",
        ),
    ),
)
"""Peers that can't train."""


def warnings(setup: Setup) -> Iterator[str]:
    """Combinations that are known to hurt, in a sentence each."""
    yield from map(str, errors((IDLE,), setup))
    yield from _too_few(setup)
    yield from map(str, errors((NORMED, ASKED, EPOCHS), setup))
    yield from setup.experiment.method.warnings(setup.local)


def _too_few(setup: Setup) -> Iterator[str]:
    """Screens and rules that compare more updates of the model than a round has."""
    of = f" of {setup.field}, on average" if setup.field != "model" else ""
    has = f"a round has {setup.updates:.3g}{of}"
    for screen in setup.experiment.screens:
        if setup.updates < screen.fewest:
            then = (
                f"it looks at earlier rounds, too, and believes the first {screen.fewest - 1}"
                if screen.remembers
                else "no client will be put aside"
            )
            yield f"screens: {screen.name} compares {screen.fewest} updates at least, and {has}: {then}"
    rule = setup.experiment.method.rule
    if setup.updates < rule.fewest:
        yield (
            f"method.rule: {rule.name} takes {rule.fewest} updates at least to tell a bad one from the "
            f"others, and {has}: a bad one counts like any other"
        )
