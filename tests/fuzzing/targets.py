"""All that reads from outside, by name."""

from __future__ import annotations

from fuzzing import configuration, datafiles, federations, messages, rundirs
from fuzzing.attempt import Make

TARGETS: dict[str, Make] = {
    "message: task": messages.task,
    "message: update": messages.update,
    "round": messages.round,
    "federation: train": federations.train,
    "federation: evaluate": federations.evaluate,
    "federation: query": federations.query,
    "federation: description": federations.description,
    "federation: tally": federations.tally,
    "checkpoint": messages.checkpoint,
    "encoder file": messages.encoder,
    "model file": messages.model,
    "experiment": configuration.experiment,
    "study": configuration.study,
    "recipe": configuration.recipe,
    "overrides": configuration.overrides,
    "sinks": configuration.sinks,
    "run: metrics": rundirs.metrics,
    "run: report": rundirs.report,
    "run: timing": rundirs.timing,
    "run: status": rundirs.status,
    "run: engine": rundirs.engine,
    "run: environment": rundirs.environment,
    "run: experiment": rundirs.experiment,
    "run: model": rundirs.trained,
    "study record": rundirs.record,
    "cache": rundirs.cache,
    "data: idx": datafiles.idx,
    "data: idx labels": datafiles.idx_labels,
    "data: idx, gzipped": datafiles.idx_gzip,
    "data: cifar": datafiles.cifar,
    "data: cifar names": datafiles.cifar_names,
    "data: archive": datafiles.archive,
    "data: femnist": datafiles.femnist,
    "data: femnist, converted": datafiles.femnist_converted,
    "data: npz": datafiles.npz,
    "data: images": datafiles.images,
    "data: csv": datafiles.csv,
    "data: parquet": datafiles.parquet,
    "data: arrow": datafiles.arrow,
    "data: saved state": datafiles.saved_state,
}
