"""Finding a run of an experiment that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mnemos.common.devices import AUTO
from mnemos.engines.devices import DeviceEngine
from mnemos.errors import ConfigError
from mnemos.experiment.experiment import Experiment
from mnemos.runs.run import Run


def find(experiment: Experiment, folder: Path) -> Run | None:
    """A run of exactly this experiment in the folder, or None; of several, one that has ended.

    What counts of `engine.device` is the device, whatever it is called: a run that `auto` has made on the CPU
    is one of `cpu`, too, and one that it has made on a GPU isn't.
    """
    same = _runs_of(experiment, folder)
    for device, other in _called_otherwise(experiment):
        same += [run for run in _runs_of(other, folder) if run.devices == [device]]
    return next((run for run in same if run.ended), same[0] if same else None)


def _runs_of(experiment: Experiment, folder: Path) -> list[Run]:
    """The runs in a folder whose experiment has the same settings to the letter."""
    paths = sorted(folder.glob(f"*-{experiment.hash()}*"))
    found = [Run(path) for path in paths if (path / "experiment.yaml").is_file()]
    # A branch has its experiment from some round on only.
    return [run for run in found if run.parent is None and run.experiment.same_as(experiment)]


def _called_otherwise(experiment: Experiment) -> Iterator[tuple[tuple[str, ...], Experiment]]:
    """The experiment with other names of its devices, and the names that a run's record has for them."""
    engine = experiment.engine
    if not isinstance(engine, DeviceEngine):
        return
    try:
        devices = tuple(map(str, engine.devices))
    except ConfigError:  # there is no such device here, so it isn't known what else it is called
        return
    kind = devices[0].removesuffix(":0")
    names = (AUTO, devices[0], kind) if len(devices) == 1 else (devices,)
    for name in dict.fromkeys(names):
        if name != engine.device:
            named = engine.model_copy(update={"device": name})
            yield devices, experiment.model_copy(update={"engine": named})
