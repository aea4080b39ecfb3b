"""What a federation is like, without training: who holds how much of what, and what a cohort sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mnemos.data.load import load
from mnemos.data.partition import Floats, Ints, label_skew
from mnemos.data.sources.elsewhere import Elsewhere, with_counted_labels
from mnemos.display.words import plural
from mnemos.experiment.experiment import FORMS, Experiment, load_experiment
from mnemos.experiment.overrides import merge, read_yaml
from mnemos.federation.population import Population
from mnemos.optim.local import round_steps
from mnemos.studies.study import Study

Described = Experiment | Mapping[str, Any] | str | Path | None


@dataclass(frozen=True)
class FederationDescription:
    """A federation in numbers. Clients without training samples count in `clients` and `empty` alone."""

    data: str
    classes: int
    clients: int
    empty: int
    """Clients without a training sample."""
    samples: int
    """Training samples of all clients."""
    size_min: int
    size_median: float
    size_max: int
    validation_samples: int
    classes_held: float
    """Mean number of classes of which a client has a training sample."""
    effective_classes: float
    """Mean over clients of exp(H(p_k)), H(p) = −Σ_c p_c ln p_c of the client's label distribution p_k."""
    effective_classes_min: float
    label_distance: float
    """Mean total-variation distance ½ Σ_c |p_kc − p_c| of clients from the whole: from 0, alike, to 1."""
    overlap: float
    """Mean over pairs of clients of Σ_c min(p_ic, p_jc): 1 if all have the same distribution, 0 disjoint."""
    rounds: int
    cohort: int
    """Clients in a round."""
    participation: float
    """Cohort divided by the clients that have training samples."""
    times_asked: float
    """Rounds in which a client takes part, on average over the whole run."""
    local_steps: float
    """Local steps of a client in a round, mean over clients and, in a stream, over their tasks."""
    local_steps_min: int
    local_steps_max: int
    coverage: float
    """Expected number of classes in the training data of a uniformly drawn cohort: see `coverage`.

    In a stream it is the mean of the first, the middle and the last round.
    """
    rarest_coverage: float
    """Probability that a cohort holds the class that is the least likely, of those that clients have."""
    stream: str
    uniform: bool
    """Whether cohorts are drawn uniformly, as the coverage assumes."""

    @property
    def facts(self) -> dict[str, Any]:
        """All numbers by name, and the sentences, for JSON."""
        return {**asdict(self), "sentences": list(self.sentences), "warnings": list(self.warnings)}

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same in words."""
        return (
            f"{plural(self.clients, 'client')} hold {self.samples:,} training samples of {self.data}: "
            f"{self.size_min} to {self.size_max} each, {self.size_median:g} in the middle.",
            f"A client has {self.effective_classes:.1f} of {self.classes} classes effectively (the "
            f"exponential of its labels' entropy), {self.effective_classes_min:.1f} at the least; it holds "
            f"samples of {self.classes_held:.1f}. {_skew(self.label_distance)}",
            f"Two clients have {100 * self.overlap:.0f} % of their labels in common.",
            f"A round takes {plural(self.cohort, 'client')} ({100 * self.participation:.3g} %), so each "
            f"takes part in {self.times_asked:.3g} of {self.rounds} rounds and makes "
            f"{self.local_steps:.3g} local step{'s' * (self.local_steps != 1)} in each.",
            f"Together a round's clients hold {self.coverage:.1f} of {self.classes} classes on average; the "
            f"rarest class is there in {100 * self.rarest_coverage:.0f} % of the rounds.",
            *((f"Clients' data changes over time ({self.stream}).",) if self.stream != "static" else ()),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is likely to make training, or the choice of a method, hard."""
        found = []
        if self.empty:
            found.append(f"{plural(self.empty, 'client')} of {self.clients} have no training sample")
        if self.validation_samples < 100:
            found.append(
                f"there are only {plural(self.validation_samples, 'validation sample')}: one of them is "
                f"{100 / max(1, self.validation_samples):.2g} points of accuracy"
            )
        if self.times_asked < 2:
            found.append(
                f"a client takes part {self.times_asked:.2g} times on average, so what methods such as "
                "SCAFFOLD and FedDyn keep at clients is old or missing"
            )
        if not self.uniform:
            found.append("cohorts aren't drawn uniformly, and their coverage is computed as if they were")
        return tuple(found)

    def __str__(self) -> str:
        lines = [*self.sentences, *(f"warning: {sentence}" for sentence in self.warnings)]
        return "\n".join(lines)


def base_of(source: Described, changes: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment of a file or mapping, or the base of a study, with dotted changes applied."""
    given = read_yaml(Path(source)) if isinstance(source, str | Path) else source
    if isinstance(given, Mapping) and any(form in given for form in FORMS):
        study = Study.read(source if isinstance(source, str | Path) else given, changes)
        return load_experiment(merge(study.base, {}, Experiment))
    return load_experiment(source, changes)


def describe(experiment: Experiment) -> FederationDescription:
    """What the federation of an experiment is like; its data is loaded, and nothing is trained.

    Of a federation's run, whose data stays with its owners, it is what they have agreed to share.
    """
    dataset = load(experiment.data)
    if dataset.remote:
        assert isinstance(experiment.data, Elsewhere)
        dataset = with_counted_labels(dataset, experiment.data.owners)
    population = Population(experiment, dataset)
    flow, classes = population.flow, len(dataset.classes)
    samples, owners = flow.assignment.training()
    labels = dataset.train.labels.numpy()
    cells = np.bincount(owners * classes + labels[samples], minlength=flow.assignment.clients * classes)
    held = cells.reshape(-1, classes)
    sizes = held.sum(axis=1)
    counts = held[sizes > 0]
    effective = effective_classes(counts)
    cohort, rounds, local = population.cohort_size, experiment.rounds, population.local
    loads = flow.loads()
    steps = [
        round_steps(local.steps, local.epochs, int(batches)) for batches in local.batches(loads[loads > 0])
    ]
    moments = {1} if experiment.stream.name == "static" else {1, (rounds + 1) // 2, rounds}
    seen = np.mean([coverage(flow.counts(round), cohort) for round in sorted(moments)], axis=0)
    return FederationDescription(
        data=experiment.data.title,
        classes=classes,
        clients=flow.assignment.clients,
        empty=int(np.count_nonzero(sizes == 0)),
        samples=int(sizes.sum()),
        size_min=int(sizes.min()),
        size_median=float(np.median(sizes)),
        size_max=int(sizes.max()),
        validation_samples=len(flow.assignment.union_held_out()),
        classes_held=float(np.count_nonzero(counts, axis=1).mean()),
        effective_classes=float(effective.mean()),
        effective_classes_min=float(effective.min()),
        label_distance=label_skew(labels, flow.assignment),
        overlap=overlap(counts),
        rounds=rounds,
        cohort=cohort,
        participation=cohort / len(counts),
        times_asked=rounds * cohort / len(counts),
        local_steps=float(np.mean(steps)),
        local_steps_min=min(steps),
        local_steps_max=max(steps),
        coverage=float(seen.sum()),
        rarest_coverage=float(seen[counts.sum(axis=0) > 0].min()),
        stream=type(experiment.stream).name,
        uniform=type(experiment.selection).name == "uniform" and population.schedule is None,
    )


def effective_classes(counts: Ints) -> Floats:
    """exp(−Σ_c p_c ln p_c) of each client, from the samples of each class that it has [clients, classes].

    1 for a client with a single class, and the number of classes for one that has the same of each.
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    # The limit of p ln p at 0 is 0.
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
    return np.asarray(np.exp(entropy))


def overlap(counts: Ints) -> float:
    """Mean over pairs of clients of Σ_c min(p_ic, p_jc), from counts [clients, classes]; 1 for one client.

    In each class, the k-th smallest share (from 0) is the smaller one in N − 1 − k pairs, so it takes a sort
    instead of all pairs.
    """
    clients = len(counts)
    if clients < 2:
        return 1.0
    shares = np.sort(counts / counts.sum(axis=1, keepdims=True), axis=0)
    pairs = np.arange(clients - 1, -1, -1)
    return float((pairs[:, None] * shares).sum() / (clients * (clients - 1) / 2))


def coverage(counts: Ints, cohort: int) -> Floats:
    """The probability of each class to be held by a uniformly drawn cohort, from counts [clients, classes].

    1 − C(N − h, m) / C(N, m), for a class that h of the N clients with samples hold, and m clients a cohort.
    """
    from scipy.special import gammaln  # slow to import, and only needed here

    counts = counts[counts.sum(axis=1) > 0]
    clients, holders = len(counts), np.count_nonzero(counts, axis=0)
    drawn, others = min(cohort, clients), clients - holders
    possible = others >= drawn
    left = np.where(possible, others, drawn)  # where it isn't possible, any valid number will do
    # C(a, m) / C(N, m) = a! (N − m)! / ((a − m)! N!), in logarithms because the factorials are large.
    logs = gammaln(left + 1) + gammaln(clients - drawn + 1) - gammaln(left - drawn + 1) - gammaln(clients + 1)
    return np.asarray(1.0 - np.where(possible, np.exp(logs), 0.0))


def _skew(distance: float) -> str:
    """A sentence about the label skew; the limits are thirds of the range."""
    if distance < 1 / 3:
        return f"Label skew is low ({distance:.2f} of 1)."
    return f"Label skew is {'high' if distance > 2 / 3 else 'middling'} ({distance:.2f} of 1)."
