"""Reviews as sequences of word numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...core.errors import check_integer
from ...core.random import make_generator
from .dataset import Pair, Raw
from .files import find_file, reading

PADDING, UNKNOWN = 0, 1
"""Numbers that stand for no word."""
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_ORDER_SEED = 113


@dataclass(frozen=True)
class Imdb:
    """The last words of each review, numbered by frequency (Maas et al. 2011).

    0 is padding, 1 a word outside the vocabulary, 2 the most frequent word of the training texts. Reviews are cut and
    padded at the front, as in the LSTM example of Keras. We differ in the words: lower-case letters and digits with
    inner apostrophes, and no start sign. The order is a fixed shuffle.

    The files imdb/imdb_train.csv.gz and imdb/imdb_test.csv.gz have columns label (1 is positive) and text.

    Args:
        vocabulary: number of different tokens.
        length: number of words of a review.
    """

    vocabulary: int = 20_000
    length: int = 80

    name: ClassVar[str] = "imdb"
    summary: ClassVar[str] = "25,000 + 25,000 reviews, 2 classes"

    def __post_init__(self) -> None:
        check_integer(self.name, "vocabulary", self.vocabulary, 3)
        check_integer(self.name, "length", self.length)

    def read(self, folder: str | None) -> Raw:
        (words, labels), (test_words, test_labels) = (_read_reviews(part, folder) for part in ("train", "test"))
        numbers = number_words(words, self.vocabulary)
        pairs = self._pair(words, labels, numbers), self._pair(test_words, test_labels, numbers)
        return Raw(self.name, *pairs, ("negative", "positive"), self.vocabulary)

    def _pair(self, words: list[list[str]], labels: list[int], numbers: dict[str, int]) -> Pair:
        inputs = torch.tensor([encode(text, numbers, self.length) for text in words])
        order = torch.randperm(len(labels), generator=make_generator(_ORDER_SEED))
        return inputs[order], torch.tensor(labels)[order]


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without marks of line breaks."""
    return _WORD.findall(text.replace("<br />", " ").lower())


def number_words(texts: Iterable[Iterable[str]], vocabulary: int) -> dict[str, int]:
    """Number the most frequent words from 2; ties are in alphabetic order."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: vocabulary - 2], start=UNKNOWN + 1)}


def encode(words: Sequence[str], numbers: dict[str, int], length: int) -> list[int]:
    """Return the numbers of the last ``length`` words, padded in front."""
    found = [numbers.get(word, UNKNOWN) for word in words[-length:]]
    return [PADDING] * (length - len(found)) + found


def _read_reviews(part: str, folder: str | None) -> tuple[list[list[str]], list[int]]:
    import pandas

    place = find_file(f"imdb/imdb_{part}.csv.gz", folder)
    with reading(place, "a csv file with the columns label and text"):
        table = pandas.read_csv(place, usecols=["label", "text"])
        return [split_words(text) for text in table["text"].astype(str)], table["label"].astype(int).tolist()
