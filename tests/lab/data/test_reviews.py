"""Reviews as word numbers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from bayeswell.core.errors import FileError
from bayeswell.lab.data import load_data
from bayeswell.lab.data.reviews import encode, number_words, split_words
from lab.data.published import write

TRAIN = [("Good good film<br />it's GOOD", 1), ("bad film, bad end", 0), ("a good end", 1)]
TEST = [("bad unknown film", 0), ("good", 1)]


def write_tables(folder: Path) -> None:
    for name, rows in (("train", TRAIN), ("test", TEST)):
        text = "id,label,text\n" + "\n".join(f'{i},{label},"{text}"' for i, (text, label) in enumerate(rows))
        write(folder / f"imdb/imdb_{name}.csv.gz", gzip.compress(text.encode()))


def test_words() -> None:
    assert split_words("It's <br />A-1 film!") == ["it's", "a", "1", "film"]


def test_words_are_numbered_by_frequency_then_alphabet() -> None:
    numbers = number_words([["b", "a", "c"], ["b", "c", "d"]], vocabulary=5)
    assert numbers == {"b": 2, "c": 3, "a": 4}


def test_reviews_are_cut_and_padded_in_front() -> None:
    numbers = {"a": 2, "b": 3}
    assert encode(["a", "x", "b"], numbers, 2) == [1, 3]
    assert encode(["a", "x", "b"], numbers, 5) == [0, 0, 2, 1, 3]


def test_the_words_of_the_training_texts_decide(tmp_path: Path) -> None:
    write_tables(tmp_path)
    data = load_data({"name": "imdb", "vocabulary": 6, "length": 4}, folder=str(tmp_path))
    # Frequencies: good 4, bad 2, end 2, film 2.
    rows = {tuple(row): int(label) for row, label in zip(data.test[0].tolist(), data.test[1], strict=True)}
    assert rows == {(0, 3, 1, 5): 0, (0, 0, 0, 2): 1}
    assert data.train[0].dtype == torch.int64
    assert (data.vocabulary, data.class_names) == (6, ("negative", "positive"))
    # Random words have every token.
    noise = load_data(data, ood="noise").ood["noise"]
    assert noise.shape == data.test[0].shape
    assert 0 <= int(noise.min()) <= int(noise.max()) < 6


def test_other_tables_are_refused(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"imdb/imdb_{name}.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(FileError, match="columns label and text"):
        load_data("imdb", folder=str(tmp_path))
