"""An experiment is plain data that comes back the same, and refuses nonsense before any work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayeswell.errors import BayeswellError, FileError, SettingError
from bayeswell.experiments import Experiment, place_in, read_config


def test_it_comes_back_from_json_the_same() -> None:
    one = Experiment(
        method={"name": "k-tied", "posterior": {"rank": 3}}, data={"name": "digits", "split": 4}, epochs=7, seed=11,
        model={"name": "mlp", "hidden": [30, 20]}, validation=0.2, early_stopping=3, augment={"pad": 2}, ood="noise",
    )  # fmt: skip
    again = Experiment.from_json(json.loads(json.dumps(one.as_json())))
    assert again == one
    assert again.as_json() == one.as_json()


def test_changed_follows_the_dots_and_leaves_the_rest() -> None:
    one = Experiment(method={"name": "bbb", "temperature": 0.3}, epochs=7)
    other = one.changed({"method.stepper.lr": 0.02, "seed": 5})
    assert other.as_json() == {
        **one.as_json(),
        "method": {"name": "bbb", "temperature": 0.3, "stepper": {"lr": 0.02}},
        "seed": 5,
    }
    assert other.method_part.stepper == {"name": "adam", "lr": 0.02}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"epochs": "3"}, "epochs = '3'"),
        ({"batch_size": 2.5}, "batch_size = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": True}, "seed = True"),
        ({"workers": 1000}, "workers = 1000"),
        ({"validation": -0.1}, "validation = -0.1"),
        ({"validation": "some"}, "validation = 'some'"),
        ({"validation": [1]}, r"validation = \[1\]"),
        ({"validation": float("nan")}, "validation = nan"),
        ({"method": "bbbb"}, "did you mean 'bbb'"),
        ({"method": 3}, "method = 3"),
        ({"data": "digts"}, "did you mean 'digits'"),
        ({"data": {"split": 3}}, "'name'"),
        ({"data": {"name": "digits", "splt": 3}}, "did you mean 'split'"),
        ({"model": {"name": "cnn", "widht": 3}}, "did you mean 'width'"),
        ({"likelihood": "gausian"}, "did you mean 'gaussian'"),
        ({"ood": "nois"}, "did you mean 'noise'"),
        ({"augment": {"pads": 3}}, "did you mean 'pad'"),
        ({"augment": True}, "augment = True"),
        ({"precision": "8"}, "precision = '8'"),
        ({"early_stopping": 3}, "set validation too"),
        ({"standardise": 1}, "standardise = 1"),
    ],
)
def test_nonsense_is_refused_with_its_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BayeswellError, match=words) as caught:
        Experiment(**settings)
    assert "\n" not in str(caught.value)


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(SettingError, match="did you mean 'epochs'"):
        Experiment.from_json({"epoch": 3})


def test_a_folder_that_is_there_needs_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pics", "digits", "uci_boston"):
        (tmp_path / name).mkdir()
    assert Experiment(data="pics").data == {"name": "images", "path": str(tmp_path / "pics")}
    assert Experiment(data="digits").data == {"name": "digits"}  # a data set by its name, whatever lies here
    assert Experiment(data="uci_boston").data == {"name": "uci_boston"}
    for name in ("pic", "p" * 5000):
        with pytest.raises(SettingError, match="unknown data set 'p"):
            Experiment(data=name)


def test_its_name_says_what_it_is() -> None:
    assert Experiment(method="k-tied", seed=3).name == "digits-k-tied-seed3"
    assert Experiment(data="../my files/t$ble.csv").name == "t-ble-auto-seed0"


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", "", "/etc", "a/b", "a\\b", "a\0b", "a" * 5000, "-rf", ".hidden", "a\nb", "x."]
)
def test_a_run_name_cannot_leave_its_root(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="run name"):
        place_in(tmp_path, name)


def test_nor_by_a_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    with pytest.raises(SettingError, match="leads out"):
        place_in(root, "link")
    assert place_in(root, "k-tied-seed0") == root / "k-tied-seed0"


def test_a_settings_file_is_read_and_its_faults_are_named(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("epochs = 7\n[method]\nname = 'k-tied'\nposterior.rank = 3\n", encoding="utf-8")
    assert read_config(file, ["epochs", "method"]) == {
        "epochs": 7,
        "method": {"name": "k-tied", "posterior": {"rank": 3}},
    }
    file.write_text("epoch = 7\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"s\.toml: unknown key 'epoch'; did you mean 'epochs'"):
        read_config(file, ["epochs", "method"])
    for broken in (b"epochs = \n", b"\xff\xfe", b"a = 1\na = 2\n"):
        file.write_bytes(broken)
        with pytest.raises(FileError, match=r"s\.toml: not"):
            read_config(file, ["epochs", "a"])
    with pytest.raises(FileError, match="cannot be read"):
        read_config(tmp_path / "nothing.toml", [])
