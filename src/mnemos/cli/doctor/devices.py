"""Devices: their names, their free memory, and whether they can add up two numbers."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from mnemos.cli.doctor.finding import Problem, Section, size
from mnemos.cli.doctor.versions import build_of

NVIDIA, AMD = Path("/proc/driver/nvidia/version"), Path("/dev/kfd")
"""What the system has if there is a card of that maker, with its driver."""
_GUIDE = "docs/guides/install.md says how to install PyTorch for it"


def examine_devices(torch: ModuleType | None) -> Section:
    """The devices that there are; none without PyTorch."""
    section = Section("devices", facts={"devices": []})
    if torch is None:
        return section
    from mnemos.common.devices import device_names  # which imports PyTorch

    for name in device_names():
        fact = _device(torch, name, section.problems)
        section.facts["devices"].append(fact)
        known = "" if fact["called"] == name else fact["called"]
        free = "" if fact["free"] is None else f"{size(fact['free'])} free"
        section.lines.append((name, ", ".join(filter(None, [known, free])) or "ready"))
    _find_unused(torch, section)
    return section


def _device(torch: ModuleType, name: str, problems: list[Problem]) -> dict[str, Any]:
    """What there is to know of a device, which is tried out; adds to the problems."""
    from mnemos.common.devices import describe, free_memory

    device = torch.device(name)
    fact: dict[str, Any] = {"device": name, "called": name, "free": None, "works": True}
    try:
        fact["called"], fact["free"] = describe(device), free_memory(device)
        fact["works"] = float(torch.ones(2, device=device).sum()) == 2.0
        why = "1 + 1 isn't 2 there"
    except (RuntimeError, AssertionError) as error:  # PyTorch's own, as those of CUDA
        fact["works"], why = False, str(error).splitlines()[0]
    if not fact["works"]:
        do = "install a PyTorch that fits the device and its driver, or train with --device cpu"
        problems.append(Problem(f"{name} doesn't work ({why})", do, broken=True))
    return fact


def _find_unused(torch: ModuleType, section: Section) -> None:
    """Add a problem for a card that PyTorch doesn't see."""
    if len(section.lines) > 1:
        return
    build = build_of(torch)
    for maker, there, kind in (
        ("NVIDIA", NVIDIA.exists() or shutil.which("nvidia-smi") is not None, "CUDA"),
        ("AMD", AMD.exists(), "ROCm"),
    ):
        if there and not build.startswith(kind):
            what = f"there is a {maker} card or driver, but this PyTorch is built for {build}"
            section.problems.append(Problem(what, _GUIDE))
        elif there:
            what = f"PyTorch is built for {build}, but finds no device"
            section.problems.append(Problem(what, "check the card's driver, and CUDA_VISIBLE_DEVICES"))
