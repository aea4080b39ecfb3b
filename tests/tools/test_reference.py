"""What is generated from the registries is up to date."""

import reference
from mnemos.lookup.index import Index, registries


def test_generated_files_are_up_to_date():
    """If this fails: python tools/reference.py."""
    changed = [path.name for path, text in reference.pages(registries()).items() if path.read_text() != text]
    assert changed == [], f"run {reference.COMMAND}"


def test_an_index_is_read_as_it_was_written():
    index = registries()
    assert Index.read(index.write()) == index


def test_every_part_and_option_is_in_the_reference():
    index = registries()
    text = "\n".join(reference.reference(index))
    for part in index.parts:
        assert f"### `{part.name}` ({part.one})" in text
    assert "| `counting` | one of train, all, tasks | `train` |" in text
    assert '| `server` | server step | `{"name": "sgd", "momentum": 0.9}` |' in text
