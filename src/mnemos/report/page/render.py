"""From the page's data to the page."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

_SCRIPTS = ("data", "state", "canvas", "table", "lines", "bars", "strips", "heatmaps", "listings", "page")
"""In the order in which they need each other."""

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render(data: Mapping[str, Any], live: bool = False) -> str:
    """The page, with everything it needs inside; a live one asks for new data by itself."""
    parts = {
        "title": html.escape(str(data["title"])),
        "connect": "'self'" if live else "'none'",
        "live": "true" if live else "false",
        "style": _read("page.css"),
        "script": "\n".join(_read(f"{name}.js") for name in _SCRIPTS),
        # No end tag and no comment can begin inside: a label may hold either.
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return _PLACE.sub(lambda place: parts[place[1]], _read("page.html"))


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")
