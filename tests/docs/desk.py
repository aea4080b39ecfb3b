"""The folder that guides take for granted: `python desk.py FOLDER` fills it with what their commands name."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import mnemos
from support.interrupt import Stop
from support.owners import folders, images

ROOT = Path(__file__).parents[2]
EXPERIMENT = {
    "data": "digits",
    "partition": {"clients": 8},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"steps": 1},
    "participation": 0.5,
    "rounds": 2,
}
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, shape, classes, hidden):
        super().__init__(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, classes))
"""


def lay_out(desk: Path) -> None:
    """Experiments, data in every format, a model of one's own, a whole run and one that was interrupted."""
    (desk / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    (desk / "sweep.yaml").write_text(
        yaml.safe_dump({"base": EXPERIMENT, "grid": {"local.lr": [0.1]}, "seeds": [0]})
    )
    (desk / "mine.py").write_text(NET)
    (desk / "recipes").symlink_to(ROOT / "recipes")
    _write_data(desk)
    _make_runs(desk)


def _write_data(desk: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(200, 8, 8)).astype(np.uint8), np.arange(200) % 4
    mnemos.write_npz(desk / "scans.npz", (x, y), owners=np.arange(200) // 50)
    pq.write_table(pa.table({"features": x.reshape(200, -1).tolist(), "y": y}), desk / "rows.parquet")
    rows = "".join(f"{i % 7},{i % 5},{i % 2},site {i // 50}\n" for i in range(200))
    (desk / "patients.csv").write_text(f"age,dose,outcome,hospital\n{rows}")
    reviews = "".join(
        f"number {i % 5},it is {'good' if i % 2 else 'bad'},{i % 2},{i % 2}\n" for i in range(80)
    )
    (desk / "reviews.csv").write_text(f"title,text,label,stars\n{reviews}")
    paths = folders(desk)
    for path, name in zip(paths, ("north", "south", "west"), strict=True):
        path.rename(desk / f"{name}.npz")
    images(desk / "west.npz")
    shutil.copytree(desk / "west", desk / "photos")
    shutil.copy(min((desk / "west").rglob("*.png")), desk / "scan.png")
    np.save(desk / "more.npy", x // 16)


def _make_runs(desk: Path) -> None:
    tasks = {"stream": {"name": "tasks", "tasks": 2}, "measures": ["continual"]}
    often = {"rounds": 20, "evaluate": {"forgetting": [1, 20], "test_every": 5}}
    whole = mnemos.run({**EXPERIMENT, **tasks, **often}, out=desk / "made")
    stop = Stop(1)
    with suppress(KeyboardInterrupt):
        mnemos.run(EXPERIMENT, out=desk / "made", observer=stop)
    for path, name in ((whole.path, "runs/whole"), (stop.run.path, "runs/NAME")):
        shutil.copytree(path, desk / name)
    for name in ("runs/sweep", "runs/demo", "downloaded"):
        shutil.copytree(stop.run.path, desk / name / "NAME")
    shutil.rmtree(desk / "made")


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
