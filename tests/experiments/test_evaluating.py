"""A run is measured on other files by the names in them: columns, classes, and what the run knows of how to read."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bayeswell.errors import DataError, SettingError
from bayeswell.experiments import Experiment, evaluate, predict_file, run
from bayeswell.predictive import ClassPrediction

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

CLASSES = ("blue", "green", "red")
LINEAR: dict[str, Any] = {
    "method": {"name": "map", "stepper": {"lr": 0.1}},
    "model": {"name": "mlp", "hidden": []},
    "batch_size": 50,
    "epochs": 20,
    "draws": 1,
}


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], delimiter: str = ",") -> Path:
    """A csv file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def colours(count: int, seed: int) -> list[tuple[float, float, str]]:
    """a far from b in size; the class says which third of a - b / 100 a row is in: a line can tell them apart."""
    generator = np.random.default_rng(seed)
    a, b = generator.normal(5, 1, count), generator.normal(200, 100, count)
    value = a - b / 100
    return [(float(x), float(z), CLASSES[int(np.digitize(v, [2.4, 3.6]))]) for x, z, v in zip(a, b, value, strict=True)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that tells the three colours apart, on a file with semicolons and the target in the middle."""
    folder = tmp_path_factory.mktemp("colours")
    file = write(folder / "t.csv", ["a", "kind", "b"], [(a, kind, b) for a, b, kind in colours(400, 1)], ";")
    record = run(
        Experiment(data={"name": "csv", "path": str(file), "target": "kind", "delimiter": ";"}, **LINEAR),
        folder / "run",
    )
    assert record["test"]["values"]["accuracy"] > 0.85  # guessing: about 0.5
    return folder


def test_columns_and_classes_are_matched_by_name(table: Path, tmp_path: Path) -> None:
    held = colours(300, 2)
    same = write(tmp_path / "same.csv", ["a", "kind", "b"], [(a, kind, b) for a, b, kind in held], ";")
    # Another order, a column of texts besides, and only two of the classes, whose numbers are then others.
    mixed = write(
        tmp_path / "mixed.csv", ["b", "who", "a", "kind"], [(b, "x", a, kind) for a, b, kind in held], ";"
    )  # fmt: skip
    expected = evaluate(table / "run", {"name": str(same), "test_share": 1}, draws=1)
    found = evaluate(table / "run", {"name": str(mixed), "test_share": 1}, draws=1)
    assert expected["examples"] == found["examples"] == 300
    assert expected["test"]["values"]["accuracy"] > 0.85
    assert found["test"] == expected["test"]
    two = write(tmp_path / "two.csv", ["b", "a", "kind"], [(b, a, k) for a, b, k in held if k != "blue"], ";")
    fewer = evaluate(table / "run", {"name": str(two), "test_share": 1}, draws=1)
    assert fewer["test"]["values"]["accuracy"] > 0.85


def test_a_file_of_one_class_can_be_measured_whole(table: Path, tmp_path: Path) -> None:
    red = [row for row in colours(300, 3) if row[2] == "red"]
    file = write(tmp_path / "red.csv", ["a", "b", "kind"], red, ";")
    found = evaluate(table / "run", {"name": str(file), "test_share": 1}, draws=1)
    labels, _ = predict_file(table / "run", file, draws=1)
    assert isinstance(labels, ClassPrediction)
    assert found["examples"] == len(red)
    assert found["test"]["values"]["accuracy"] == pytest.approx(float((labels.labels == 2).double().mean()))


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        (["a", "c", "kind"], (1, 2, "red"), "no column 'b'"),
        (["a", "b", "sort"], (1, 2, "red"), "no column 'kind'"),
        (["a", "b", "kind"], (1, 2, "rad"), "class 'rad' that the run does not know; did you mean 'red'"),
        (["a", "b", "kind"], (1, "x", "red"), "column 'b': 'x'"),
    ],
)
def test_what_does_not_match_is_named(
    table: Path, tmp_path: Path, header: list[str], row: tuple[Any, ...], words: str
) -> None:
    file = write(tmp_path / "other.csv", header, [row, (3, 4, "blue")], ";")
    with pytest.raises(DataError, match=words):
        evaluate(table / "run", {"name": str(file), "test_share": 1})


def test_real_targets_are_not_taken_for_classes(tmp_path: Path) -> None:
    """A few whole numbers look like classes; the run knows better."""
    generator = np.random.default_rng(5)
    a = generator.normal(3, 2, 200)
    file = write(tmp_path / "t.csv", ["a", "y"], [(x, 2 * x) for x in a])
    run(Experiment(data=str(file), **LINEAR), tmp_path / "run")
    new = write(tmp_path / "new.csv", ["y", "a"], [(2, 1), (4, 2), (2, 1), (8, 4)])
    found = evaluate(tmp_path / "run", {"name": str(new), "test_share": 1}, draws=1)
    assert found["test"]["values"]["rmse"] < 0.5
    same = write(tmp_path / "same.csv", ["y", "a"], [(2, 1), (2, 1)])
    assert evaluate(tmp_path / "run", {"name": str(same), "test_share": 1}, draws=1)["examples"] == 2
    with pytest.raises(DataError, match="test examples only"):
        run(Experiment(data={"name": str(file), "test_share": 1}, **LINEAR), tmp_path / "nothing")
    with pytest.raises(SettingError, match=r"test_share = 1\.5"):
        evaluate(tmp_path / "run", {"name": str(new), "test_share": 1.5})


def test_the_file_of_the_run_may_be_gone(tmp_path: Path) -> None:
    rows = [(x, 2 * x) for x in np.random.default_rng(5).normal(3, 2, 200)]
    file = write(tmp_path / "t.csv", ["a", "y"], rows)
    run(Experiment(data=str(file), **LINEAR), tmp_path / "run")
    file.rename(tmp_path / "elsewhere.csv")
    assert evaluate(tmp_path / "run", str(tmp_path / "elsewhere.csv"), draws=1)["examples"] == 50


def test_pixels_of_an_npz_file_are_in_the_units_of_the_run(tmp_path: Path, small: Experiment) -> None:
    run(small, tmp_path / "run")
    found = load_digits()
    results = []
    for name, images in {
        "real": found.images,
        "bytes": found.images.astype(np.uint8),
        "unit": found.images / 16,
    }.items():
        np.savez(tmp_path / f"{name}.npz", x=images, y=found.target)
        results.append(evaluate(tmp_path / "run", {"name": str(tmp_path / f"{name}.npz"), "test_share": 1}, draws=1))
    assert [result["test"]["values"]["accuracy"] for result in results] == [
        results[2]["test"]["values"]["accuracy"]
    ] * 3
    own = evaluate(tmp_path / "run", draws=1)["test"]["values"]["accuracy"]
    assert results[0]["test"]["values"]["accuracy"] == pytest.approx(own, abs=0.1)  # 4 standard errors of 450 examples
