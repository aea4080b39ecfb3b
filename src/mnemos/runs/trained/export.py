"""A trained model as a folder for a model hub: weights, description, model card, and programs for others."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor, nn

from mnemos.common.extras import require
from mnemos.common.files import write_atomically
from mnemos.common.shapes import blank
from mnemos.errors import ConfigError, allowed
from mnemos.runs.run import Run
from mnemos.runs.trained.card import card
from mnemos.runs.trained.description import HEADER, Description
from mnemos.runs.trained.load import CONFIG, WEIGHTS
from mnemos.runs.trained.model import TrainedModel

Format = Literal["torch", "onnx"]
"""A program of `torch.export` (model.pt2), or one in the ONNX format (model.onnx)."""

FILES: dict[Format, str] = {"torch": "model.pt2", "onnx": "model.onnx"}
CARD = "README.md"


def export(
    run: Run, folder: Path, trained: TrainedModel, formats: Collection[Format] = (), licence: str = ""
) -> Path:
    """Write a run's trained model, or one of several, as a folder that `load` reads; returns the folder."""
    unknown = set(formats) - set(get_args(Format))
    if unknown:
        raise ConfigError(f"found {min(unknown)}; {allowed(get_args(Format))}", "formats")
    if folder.exists() and not (folder.is_dir() and _ours(folder)):
        raise ConfigError(f"{folder}: it is there already; name a new or empty folder, or an earlier export")
    programs = {FILES[name]: _program(trained, name) for name in formats}  # they can fail: nothing is written
    about = trained.about
    text = about.model_dump_json(indent=1)
    state = {name: tensor.contiguous() for name, tensor in trained.body.state_dict().items()}
    contents = {
        WEIGHTS: save(_unshared(state), {"format": "pt", HEADER: about.model_dump_json()}),
        CONFIG: f"{text}\n".encode(),
        CARD: card(run, about, [*programs], licence).encode(),
        **programs,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES.values():
            (folder / name).unlink(missing_ok=True)  # of an earlier model
        for name, content in contents.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise ConfigError(f"{folder}: the model can't be written ({error.strerror})") from None
    return folder


def _ours(folder: Path) -> bool:
    """Whether a folder is empty, or an earlier export."""
    found = {path.name for path in folder.iterdir()}
    return not found or ({WEIGHTS, CONFIG} <= found and "experiment.yaml" not in found)


def _unshared(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, each with memory of its own: safetensors refuses tied weights."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


class _Whole(nn.Module):
    """From samples as they are stored to the classes' probabilities: the scale is part of the program."""

    mean: Tensor
    std: Tensor

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        about, sizes = trained.about, (-1,) + (1,) * (len(trained.about.shape) - 1)
        self.module, self.scaled = trained.module, not about.text
        self.register_buffer("mean", torch.tensor(about.mean).view(sizes))
        self.register_buffer("std", torch.tensor(about.std).view(sizes))

    def forward(self, samples: Tensor) -> Tensor:
        x = (samples - self.mean) / self.std if self.scaled else samples
        probabilities: Tensor = self.module(x).softmax(1)
        return probabilities


def _program(trained: TrainedModel, name: Format) -> bytes:
    if name == "onnx":
        for module in ("onnx", "onnxscript"):
            require(module, module, "onnx")
    whole, example = _Whole(trained).eval(), blank(trained.about.sample_shape)
    samples = ({0: torch.export.Dim("samples")},)
    try:
        with _silent():
            program = torch.export.export(whole, (example,), dynamic_shapes=samples)
            return _onnx(program) if name == "onnx" else _saved(program)
    except Exception as error:  # whatever the tracer can't follow in a user's own module
        reason = (str(error) or type(error).__name__).splitlines()[0]
        what = "torch.export" if name == "torch" else "ONNX"
        raise ConfigError(
            f"the model {_called(trained.about)} can't be written for {what}: {reason}"
        ) from None


def _saved(program: torch.export.ExportedProgram) -> bytes:
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(program: torch.export.ExportedProgram) -> bytes:
    written = torch.onnx.export(
        program, (), input_names=["samples"], output_names=["probabilities"], dynamo=True, verbose=False
    )
    assert written is not None
    content: bytes = written.model_proto.SerializeToString()
    return content


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hide what PyTorch's exporters print, warn and log about versions and their own inside."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _called(about: Description) -> str:
    return f"'{type(about.model).name}'"
