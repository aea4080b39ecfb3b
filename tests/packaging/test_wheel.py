"""The packages that are built of Mnemos: installed without the repository, they work."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from support.papers_data import write_papers_data

ROOT = Path(__file__).parents[2]
LONG = 240
"""Seconds after which a command is taken to hang."""


def called(*words: object, cwd: Path, **variables: str) -> str:
    """What a command prints; it must end well."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MNEMOS"))}
    ended = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        env=keep | {"NO_COLOR": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


REST = """
import sys
import mnemos
from mnemos.cli import main
from mnemos.common.extras import install_line

print(mnemos.__file__)
print(install_line("ray"))
for words in (
    "report runs --out page.html", "reproduce wsm/figure-7 --scale 0.0005 --seeds 0 --jobs 1"
):
    sys.argv = ["mnemos", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""
"""What is tried in one process, as each takes seconds to import PyTorch."""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with the wheel, which is built from the sdist, and with the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def home(built, tmp_path_factory) -> Path:
    """An environment that has the wheel, and the libraries of this one but not its Mnemos."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home / "env")
    (site,) = home.glob("env/lib/python*/site-packages")
    # A path file isn't followed into other path files, so the editable Mnemos of this environment stays out.
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (site / "libraries.pth").write_text("\n".join(libraries))
    (wheel,) = built.glob("*.whl")
    target = ["--python", home / "env/bin/python"]
    called(sys.executable, "-m", "pip", *target, "install", "--no-deps", "--no-index", wheel, cwd=home)
    return home


def test_what_is_packed(built):
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    assert wheel.name.startswith("mnemos_fl-")
    assert sdist.name.startswith("mnemos_fl-")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        facts = Parser().parsestr(files.read(metadata).decode())
    assert facts["Name"] == "mnemos-fl"
    assert {"mnemos/py.typed", "mnemos/recipes/quickstart.yaml"} <= set(names)
    assert [name for name in names if name.split("/")[0] not in ("mnemos", metadata.split("/")[0])] == []
    with tarfile.open(sdist) as files:
        packed = {name.split("/", 1)[1] for name in files.getnames()}
    assert {"LICENSE", "README.md", "recipes/quickstart.yaml", "examples/own_data.py"} <= packed
    assert not any(name.startswith(("tests/", "docs/", ".")) and name != ".gitignore" for name in packed)


def test_the_wheel_works_without_the_repository(home):
    """`run`, `report` and `reproduce` of a packaged recipe, in an empty folder."""
    python, mnemos = home / "env/bin/python", home / "env/bin/mnemos"
    called(mnemos, "run", "--quiet", "--data", "digits", "--rounds", 1, "engine=serial", cwd=home)
    data = write_papers_data(home / "data")
    where, hint, *shown = called(python, "-c", REST, cwd=home, MNEMOS_DATA=str(data)).splitlines()
    assert where.startswith(str(home / "env"))
    assert hint == "pip install 'mnemos-fl[ray]'"
    assert "</html>" in (home / "page.html").read_text()[-200:]
    assert "FedAvg + WSM" in "\n".join(shown)
