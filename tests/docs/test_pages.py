"""The code of tutorials and of the notebook runs, and gives what they show."""

from pathlib import Path

import pytest
from page import blocks, images, same

from support.processes import Ended, script

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
PAGES = [DOCS / "start.md", *sorted((DOCS / "tutorials").glob("[!R]*.md"))]


def carry_out(name: str, page: Path, folder: Path) -> Ended:
    """In a process of its own, in an empty folder, without warnings."""
    return script(HERE / name, page, cwd=folder, NO_COLOR="1", PYTEST_ADDOPTS="")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page, tmp_path):
    done = carry_out("page.py", page, tmp_path)
    assert done.code == 0, done.err
    assert "Warning" not in done.err


def test_the_notebook_does_what_it_says(tmp_path):
    done = carry_out("notebook.py", DOCS / "quickstart.ipynb", tmp_path)
    assert done.code == 0, done.err


def test_stored_figures_are_light():
    shown = {page.parent / image for page in PAGES for image in images(page.read_text())}
    assert len(shown) >= 5
    assert {figure.name: size for figure in shown if (size := figure.stat().st_size) > 150_000} == {}


def test_what_a_page_is_made_of(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        """
```python title="two.py"
def two():
    print("found")
    return 2
```

```python
from two import two
print(two() / 3)
```

```text
found
0.67
```

<!-- not run: it fails -->
```sh
false
```

<!-- tested with several → many -->
```sh
echo several \\
    words   # and a comment
```

```text
many …
```
"""
    )
    found = [(block.language, block.skipped) for block in blocks(page.read_text())]
    assert found == [
        ("python", False),
        ("python", False),
        ("text", False),
        ("sh", True),
        ("sh", False),
        ("text", False),
    ]
    assert carry_out("page.py", page, tmp_path).code == 0
    page.write_text(page.read_text().replace("0.67", "0.55"))
    done = carry_out("page.py", page, tmp_path)
    assert done.code == 1
    assert "page.md, line 13: the page shows" in done.err
    page.write_text("\n```sh\nfalse\n```\n")
    assert "false: exit code 1" in carry_out("page.py", page, tmp_path).err
    page.write_text("![A figure](../images/nothing.png)\n")
    assert "its code doesn't draw nothing.png" in carry_out("page.py", page, tmp_path).err


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("40 clients, 0.75", "40 clients,  0.77\n", True),
        ("40 clients, 0.75", "41 clients, 0.75", False),
        ("0.75", "0.70", False),
        ("91.5 %", "93.0 %", True),
        ("91.5 %", "95.0 %", False),
        ("a 1.0", "a 1.0 2.0", False),
        ("files: … end", "files: runs/x end", True),
        ("files: … end", "files: runs/x", False),
        ("a … b 0.75", "a 12.3 words b 0.76", True),
        ("a … b 0.75", "a 12.3 words b 0.86", False),
    ],
)
def test_same(shown, printed, alike):
    assert same(shown, printed) is alike
