"""Versions of Mnemos, Python, PyTorch and the libraries that Mnemos can't do without."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from mnemos.cli.doctor.finding import Problem, Section
from mnemos.common.extras import install_line
from mnemos.version import __version__

REQUIRED = (
    "matplotlib",
    "numpy",
    "pandas",
    "pillow",
    "platformdirs",
    "pydantic",
    "PyYAML",
    "rich",
    "safetensors",
    "scikit-learn",
    "scipy",
    "torch",
    "typer",
)
"""The packages that pyproject.toml names as dependencies."""


def installed(package: str) -> str | None:
    """The version of a package; None if it isn't installed. It isn't imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def import_torch() -> tuple[ModuleType | None, str]:
    """(PyTorch, nothing), or (None, why it can't be imported)."""
    try:
        import torch  # here, because it may be missing
    except (ImportError, OSError, RuntimeError) as error:  # a library of it is missing, or isn't for this CPU
        return None, f"{type(error).__name__}: {error}".splitlines()[0]
    return torch, ""


def build_of(torch: ModuleType) -> str:
    """What PyTorch was built for: `CUDA 12.8`, `ROCm 6.4`, `XPU`, `CPU and MPS` or `CPU`."""
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    if getattr(torch.version, "xpu", None):
        return f"XPU {torch.version.xpu}"
    return "CPU and MPS" if torch.backends.mps.is_built() else "CPU"


def examine_versions(torch: ModuleType | None, why: str) -> Section:
    """The versions; `why` PyTorch can't be imported, if it can't."""
    section = Section("versions")
    section.facts = {"mnemos": __version__, "python": platform.python_version()}
    section.lines = [
        ("mnemos", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]
    absent = [package for package in REQUIRED if installed(package) is None]
    if torch is None:
        section.lines.append(("torch", "can't be imported"))
        section.facts |= {"torch": None, "build": None}
        section.problems.append(Problem(f"PyTorch can't be imported ({why})", install_line(), broken=True))
        absent = [package for package in absent if package != "torch"]
    else:
        section.lines.append(("torch", f"{torch.__version__}, built for {build_of(torch)}"))
        section.facts |= {"torch": str(torch.__version__), "build": build_of(torch)}
    if absent:
        names = ", ".join(absent)
        section.problems.append(Problem(f"packages are missing: {names}", install_line(), broken=True))
    return section
