"""Texts as data sets: from tables, folders and a grammar."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from mnemos.data.messages import TOPICS, messages
from mnemos.data.sources.messages import Messages
from mnemos.data.sources.text import TextSource
from mnemos.errors import DataError

ROWS = [("Good, very good", "yes", "anna"), ("bad", "no", "ben"), ("not good", "no", "anna")] * 4


def table(path):
    """The rows as a file of the kind that its name says."""
    columns = ("text", "label", "who")
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in ROWS))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(columns, map(list, zip(*ROWS, strict=True)), strict=True))), path)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [columns, *((f'"{text}"', label, who) for text, label, who in ROWS)]
        path.write_text("\n".join(mark.join(cells) for cells in lines))
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.parquet"])
def test_every_table_gives_the_same_texts(tmp_path, name):
    """Of 12 rows, 8 'no' and 4 'yes', a quarter is for testing: 3."""
    found = TextSource(path=str(table(tmp_path / name)), owner="who", test=0.25).load()
    assert (found.name, found.classes, found.owners) == ("t", ("no", "yes"), ("anna", "ben"))
    assert (len(found.train), len(found.test), found.mean, found.std) == (9, 3, (), ())
    assert found.train.samples.dtype == torch.int32
    assert found.shape == (3,)
    assert sorted(found.vocabulary.words) == ["bad", "good", "not", "very"]
    read = {
        (found.vocabulary.decode(row), found.classes[label], found.owners[owner])
        for split in (found.train, found.test)
        for row, label, owner in zip(
            split.samples.tolist(), split.labels.tolist(), split.owners.tolist(), strict=True
        )
    }
    assert read == {("good very good", "yes", "anna"), ("bad", "no", "ben"), ("not good", "no", "anna")}


def test_words_of_the_test_part_are_unknown(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\na b,0\nb,1\n")
    (tmp_path / "test.csv").write_text("text,label\nb c,1\n")
    found = TextSource(path=str(tmp_path)).load()
    assert found.vocabulary.words == ("b", "a")
    assert found.test.samples.tolist() == [[2, 1]]


def test_limits_and_given_words(tmp_path):
    """With a list of words every text has `length` places, so that owners who share the list agree."""
    path = table(tmp_path / "t.csv")
    small = TextSource(path=str(path), vocabulary=1, length=2).load()
    assert small.vocabulary.words == ("good",)
    assert small.shape == (2,)
    assert small.shape.ids == 3
    (tmp_path / "words.txt").write_text("bad\n\ngood\n")
    given = TextSource(path=str(path), words=str(tmp_path / "words.txt"), length=5).load()
    assert given.vocabulary.words == ("bad", "good")
    assert given.shape == (5,)


def test_a_folder_of_text_files(tmp_path):
    for part in ("train", "test"):
        for name in ("bad", "good"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            (folder / "1.txt").write_text(f"a {name} text\n")
    found = TextSource(path=str(tmp_path)).load()
    assert found.classes == ("bad", "good")
    assert (len(found.train), len(found.test)) == (2, 2)
    assert [found.vocabulary.decode(row) for row in found.train.samples.tolist()] == [
        "a bad text",
        "a good text",
    ]
    (tmp_path / "train" / "bad" / "1.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataError, match=r"1\.txt is not UTF-8 text"):
        TextSource(path=str(tmp_path)).load()


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "t.xml").write_text("<a/>")
    with pytest.raises(DataError, match=r"t\.xml is no table of texts; expected one of \.csv"):
        TextSource(path=str(tmp_path / "t.xml")).load()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet has no column 'label'; found text"):
        TextSource(path=str(tmp_path / "t.parquet")).load()


def test_messages_are_the_same_every_time_and_in_two_dialects():
    first, again = messages(4, 10), messages(4, 10)
    assert first == again
    assert first != messages(4, 10, seed=1)
    assert {message.owner for message in first} == {"british-00", "british-01", "american-00", "american-01"}
    british = " ".join(message.text for message in messages(8, 100) if message.owner.startswith("british"))
    assert "parcel" in british
    assert "package" not in british
    found = Messages(writers=4, each=50).load()
    assert found.classes == TOPICS
    assert len(found.train) == 160
    assert len(found.owners) == 4
