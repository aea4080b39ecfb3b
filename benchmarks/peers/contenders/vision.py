"""Lets torchvision be imported where its compiled operators were built for another PyTorch.

Some peers import it for data sets and models that no work here uses. Import this module before such a peer.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

spec = importlib.util.find_spec("torchvision")
if spec is not None and spec.origin is not None:
    try:
        torch.ops.load_library(  # type: ignore[no-untyped-call]
            str(Path(spec.origin).with_name("_C.so"))
        )
    except OSError:
        # torchvision describes these operators when it is imported, so they have to be known.
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
