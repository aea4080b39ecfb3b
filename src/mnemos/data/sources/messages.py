"""Texts that are at hand without a download: messages by a grammar, in two dialects."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from mnemos.data.dataset import Dataset, Source, sources
from mnemos.data.messages import TOPICS, messages
from mnemos.data.sources._texts import Texts, Tokens, text_dataset


@sources.register("messages")
class Messages(Source):
    """Short messages to a shop's service desk, of 8 topics, by writers of British and American English.

    The writers are the natural owners. The texts are written by a small grammar (`mnemos.data.messages`): the
    same options always give the same texts.
    """

    writers: int = Field(24, ge=2, le=10_000, description="owners, half of them of each dialect")
    each: int = Field(125, ge=2, le=100_000, description="messages per writer")
    alpha: float = Field(0.5, gt=0, description="concentration of a writer's topics: the less, the fewer")
    vocabulary: int = Field(5000, ge=1, description="the most words")
    length: int = Field(32, ge=1, description="the most words of a message")
    test: float = Field(0.2, gt=0, lt=1, description="share of each topic that is for testing")

    @property
    def texts(self) -> bool:
        """Always."""
        return True

    def load(self) -> Dataset:
        """The messages, as token ids."""
        written = messages(self.writers, self.each, self.alpha)
        texts, labels, owners = zip(*written, strict=True)
        table = Texts(texts, np.array(labels), np.array(owners))
        tokens = Tokens(self.vocabulary, self.length)
        return text_dataset(
            "messages", (table, None), tokens, where="messages", share=self.test, classes=TOPICS
        )
