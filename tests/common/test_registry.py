"""Looking up a part imports the module that registers it, and not all modules of its kind."""

import sys

import pytest

from mnemos.common.registry import Part, Registry, _registering
from mnemos.data.dataset import sources
from mnemos.errors import ConfigError
from mnemos.methods.method import methods
from mnemos.methods.part import rules, terms
from mnemos.models.model import models


class Kind(Part):
    """A kind of parts of one's own."""


MODULE = "from test_registry import Kind, kinds\n"
DECORATED = MODULE + "@kinds.register({quoted})\nclass Found(Kind):\n    pass\n"
kinds = None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of parts: two that are registered as usual, one of them deeper, and one in a loop."""
    folder = tmp_path / "kinds_of_parts"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "deep" / "__init__.py").touch()
    (folder / "first.py").write_text(DECORATED.format(quoted='"first"'))
    (folder / "deep" / "second.py").write_text(DECORATED.format(quoted='\n    "second"\n'))
    loop = "for name in ['third']:\n    kinds.register(name)(type('Third', (Kind,), {'__module__': name}))\n"
    (folder / "third.py").write_text(MODULE + loop)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_registry", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "kinds", Registry("kind", Kind, "kinds_of_parts"))
    yield kinds_imported
    _registering.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "kinds_of_parts"]:
        del sys.modules[name]


def kinds_imported():
    """The modules of the package that are imported."""
    names = (name.removeprefix("kinds_of_parts.") for name in sys.modules if "kinds_of_parts." in name)
    return sorted(set(names) - {"deep"})


def test_only_the_module_of_a_name_is_imported(package):
    assert kinds["second"].name == "second"
    assert package() == ["deep.second"]
    assert kinds["first"].__module__ == "kinds_of_parts.first"
    assert package() == ["deep.second", "first"]


def test_a_name_that_no_text_has_is_found_all_the_same(package):
    assert kinds["third"].name == "third"
    assert package() == ["deep.second", "first", "third"]


def test_an_error_and_a_list_name_all_parts(package):
    with pytest.raises(ConfigError, match=r"there is no kind 'fourth'.*first, second, third"):
        kinds["fourth"]
    assert [part.name for part in kinds] == ["first", "second", "third"]


def test_a_name_of_another_is_refused_when_it_is_looked_up(package):
    kinds.register("first")(type("Other", (Kind,), {}))
    with pytest.raises(ValueError, match="kind 'first' is already registered"):
        kinds["first"]


@pytest.mark.parametrize("registry", [methods, models, rules, sources, terms])
def test_the_text_of_a_part_of_mnemos_names_it(registry):
    known = _registering(registry.package)
    for part in registry:
        if part.__module__.startswith(registry.package):
            assert part.__module__ in known[part.name]
