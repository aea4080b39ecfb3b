"""What the documentation site needs beside Markdown pages: hooks of mkdocs.

Documents link to source files, recipes and tests by relative paths, so that the links work where the
repository is read. On the site each such file becomes a page of its own. A notebook becomes a Markdown page
with the outputs that are stored in it.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_SUFFIXES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks, and the files of the repository that pages link to."""
    root = _root(config)
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        for name, content in _notebook(root / "docs" / file.src_uri):
            files.append(File.generated(config, name, content=content))
    waiting = [file for file in files if file.is_documentation_page()]
    while waiting:
        file = waiting.pop()
        for target in _links(file.content_string, _origin(file.src_uri, root), root):
            name = _name(target)
            if not target.startswith("docs/") and name not in files.src_uris:
                page = File.generated(config, name, content=_content(root / target, target))
                files.append(page)
                waiting.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages."""
    here = page.file.src_uri
    origin = _origin(here, _root(config))

    def between_pages(target: str) -> str:
        name = _name(target)
        return os.path.relpath(name, PurePosixPath(here).parent) if name in files.src_uris else target

    return _relinked(markdown, origin, _root(config), between_pages)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.docs_dir).parent


def _origin(name: str, root: Path) -> str:
    """The file of the repository that a page is made of."""
    return f"docs/{name}" if (root / "docs" / name).exists() or not (root / name).exists() else name


def _name(target: str) -> str:
    """The page that is made of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/").replace(".ipynb", ".md")
    # A file whose name starts with a dot would be left out of the site.
    return target if target.endswith(".md") else f"files/{target.lstrip('.')}.md"


def _links(markdown: str, origin: str, root: Path) -> list[str]:
    """The files of the repository that a document links to."""
    found: list[str] = []
    _relinked(markdown, origin, root, lambda target: found.append(target) or target)  # type: ignore[func-returns-value]
    return found


def _relinked(markdown: str, origin: str, root: Path, other: Callable[[str], str]) -> str:
    """A document with other links in place of those to files of the repository."""

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(origin).parent / match[1])
        return other(target) if (root / target).is_file() else match[1]

    return _LINK.sub(link, markdown)


def _content(path: Path, title: str) -> str:
    """A file as a page: Markdown as it is, anything else as code."""
    text = path.read_text()
    if path.suffix == ".md":
        return text
    head = f'---\ntitle: "{path.name}"\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# `{title}`\n\n'
    return f"{head}~~~~~~ {{.{_SUFFIXES.get(path.suffix, 'text')}}}\n{text.rstrip()}\n~~~~~~\n"


def _notebook(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """The page of a notebook and its figures, by name."""
    page: list[str] = []
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        page.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data: dict[str, Any] = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                figure = f"{path.stem}-{number}.png"
                page.append(f"![]({figure})")
                yield figure, base64.b64decode(data["image/png"])
            else:
                page.append("```text\n" + "".join(data["text/plain"]).rstrip() + "\n```")
    yield f"{path.stem}.md", "\n\n".join(page) + "\n"
