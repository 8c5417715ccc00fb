"""IMDB film reviews as sequences of word numbers."""

from __future__ import annotations

import csv
import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from ..errors import FileError, require_between, require_count
from ..random import make_generator
from .data import Pair, Raw
from .files import DataFile, Release, checked_members, gunzip, obtain

PADDING, UNKNOWN = 0, 1
"""The two numbers that are no word."""
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
_MOST_BYTES = 2**30
_TRAIN, _TEST, _ARCHIVE = "imdb_train.csv.gz", "imdb_test.csv.gz", "aclImdb_v1.tar.gz"
_MEMBER = re.compile(r"aclImdb/(train|test)/(pos|neg)/(\d+)_\d+\.txt")
_ORDER_SEED = 113

Review = tuple[str, int]
"""A text and its class, 1 if it praises."""


@dataclass(frozen=True)
class Imdb:
    """Film reviews that praise or pan, as the last ``length`` words, numbered by how frequent they are.

    Word numbers: 0 is padding, 1 a word not in the vocabulary, 2 the most frequent word of the training texts, and so
    on up to ``vocabulary`` - 1 (ties in alphabetic order). As in Keras' LSTM example a review is cut and padded at its
    front, so the end is kept. We differ from Keras in the tokeniser (ours: lower-case runs of a to z and digits
    with inner apostrophes, mark-up dropped) and in having no start sign. The files are sorted by class; the order here
    is a fixed shuffle, so that the last n of train are a fair validation set.
    """

    vocabulary: int = 20_000
    length: int = 80

    name: ClassVar[str] = "imdb"
    paper: ClassVar[str] = "Maas, Daly, Pham, Huang, Ng & Potts 2011"
    examples: ClassVar[str] = "25,000 + 25,000 texts, 2 classes"
    source: ClassVar[str] = "files"
    releases: ClassVar[tuple[Release, ...]] = (
        Release(
            (
                DataFile(f"imdb/{_TRAIN}", "39c3fbcbd783ce1f1aac2b41b27b7ba228312a7a7c906acab306cb3add8e81cd"),
                DataFile(f"imdb/{_TEST}", "210138ea05d094e799cac97d29805412c47ac0207114feed501a5f8d7a87a1b4"),
            )
        ),
        Release(
            (
                DataFile(
                    f"imdb/{_ARCHIVE}",
                    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                ),
            )
        ),
    )

    def __post_init__(self) -> None:
        require_between("imdb", "vocabulary", self.vocabulary, 3, 10_000_000)
        require_count("imdb", "vocabulary", self.vocabulary)
        require_count("imdb", "length", self.length)

    def read(self, folder: Path | None) -> Raw:
        files = obtain(self.name, self.releases, folder)
        if _ARCHIVE in files:
            train, test = _read_archive(files[_ARCHIVE])
        else:
            train, test = (_read_csv(files[name], name) for name in (_TRAIN, _TEST))
        words = [tokens(text) for text, _ in train]
        numbers = word_numbers(words, self.vocabulary)
        pairs = (
            self._pair(words, train, numbers),
            self._pair([tokens(text) for text, _ in test], test, numbers),
        )
        return Raw(self.name, "tokens", *pairs, ("negative", "positive"), vocabulary=self.vocabulary)

    def _pair(self, words: Sequence[list[str]], reviews: Sequence[Review], numbers: dict[str, int]) -> Pair:
        inputs = torch.tensor([encode(text, numbers, self.length) for text in words])
        targets = torch.tensor([label for _, label in reviews])
        order = torch.randperm(len(targets), generator=make_generator(_ORDER_SEED))
        return inputs[order], targets[order]


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, without line-break marks."""
    return _WORD.findall(text.replace("<br />", " ").lower())


def word_numbers(texts: Iterable[Iterable[str]], vocabulary: int) -> dict[str, int]:
    """Numbers 2, 3, ... for the ``vocabulary`` - 2 most frequent words, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {word: number for number, (word, _) in enumerate(ranked[: vocabulary - 2], start=UNKNOWN + 1)}


def encode(words: Sequence[str], numbers: dict[str, int], length: int) -> list[int]:
    """The last ``length`` words as numbers, padded in front."""
    found = [numbers.get(word, UNKNOWN) for word in words[-length:]]
    return [PADDING] * (length - len(found)) + found


def _read_csv(data: bytes, owner: str) -> list[Review]:
    try:
        text = gunzip(data, owner, most_bytes=_MOST_BYTES).decode("utf-8")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if rows.fieldnames is None or not {"label", "text"} <= set(rows.fieldnames):
            raise FileError(f"{owner}: the columns must include label and text; they are {rows.fieldnames}")
        reviews = []
        for row in rows:
            if row["label"] not in {"0", "1"} or not row["text"]:
                raise FileError(f"{owner}: row {rows.line_num}: label {row['label']!r} must be 0 or 1, text not empty")
            reviews.append((row["text"], int(row["label"])))
    except (csv.Error, UnicodeDecodeError) as error:
        raise FileError(f"{owner}: not a csv file in UTF-8 ({error})") from error
    return _not_empty(reviews, owner)


def _read_archive(data: bytes) -> tuple[list[Review], list[Review]]:
    """Both parts of the original archive, in the order of the csv files: class, then number of the review."""
    found: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    try:
        with tarfile.open(fileobj=io.BytesIO(gunzip(data, _ARCHIVE, most_bytes=_MOST_BYTES)), mode="r:") as tar:
            for member in checked_members(tar, Path(_ARCHIVE), None, packed_bytes=len(data)):
                match = _MEMBER.fullmatch(member.name)
                content = tar.extractfile(member) if match else None
                if match and content:
                    part, kind, number = match.groups()
                    found[part].append((-int(kind == "pos"), int(number), content.read().decode("utf-8")))
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise FileError(f"{_ARCHIVE}: not the archive of reviews ({error})") from error
    train, test = ([(text, -label) for label, _, text in sorted(found[part])] for part in ("train", "test"))
    return _not_empty(train, _ARCHIVE), _not_empty(test, _ARCHIVE)


def _not_empty(reviews: list[Review], owner: str) -> list[Review]:
    if len({label for _, label in reviews}) != 2:
        raise FileError(f"{owner}: it must hold reviews of both classes; it holds {len(reviews):,} of one or none")
    return reviews
