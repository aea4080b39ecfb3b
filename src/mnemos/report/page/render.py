"""Making the HTML page from its data."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

_SCRIPTS = ("data", "state", "canvas", "table", "lines", "bars", "strips", "heatmaps", "listings", "page")
"""The scripts of the page, in the order in which they depend on each other."""

_FIELD = re.compile(r"\{\{(\w+)\}\}")


def render(data: Mapping[str, Any], live: bool = False) -> str:
    """The page as one HTML file with everything that it needs; a live page asks for new data by itself."""
    parts = {
        "title": html.escape(str(data["title"])),
        "connect": "'self'" if live else "'none'",
        "live": "true" if live else "false",
        "style": _read("page.css"),
        "script": "\n".join(_read(f"{name}.js") for name in _SCRIPTS),
        # `<` is escaped, so that a label with `</script>` or `<!--` can't end the script.
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return _FIELD.sub(lambda field: parts[field[1]], _read("page.html"))


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")
