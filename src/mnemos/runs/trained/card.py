"""The model card of an exported model: what it is, what it reached and forgot, what is known of its data."""

from __future__ import annotations

from collections.abc import Sequence

from mnemos.common.plain import line
from mnemos.experiment.experiment import Experiment
from mnemos.experiment.overrides import dump_yaml
from mnemos.runs.run import Run
from mnemos.runs.store import overall_values
from mnemos.runs.trained.description import Description
from mnemos.version import __version__

_TAGS = {
    "images": "image-classification", "texts": "text-classification", "features": "tabular-classification"
}  # fmt: skip
"""What hubs call a model, by what it takes."""
_LISTED = 30
"""Classes that are named; more are counted."""


def card(run: Run, about: Description, programs: Sequence[str], licence: str = "") -> str:
    """The card in Markdown, with the header that model hubs read.

    `programs` are the files that other programs can run. Without a `licence`, the card says that there is
    none.
    """
    experiment = run.experiment
    sections = [
        _front(about, licence),
        f"# {_name(about)} trained on {line(about.data, 100) or 'own data'} with Mnemos",
        _summary(about, experiment),
        "## Use",
        _use(about, programs),
        "## Results",
        _results(run, about),
        "## Forgetting",
        _forgetting(run),
        "## Privacy",
        _privacy(run, about),
        "## Data",
        _data(about, experiment),
        "## Training",
        _training(about, experiment),
        "## Licence",
        line(licence, 200) or "No licence is given: ask the owner of the model before you use it.",
    ]
    return "\n\n".join(sections) + "\n"


def _front(about: Description, licence: str) -> str:
    """The header: YAML between two lines of dashes."""
    facts = {
        "license": line(licence, 200) or "unknown",
        "library_name": "mnemos",
        "pipeline_tag": _TAGS[about.takes],
        "tags": ["federated-learning", "mnemos"],
        "metrics": ["accuracy"],
    }
    return f"---\n{dump_yaml(facts).strip()}\n---"


def _name(about: Description) -> str:
    return "Ensemble" if about.branches > 1 else f"`{line(type(about.model).name, 100)}`"


def _summary(about: Description, experiment: Experiment) -> str:
    clients = getattr(experiment.partition, "clients", None)
    who = f"{clients} clients" if isinstance(clients, int) else "clients"
    several = f" It is the mean of what {about.branches} models predict." if about.branches > 1 else ""
    return (
        f"A classifier of {len(about.classes)} classes, trained by a federation: {who} trained it on data of "
        f"their own, with the method `{type(experiment.method).name}` and the loss "
        f"`{type(experiment.method.loss).name}`.{several} {_takes(about)}"
    )


def _takes(about: Description) -> str:
    if about.text:
        return (
            f"It takes texts, of which it reads the first {about.shape[0]} words; its vocabulary has "
            f"{len(about.words)} words."
        )
    return f"It takes {'images' if about.image else 'samples'} of shape {list(about.shape)}."


def _use(about: Description, programs: Sequence[str]) -> str:
    example = {"images": "image.png", "texts": "texts.csv", "features": "samples.csv"}[about.takes]
    text = (
        '```python\nimport mnemos\n\nmodel = mnemos.load("this-folder")\n'
        f'print(model.predict("{example}"))\n```\n\n'
        f"On the command line: `mnemos predict this-folder {example}`.\n\n" + _prepared(about)
    )
    if about.span is not None:
        text += (
            f"Arrays have the units of the training data, {about.span[0]:g} to {about.span[1]:g}; pixels of "
            "image files are brought to them. "
        )
    if about.batch_statistics:
        text += "Batch-norm uses each batch's own statistics: predictions depend on the others in a batch. "
    for program in programs:
        stored = "token ids (int32)" if about.text else "stored samples, scales them itself,"
        text += f"`{program}` takes {stored} and returns probabilities. "
    return text.strip()


def _prepared(about: Description) -> str:
    """How samples are prepared for the model."""
    if about.text:
        return (
            "Texts become token ids by the `words` of `config.json`: word i has the id i + 2, padding 0, and "
            "any other word 1; words are runs of letters and digits in lower case. `predict` does it. "
        )
    return (
        f"Samples are scaled by `(x − mean) / std` per {'channel' if about.image else 'feature'}, with the "
        "numbers of `config.json`; `predict` does it. "
    )


def _results(run: Run, about: Description) -> str:
    if about.accuracy is None:
        return "The accuracy of this model alone was not measured."
    tested = overall_values(run.records, "test_accuracy")
    where = "the test set" if tested else "the clients' validation samples"
    last = min(run.experiment.evaluate.test_last, about.rounds) if tested else 1
    over = f", the mean of the last {last} rounds" if last > 1 else ""
    return f"| measure | value |\n|---|---|\n| accuracy on {where}{over} | {100 * about.accuracy:.1f} % |"


def _forgetting(run: Run) -> str:
    values = overall_values(run.records, "forgetting")
    if not values:
        return "How much clients' training forgets of each other's data was not measured."
    rows = [f"| {round} | {100 * value:.1f} |".replace("-", "−") for round, value in values.items()]
    shown = rows if len(rows) <= 8 else [*rows[:4], "| … | … |", *rows[-3:]]
    return (
        "Percentage points of accuracy on the other clients' data that a client's model loses in local "
        "training, before the models are averaged (the mean over clients; negative: gained):\n\n"
        "| round | forgotten |\n|---|---|\n" + "\n".join(shown)
    )


def _privacy(run: Run, about: Description) -> str:
    if not run.file("privacy.json").exists():
        return "There is no guarantee of differential privacy: the weights may reveal training data."
    facts, epsilon = run.read_json("privacy.json"), run.epsilon
    beside = "Words that weren't given" if about.text else "Mean, standard deviation and range"
    spent = "unknown" if epsilon is None else f"{epsilon:.4g}"
    return (
        f"Differential privacy: ε = {spent} at δ = {facts.get('delta')} ({facts.get('relation')}), with "
        f"noise {facts.get('noise'):.4g} added by {facts.get('at')}; {facts.get('sampling')}. The guarantee "
        f"is about the weights. {beside} in `config.json` come from the training samples without noise, and "
        "ε doesn't count them."
    )


def _data(about: Description, experiment: Experiment) -> str:
    names = [f"`{line(name, 60)}`" for name in about.classes[:_LISTED]]
    more = f" and {len(about.classes) - _LISTED} more" if len(about.classes) > _LISTED else ""
    words = f"; the {len(about.words)} words that the model knows are in `config.json`" if about.text else ""
    return (
        f"- data set: `{line(about.data, 100)}` (source `{line(type(experiment.data).name, 100)}`)\n"
        f"- classes: {', '.join(names)}{more}\n"
        f"- distribution over clients: `{line(type(experiment.partition).name, 100)}`\n"
        f"- no samples are in this folder{words}\n"
        "- where the data comes from, who may use it and whom it represents: to be filled in by the owner"
    )


def _training(about: Description, experiment: Experiment) -> str:
    local = experiment.local
    count, what = (local.steps, "step") if local.steps else (local.epochs, "epoch")
    length = f"{count} {what}{'s' if count != 1 else ''}"
    return (
        f"- {about.rounds} rounds, {100 * experiment.participation:g} % of the clients in each\n"
        f"- a client's round: {length} of batches of {local.batch}, optimiser "
        f"`{type(local.optimizer).name}`, rate {local.lr:g}\n"
        f"- seed {experiment.seed}, experiment `{about.experiment}`\n"
        f"- trained with Mnemos {about.mnemos}, exported with {__version__}"
    )
