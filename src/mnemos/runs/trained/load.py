"""Reading a trained model: from a run, an exported folder, or a safetensors file."""

from __future__ import annotations

from pathlib import Path

from mnemos.data.load import load as load_data
from mnemos.errors import ConfigError, DataError
from mnemos.federation.model_assignment import assign_models
from mnemos.federation.population import partition_samples
from mnemos.runs.run import Run
from mnemos.runs.trained.description import Description, describe, header, parse_description
from mnemos.runs.trained.model import Choice, TrainedModel, load_weights
from mnemos.runs.trust import Trust, opened

WEIGHTS, CONFIG = "model.safetensors", "config.json"
"""The files of an exported model."""


def load(path: Path | str, *, model: Choice = None, trust: Trust = False) -> TrainedModel:
    """A trained model that is ready to use, from an exported folder, a run's folder or a safetensors file.

    `model` chooses one if clients have different models, as in `Run.trained`. A model that is named by import
    path needs its code, which is imported only if you have run it here before, or trust it: `trust=True`, or
    a collection of import paths.
    """
    found = Path(path)
    if (found / "experiment.yaml").is_file():
        return Run(found).trained(model, trust=trust)
    weights, config = (found, None) if found.is_file() else (found / WEIGHTS, found / CONFIG)
    if config is not None and not (weights.is_file() and config.is_file()):
        raise ConfigError(
            f"{path}: there is no model here; expected a folder that 'mnemos export' has written, a run's "
            "folder, or a safetensors file"
        )
    text = header(weights) if config is None else _text(config)
    if text is None:
        raise DataError(
            f"{path}: the file doesn't say what its model takes; expected one that Mnemos has written"
        )
    return _described(text, weights, config or weights, trust).chosen(model, path)


def of_run(run: Run, trust: Trust) -> TrainedModel:
    """The trained model of a run: all of them as one, if clients have different models."""
    weights = run.file(WEIGHTS)
    if not weights.is_file():
        status = run.status.status
        hint = (
            f"; 'mnemos resume {run.path}' continues it"
            if status in {"interrupted", "paused", "failed"}
            else ""
        )
        raise DataError(f"{weights}: the run has no trained model yet (it is {status}{hint})")
    text = header(weights)
    if text is None:
        return load_weights(_of_earlier_version(run, trust), weights)
    return _described(text, weights, weights, trust)


def _described(text: str, weights: Path, where: Path, trust: Trust) -> TrainedModel:
    about = opened(str(where), lambda: parse_description(text, where), trust)
    return load_weights(about, weights)


def _of_earlier_version(run: Run, trust: Trust) -> Description:
    """The description of a model whose file has none, from the experiment and its data."""
    experiment = run.load(trust=trust)
    dataset = load_data(experiment.data)
    models = assign_models(experiment, partition_samples(experiment, dataset).clients)
    return describe(
        dataset,
        models.model,
        experiment.method.head,
        batch_statistics=experiment.method.buffers.in_batches,
        peers=tuple(models.owners),
        experiment=experiment.hash(),
        rounds=run.status.rounds,
        accuracy=run.accuracy,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: can't be read ({getattr(error, 'strerror', None) or 'not text'})") from None
