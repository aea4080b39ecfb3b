"""Words and their token ids."""

import pytest

from mnemos.data.vocabulary import Vocabulary, build_vocabulary, check_words, words_of
from mnemos.errors import DataError


def test_words():
    assert words_of("It doesn’t work: 2 weeks_on, ÜBER-cool!") == [
        "it", "doesn't", "work", "2", "weeks", "on", "über", "cool",
    ]  # fmt: skip
    assert words_of(" … ") == []


def test_the_most_frequent_words_come_first_and_ties_by_name():
    """b three times, a and c twice, d once: of three words, d is left out."""
    found = build_vocabulary(["b a B", "c a c", "b d"], 3, "here")
    assert found.words == ("b", "a", "c")
    assert found.ids == 5
    with pytest.raises(DataError, match="here: no text has a word"):
        build_vocabulary(["?", ""], 3, "here")


def test_texts_are_cut_padded_and_read_back():
    """b, a, c have the ids 2, 3, 4; 0 is padding, and d is unknown, which is 1."""
    vocabulary = Vocabulary(("b", "a", "c"))
    ids = vocabulary.encode(["A d b", "c c c c c", "!"], 4)
    assert ids.tolist() == [[3, 1, 2, 0], [4, 4, 4, 4], [0, 0, 0, 0]]
    assert [vocabulary.decode(row) for row in ids.tolist()] == ["a ? b", "c c c c", ""]


def test_given_words_are_checked():
    assert check_words(["b", "a"], "w").words == ("b", "a")
    for words, problem in (([], "no words"), (["B"], "found 'B'"), (["a", "a"], "'a' several times")):
        with pytest.raises(DataError, match=f"w.*{problem}"):
            check_words(words, "w")
