"""Reviews as sequences of word numbers."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from ...core.errors import FileError, check_integer
from ...core.random import make_generator
from .dataset import Pair, Raw
from .files import DataFile, find_file, obtain, read_members

PADDING, UNKNOWN = 0, 1
"""Numbers that stand for no word."""
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_TRAIN, _TEST = DataFile("imdb/imdb_train.csv.gz"), DataFile("imdb/imdb_test.csv.gz")
_ARCHIVE = DataFile(
    "imdb/aclImdb_v1.tar.gz",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)
_MEMBER = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_\d+\.txt")
_ORDER_SEED = 113
Reviews = tuple[list[str], list[int]]
"""Texts, and their classes: 1 is positive."""


@dataclass(frozen=True)
class Imdb:
    """The last words of each review, numbered by frequency (Maas et al. 2011).

    0 is padding, 1 a word outside the vocabulary, 2 the most frequent word of the training texts. Reviews are cut and
    padded at the front, as in the LSTM example of Keras. We differ in the words: lower-case letters and digits with
    inner apostrophes, and no start sign. The order is a fixed shuffle.

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
        if all(find_file(file.path, folder) for file in (_TRAIN, _TEST)):
            train, test = (_read_table(obtain(self.name, file, folder), file.path) for file in (_TRAIN, _TEST))
        else:
            train, test = _read_archive(obtain(self.name, _ARCHIVE, folder))
        words = [split_words(text) for text in train[0]]
        numbers = number_words(words, self.vocabulary)
        test_words = [split_words(text) for text in test[0]]
        pairs = self._pair(words, train[1], numbers), self._pair(test_words, test[1], numbers)
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


def _read_table(data: bytes, owner: str) -> Reviews:
    import pandas

    try:
        table = pandas.read_csv(io.BytesIO(data), compression="gzip", usecols=["label", "text"])
        return table["text"].astype(str).tolist(), table["label"].astype(int).tolist()
    except (ValueError, OSError, EOFError) as error:
        raise FileError(f"{owner} is not a csv file with the columns label and text: {error}") from error


def _read_archive(data: bytes) -> tuple[Reviews, Reviews]:
    # In the order of the csv files: positive first, then by number.
    members = read_members(data, _ARCHIVE.path, lambda name: _MEMBER.fullmatch(name) is not None)
    found: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    for name, text in members.items():
        part, kind, number = _MEMBER.fullmatch(name).groups()  # type: ignore[union-attr]
        found[part].append((-int(kind == "pos"), int(number), text.decode("utf-8")))
    train, test = (sorted(found[part]) for part in ("train", "test"))
    if not train or not test:
        raise FileError(f"{_ARCHIVE.path} does not hold reviews")
    return _as_reviews(train), _as_reviews(test)


def _as_reviews(rows: list[tuple[int, int, str]]) -> Reviews:
    return [text for _, _, text in rows], [-label for label, _, _ in rows]
