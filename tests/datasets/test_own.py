"""One's own csv, npz and pictures: read right, or refused with one line that says where the fault is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeswell.datasets import find_data, load_data
from bayeswell.datasets.own import read_picture
from bayeswell.errors import BayeswellError, DataError, FileError, SettingError
from bayeswell.tables import Table


def refused(choice: dict[str, Any], words: str, kind: type[BayeswellError] = DataError) -> str:
    with pytest.raises(kind, match=words) as caught:
        load_data(choice)
    message = str(caught.value)
    assert "\n" not in message
    return message


# csv


def table(tmp_path: Path, text: str, **settings: Any) -> dict[str, Any]:
    path = tmp_path / "own.csv"
    path.write_text(text, encoding="utf-8")
    return {"name": "csv", "path": str(path), **settings}


FLOWERS = "width,kind,length\n" + "".join(f"{i},{'rose' if i % 3 else 'aster'},{i * i}\n" for i in range(12))


def test_csv_takes_the_named_column_for_the_target(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, FLOWERS, target="kind", test_share=0.25), standardise=False)
    assert (data.likelihood, data.outputs, data.class_names) == ("categorical", 2, ("aster", "rose"))
    assert (len(data.train[1]), len(data.test[1]), data.name) == (9, 3, "own")
    inputs, targets = torch.cat([data.train[0], data.test[0]]), torch.cat([data.train[1], data.test[1]])
    assert sorted(inputs[:, 0].tolist()) == list(range(12))
    assert torch.equal(inputs[:, 1], inputs[:, 0] ** 2)
    assert torch.equal(targets, (inputs[:, 0] % 3 > 0).long())


def test_csv_without_a_named_target_takes_the_last_column(tmp_path: Path) -> None:
    text = "a;b\n" + "".join(f"{i};{3 * i + 0.5}\n" for i in range(40))
    data = load_data(table(tmp_path, text, delimiter=";"), standardise=False)
    assert data.likelihood == "gaussian"
    torch.testing.assert_close(data.train[1], 3 * data.train[0] + 0.5)
    numbered = "".join(f"{i},{i * 2},{i % 2}\n" for i in range(10))
    data = load_data(table(tmp_path, numbered, header=False, target="1", task="regression"), standardise=False)
    torch.testing.assert_close(data.train[0][:, 0], 2 * data.train[1][:, 0])


def test_csv_keeps_its_names_and_takes_the_inputs_that_are_asked_for(tmp_path: Path) -> None:
    text = "who,a,y,b\n" + "".join(f"n{i},{i},{2.5 * i},{-i}\n" for i in range(12))
    data = load_data(table(tmp_path, text, target="y", columns=["b", "a"]), standardise=False)
    assert (data.columns, data.target_name) == (("b", "a"), "y")
    torch.testing.assert_close(
        torch.cat([-data.train[0][:, :1], data.train[0][:, 1:]], 1), (data.train[1] / 2.5).expand(-1, 2)
    )
    numbered = load_data(table(tmp_path, "".join(f"{i},{i % 2}\n" for i in range(12)), header=False))
    assert (numbered.columns, numbered.target_name) == (None, None)
    refused(table(tmp_path, text, target="y", columns=["a", "c"]), "no column 'c'")
    refused(table(tmp_path, text, target="y", columns=["a", "y"]), "column 'y' is the target")
    refused(table(tmp_path, text, columns="a"), "columns = 'a'", SettingError)
    for sign in ("\n", '"', "", ";;", 3):
        refused(table(tmp_path, text, delimiter=sign), "one character, or 'tab'", SettingError)


def test_a_share_of_one_is_for_measuring_alone(tmp_path: Path) -> None:
    choice = table(tmp_path, FLOWERS, target="kind", test_share=1)
    refused(choice, "'own' has test examples only, nothing to learn from")
    raw = find_data(choice).read(None)
    assert raw.train is None
    assert isinstance(raw.test[0], Table)
    assert raw.test[0].column("width").tolist() == list(range(12))  # every row, in the order of the file


def test_csv_split_depends_on_its_seed_alone(tmp_path: Path) -> None:
    choice = table(tmp_path, FLOWERS, target="kind")
    first, again = load_data(choice), load_data(choice, seed=5)
    other = load_data(choice | {"split": 1})
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()


def test_csv_with_a_file_for_the_test(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("width,kind,length\n100,tulip,5\n101,rose,6\n")
    choice = table(tmp_path, FLOWERS, target="kind", test_path=str(tmp_path / "test.csv"))
    data = load_data(choice, standardise=False)
    assert data.class_names == ("aster", "rose", "tulip")
    assert data.test[0].tolist() == [[100, 5], [101, 6]]
    assert data.test[1].tolist() == [2, 1]
    assert data.train[0][:, 0].tolist() == list(range(12))
    (tmp_path / "test.csv").write_text("width,kind,height\n100,tulip,5\n")
    refused(choice, "its columns are")


@pytest.mark.parametrize(
    ("targets", "task", "likelihood", "names"),
    [
        (["10", "2", "10", "2"], "auto", "categorical", ("2", "10")),
        (["10", "2", "10", "2"], "regression", "gaussian", None),
        (["1.5", "2", "10", "2"], "auto", "gaussian", None),
        (["yes", "no", "2", "2"], "auto", "categorical", ("2", "no", "yes")),
    ],
)
def test_csv_task(
    targets: list[str], task: str, likelihood: str, names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    text = "x,y\n" + "".join(f"{i},{target}\n" for i, target in enumerate(targets * 5))
    data = load_data(table(tmp_path, text, task=task))
    assert (data.likelihood, data.class_names) == (likelihood, names)


def test_csv_many_whole_numbers_are_not_taken_for_classes(tmp_path: Path) -> None:
    text = "x,y\n" + "".join(f"{i},{i}\n" for i in range(21))
    assert load_data(table(tmp_path, text)).likelihood == "gaussian"
    assert load_data(table(tmp_path, text, task="classification")).outputs == 21


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y\n1,2,0\n3,1.8e308,1\n", r"own\.csv: row 3, column 'b': '1.8e308' is not a finite number"),
        ("a,b,y\n1,2,0\n3,inf,1\n", "row 3, column 'b': 'inf'"),
        ("a,b,y\n1,2,0\nblue,4,1\n", "row 3, column 'a': 'blue' is not a finite number"),
        ("a,b,y\n1,2,0\n3,4\n", "row 3 has 2 columns; it must have 3"),
        ("a,b,y\n1,2,0\n\n3,4,1,1\n", "row 4 has 4 columns"),
        ("a,b,y\n1,2,0\n3,4,\n", "row 3, column 'y': the target is missing"),
        ("a,b,y\n1,2,0\n3,4,NaN\n", "row 3, column 'y': the target is missing"),
        ("a,b,y\n1,2,0\n3,4,-inf\n", "row 3, column 'y': the target '-inf' is not finite"),
        ("a,y\n" + "".join(f"{i},{i}.5\n" for i in range(30)) + "1,2o\n", "target '2o' of example 31 is no number"),
        ("a,b,y\n1,2,0\n3,4,0\n", "every target is '0'; there must be two classes"),
        ("a,b,y\n1,2,0.5\n3,4,0.5\n", r"every target is 0\.5; there is nothing to learn"),
        ("a,a,y\n1,2,0\n", "two columns have the name 'a'"),
        ("1,2,0\n3,4,1\n", "row 1 holds numbers"),
        ("a,b,y\n", "no row of data"),
        ("", "it is empty"),
        ("y\n1\n2\n", "one column 'y'"),
        ("a,y\n1,0\n", "every target is '0'"),
        ("a,y\n1,0.5\n2,0.7\n", None),
        ("a,y\n1,0.5\n", "nothing to learn"),
    ],
)
def test_csv_faults_are_named_by_row_and_column(text: str, words: str | None, tmp_path: Path) -> None:
    choice = table(tmp_path, text)
    if words is None:
        refused(choice, "leaves 2 to learn from and 0 to test on")
    else:
        refused(choice, words)


def test_csv_other_faults(tmp_path: Path) -> None:
    refused(
        table(tmp_path, FLOWERS, target="sort"), "no column 'sort' to be the target; .*allowed: kind, length, width"
    )
    refused(table(tmp_path, FLOWERS, target="kind", task="regression"), "target 'aster' of example 1 is not a finite")
    text = "x,y\n" + "".join(f"{i},{i + 0.5}\n" for i in range(9))
    refused(table(tmp_path, text, task="classification"), r"target 0\.5 of example 1 is no class")
    refused(table(tmp_path, FLOWERS, task="guess"), "task = 'guess'", SettingError)
    refused(table(tmp_path, FLOWERS, delimiter=""), "delimiter", SettingError)
    refused({"name": "csv", "path": str(tmp_path / "none.csv")}, "cannot be read: No such file", FileError)
    refused({"name": "csv", "path": str(tmp_path)}, "cannot be read", FileError)
    refused({"name": "csv", "path": "a\0b.csv"}, "cannot be read", FileError)
    refused({"name": "csv", "path": ""}, "needs the setting 'path'", SettingError)
    (tmp_path / "own.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    refused({"name": "csv", "path": str(tmp_path / "own.csv")}, r"UTF-8 \(byte 4\)", FileError)
    refused(table(tmp_path, 'a,y\n"1,0\n'), "not a csv file", FileError)
    refused(table(tmp_path, "a,y\n" + "1" * 200_000 + ",0\n"), "not a csv file", FileError)


def test_one_class_left_for_training_is_refused(tmp_path: Path) -> None:
    text = "a,y\n" + "".join(f"{i},{int(i == 7)}\n" for i in range(8))
    seen = set()
    for split in range(12):
        try:
            load_data(table(tmp_path, text, split=split))
            seen.add("used")
        except DataError as error:
            seen.add(str(error).partition(": ")[2])
    assert seen == {"used", "all 6 training examples are of class '0'; two are needed"}


# npz


def arrays(tmp_path: Path, **found: Any) -> dict[str, Any]:
    np.savez(tmp_path / "own.npz", **found)
    return {"name": "npz", "path": str(tmp_path / "own.npz")}


DRAW = np.random.default_rng(2)


def test_npz_tables_images_and_given_tests(tmp_path: Path) -> None:
    x, y = DRAW.normal(3, 2, (20, 4)), DRAW.normal(size=(20, 2))
    data = load_data(arrays(tmp_path, x=x[:15], y=y[:15], x_test=x[15:], y_test=y[15:]))
    assert (data.likelihood, data.outputs) == ("gaussian", 2)
    np.testing.assert_allclose(data.test[0], (x[15:] - x[:15].mean(0)) / x[:15].std(0), atol=1e-5)
    np.testing.assert_allclose(data.test[1], (y[15:] - y[:15].mean(0)) / y[:15].std(0), atol=1e-5)
    images = DRAW.integers(0, 256, (20, 6, 7, 3)).astype(np.uint8)
    labels = np.array(["b", "a"] * 10)
    given = arrays(tmp_path, x=images, y=labels, x_test=images[:3], y_test=labels[:3])
    data = load_data(given, standardise=False)
    assert data.input_shape == (3, 6, 7)
    np.testing.assert_allclose(data.train[0].numpy(), images.transpose(0, 3, 1, 2) / 255, atol=1e-7)
    assert data.test[1].tolist() == [1, 0, 1]
    grey = load_data(arrays(tmp_path, x=images[..., 0] / 255, y=labels), standardise=False)
    assert grey.input_shape == (1, 6, 7)
    assert load_data(str(tmp_path / "own.npz")).fingerprint() == load_data(given).fingerprint()


def test_npz_faults_are_named(tmp_path: Path) -> None:
    x, y = DRAW.normal(size=(6, 3)), np.arange(6) % 2
    broken = x.copy()
    broken[4, 1] = np.nan
    for found, words in [
        ({"x": x}, "no array 'y'; it holds x"),
        ({"x": x, "y": y[:4]}, r"array 'x' has shape \(6, 3\), 'y' \(4,\)"),
        ({"x": broken, "y": y}, r"array 'x': the value at index \[4, 1\] is nan"),
        ({"x": x[:, 0], "y": y}, r"shape \(6,\)"),
        ({"x": np.array([["a"]] * 6), "y": y}, "inputs must be numbers"),
        ({"x": x, "y": y, "x_test": x}, "come together"),
        ({"x": x, "y": y, "x_test": x[:, :2], "y_test": y}, "they must agree"),
        ({"x": x, "y": y, "x_test": x, "y_test": x}, "y_test"),
        ({"x": x, "y": np.zeros(6, int)}, "every target is '0'"),
        ({"x": x, "y": np.array([0.5, 1, np.inf, 2, 3, 4])}, "target inf of example 3 is not finite"),
        ({"x": x, "y": np.array([0, 1, np.nan, 0, 1, 1])}, "target nan of example 3 is not finite"),
        ({"x": x[:0], "y": y[:0]}, "shape"),
        ({"x": x, "y": np.zeros((6, 2, 2))}, "targets have shape"),
    ]:
        refused(arrays(tmp_path, **found), words)
    refused(arrays(tmp_path, x=np.array([{}] * 6, dtype=object), y=y), "never objects", FileError)


# Pictures


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (10, 14)) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow, which reads pictures, is not installed")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.new("RGB", size, colour).save(path)


def test_pictures_of_a_folder_for_each_class(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / f"cats/{number}.png", (255, 0, 51))
        save(tmp_path / f"dogs/{number}.PNG", (0, 102, 0))
    (tmp_path / "cats/readme.txt").write_text("not a picture")
    (tmp_path / ".hidden").mkdir()
    choice = {"name": "images", "path": str(tmp_path), "size": 8}
    data = load_data(choice, standardise=False)
    assert (data.class_names, data.input_shape) == (("cats", "dogs"), (3, 8, 8))
    assert (len(data.train[1]), len(data.test[1])) == (6, 2)
    for images, labels in (data.train, data.test):
        for image, label in zip(images, labels, strict=True):
            torch.testing.assert_close(image[:, 3, 5], torch.tensor([[1.0, 0, 0.2], [0, 0.4, 0]])[label])
    grey = load_data(choice | {"grey": True}, standardise=False)
    assert grey.input_shape == (1, 8, 8)
    # Luma of the second colour: 0.587 * 0.4, rounded to a byte.
    assert float(grey.train[0][grey.train[1] == 1][0, 0, 0, 0]) == pytest.approx(0.2348, abs=0.004)


def test_a_picture_keeps_its_rows_and_columns(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow, which reads pictures, is not installed")
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png", 2, grey=False), pixels.transpose(2, 0, 1))


def test_pictures_with_train_and_test_folders(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("test", 2)):
        for kind in ("a", "b"):
            for number in range(count):
                save(tmp_path / part / kind / f"{number}.png", (number, 0, 0))
    choice = {"name": "images", "path": str(tmp_path), "size": 4}
    data = load_data(choice)
    assert data.train[1].tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test[1].tolist() == [0, 0, 1, 1]
    save(tmp_path / "test/c/0.png", (0, 0, 0))
    refused(choice, "they must agree")


def test_picture_faults_name_the_file(tmp_path: Path) -> None:
    choice = {"name": "images", "path": str(tmp_path / "none")}
    refused(choice, "no such folder", FileError)
    refused({"name": "images", "path": str(tmp_path)}, "each class needs one")
    save(tmp_path / "a/0.png", (1, 2, 3))
    (tmp_path / "b").mkdir()
    choice = {"name": "images", "path": str(tmp_path)}
    assert str(tmp_path / "b") in refused(choice, "holds no picture")
    save(tmp_path / "b/0.png", (1, 2, 3))
    whole = (tmp_path / "b/0.png").read_bytes()
    for bad in (b"", b"not a png", whole[:50]):
        (tmp_path / "b/0.png").write_bytes(bad)
        assert str(tmp_path / "b/0.png") in refused(choice, "not a picture", FileError)
    # The header of a png: 8 bytes, then length, IHDR, width, height. The checksum of the chunk is made to fit.
    import zlib

    chunk = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + whole[24:29]
    (tmp_path / "b/0.png").write_bytes(whole[:12] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + whole[33:])
    refused(choice, r"b/0\.png", FileError)
    refused(choice | {"size": 0}, "size = 0", SettingError)
