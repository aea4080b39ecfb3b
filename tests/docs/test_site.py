"""The hooks of the documentation site, on a project of two pages and a notebook."""

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
PIXEL = base64.b64encode(b"not really a figure").decode()


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path):
    """A project with the settings of this one, but for what is in it."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings["plugins"] = ["search"]
    settings["nav"] = [{"Home": "index.md"}, {"Notebook": "book.md"}, {"More": "MORE.md"}]
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "site.py", tmp_path / "tools")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "site.css").touch()
    (docs / "index.md").write_text("# Home\n[code](../src/a.py) [book](book.ipynb) [more](../MORE.md#part)\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("answer = 42\n")
    (tmp_path / "MORE.md").write_text("# More\n[home](docs/index.md) [code](src/a.py)\n\n## Part\n")
    figure = {"output_type": "display_data", "data": {"image/png": PIXEL}}
    printed = {"output_type": "stream", "text": ["forty-two\n"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Book\n", "[home](index.md)"]},
        {"cell_type": "code", "source": ["print(answer)"], "outputs": [printed, figure]},
    ]
    (docs / "book.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def test_files_and_notebooks_become_pages(project):
    """… and nothing is fetched from elsewhere."""
    done = build(project)
    assert done.returncode == 0, done.stderr
    site = project / "site"
    home = (site / "index.html").read_text()
    for link in ("files/src/a.py.html", "book.html", "MORE.html#part"):
        assert f'href="{link}"' in home
    assert "answer" in (site / "files/src/a.py.html").read_text()
    more = (site / "MORE.html").read_text()
    assert 'href="index.html"' in more
    assert 'href="files/src/a.py.html"' in more
    book = (site / "book.html").read_text()
    assert "forty-two" in book
    assert 'src="book-1.png"' in book
    assert (site / "book-1.png").read_bytes() == b"not really a figure"
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text()) == [], page.name


def test_a_broken_link_ends_the_build(project):
    links = ("../src/b.py", "other.md", "../MORE.md#nothing")
    with (project / "docs" / "index.md").open("a") as page:
        page.writelines(f"\n[broken]({link})\n" for link in links)
    done = build(project)
    assert done.returncode == 1
    for link in links:
        assert link.removeprefix("../") in done.stderr
