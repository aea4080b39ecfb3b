"""Words and their token ids: how a text becomes a row of numbers."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mnemos.errors import DataError

PADDING, UNKNOWN = 0, 1
"""The ids of places after a text's end, and of words that the vocabulary doesn't have."""
_FIRST = 2
"""The id of the first word."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: runs of letters and digits, with apostrophes inside; no punctuation.

    >>> words_of("It doesn't work, 2 weeks on!")
    ['it', "doesn't", 'work', '2', 'weeks', 'on']
    """
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows. Word i has the id i + 2; 0 is padding, and 1 any other word."""

    words: tuple[str, ...]

    @property
    def ids(self) -> int:
        """How many ids there are."""
        return len(self.words) + _FIRST

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that are equal for equal vocabularies."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]

    @cached_property
    def _id(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words, _FIRST)}

    def encode(self, texts: Sequence[str], length: int) -> Tensor:
        """Token ids [N, length], int32: the first `length` words of each text, then padding."""
        rows = torch.full((len(texts), length), PADDING, dtype=torch.int32)
        for row, text in enumerate(texts):
            ids = [self._id.get(word, UNKNOWN) for word in words_of(text)[:length]]
            rows[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        return rows

    def decode(self, ids: Iterable[int]) -> str:
        """The words of token ids, with `?` for unknown words and nothing for padding."""
        named = (self.words[token - _FIRST] if token >= _FIRST else "?" for token in ids if token != PADDING)
        return " ".join(named)


def build_vocabulary(texts: Iterable[str], most: int, where: str) -> Vocabulary:
    """The `most` frequent words of some texts, the most frequent first; of equally many, in their order.

    `where` is the file that an error names.
    """
    counts = Counter(word for text in texts for word in words_of(text))
    if not counts:
        raise DataError(f"{where}: no text has a word, so there is no vocabulary")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return Vocabulary(tuple(ranked[:most]))


def check_words(words: Sequence[str], where: str) -> Vocabulary:
    """The vocabulary of given words, each of which must be one word in lower case, and there once."""
    if not words:
        raise DataError(f"{where} has no words, and a vocabulary needs one at least")
    for word in words:
        if words_of(word) != [word]:
            raise DataError(f"{where}: found {word[:40]!r}, and single words in lower case are expected")
    if len(set(words)) != len(words):
        twice = Counter(words).most_common(1)[0][0]
        raise DataError(f"{where} has the word '{twice}' several times")
    return Vocabulary(tuple(words))
