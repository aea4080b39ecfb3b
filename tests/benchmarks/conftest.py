"""Benchmarks aren't part of the package; tests import them as they import each other."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
