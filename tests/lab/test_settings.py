"""Settings of a run, and code of the user."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonargparse import ArgumentParser

from bayeswell.core.errors import FileError, SettingError
from bayeswell.lab.settings import Code, CodeRecord, RunSettings, run_code
from bayeswell.optim import SGD

RICH = RunSettings(
    data={"name": "uci", "set": "yacht"},
    data_settings={"split": 3},
    ood=["noise", {"name": "corrupted", "severity": 5}],
    method="k-tied",
    settings={"posterior": {"rank": 3}, "optimizer": "sgd"},
    model="mlp",
    model_settings={"hidden": [10, 10]},
    lr=0.05,
    seed=4,
    validation=0.1,
    early_stopping=5,
    calibrate=True,
)


def test_settings_survive_json() -> None:
    record = json.loads(json.dumps(RICH.to_dict()))
    assert RunSettings.from_dict(record) == RICH
    assert "epochs" not in record
    assert RunSettings().to_dict() == {}


def test_settings_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'method = "k-tied"\nood = ["noise", {name = "corrupted", severity = 5}]\nmodel = "mlp"\nlr = 0.05\nseed = 4\n'
        "validation = 0.1\nearly_stopping = 5\ncalibrate = true\n"
        '[data]\nname = "uci"\nset = "yacht"\n[data_settings]\nsplit = 3\n'
        '[settings]\noptimizer = "sgd"\nposterior = {rank = 3}\n[model_settings]\nhidden = [10, 10]\n'
    )
    assert RunSettings.from_toml(path) == RICH


def test_the_method_has_its_settings() -> None:
    method = RICH.method_part
    assert (method.name, method.posterior.rank, method.optimizer.lr) == ("k-tied", 3, 0.05)
    assert isinstance(method.optimizer, SGD)


def test_the_choice_of_data_has_its_settings() -> None:
    assert RICH.data_choice == {"name": "uci", "set": "yacht", "split": 3}
    assert RunSettings().data_choice == "digits"


def test_unknown_settings_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    for make in (lambda: RunSettings.from_dict({"epoch": 3}), lambda: RunSettings().changed(epoch=3)):
        with pytest.raises(SettingError, match="a run has no setting 'epoch'; did you mean 'epochs'"):
            make()
    (tmp_path / "run.toml").write_text("epochs = ")
    with pytest.raises(FileError, match="is not TOML"):
        RunSettings.from_toml(tmp_path / "run.toml")
    with pytest.raises(FileError, match="cannot be read"):
        RunSettings.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epochs", -1),
        ("epochs", 1.5),
        ("batch_size", 0),
        ("seed", True),
        ("lr", -0.1),
        ("validation", float("nan")),
        ("standardize", "yes"),
        ("model_settings", [1]),
        ("early_stopping", 3),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingError, match=f"`{setting}`"):
        RunSettings.from_dict({setting: value})


def test_numpy_numbers_are_numbers() -> None:
    settings = RunSettings(epochs=np.int64(3), lr=np.float32(0.5), settings={"members": np.int64(2)})  # type: ignore[arg-type]
    expected = {"epochs": 3, "lr": 0.5, "settings": {"members": 2}}
    assert json.dumps(settings.to_dict(), sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_parts_are_described() -> None:
    settings = RunSettings(settings={"optimizer": SGD(lr=0.3)})
    again = RunSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again.method_part == settings.method_part


def test_titles() -> None:
    assert RICH.title == "uci-k-tied-seed4"
    assert RunSettings(data="table:a/b/people.csv", fold="2/5").title == "people-auto-seed0-fold2"


def test_every_setting_has_one_line_of_help() -> None:
    descriptions = RunSettings.descriptions()
    assert list(descriptions) == RunSettings.names()
    assert all(descriptions.values())


def test_jsonargparse_reads_the_dataclass() -> None:
    parser = ArgumentParser()
    parser.add_class_arguments(RunSettings)
    arguments = ["--data=gap", "--settings.temperature=1", "--model_settings.hidden=[3,4]", "--calibrate=true"]
    found = RunSettings(**parser.parse_args([*arguments, "--validation=0.1", "--ood=noise"]).as_dict())
    expected = {"temperature": 1}, {"hidden": [3, 4]}, True, 0.1, ["noise"]
    assert (found.settings, found.model_settings, found.calibrate, found.validation, found.ood) == expected


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(
        "import helper_beside\n"
        "class Net:\n"
        "    def __init__(self, outputs, width=3):\n"
        "        self.made = (outputs, width, helper_beside.VALUE)\n"
        "def noise(outputs):\n    return outputs\n"
    )
    (tmp_path / "helper_beside.py").write_text("VALUE = 8\n")
    return path


def test_code_is_called_with_its_settings(code: Path) -> None:
    settings = RunSettings(model=f"{code}:Net")
    assert settings.model == Code(str(code), "Net")
    made = run_code("model", {"name": settings.model, "width": 5}, {"outputs": 2, "input_shape": (1,)})
    assert made.made == (2, 5, 8)
    assert run_code("model", "mlp") == "mlp"


def test_a_likelihood_that_is_a_function_is_not_called(code: Path) -> None:
    assert run_code("likelihood", Code(str(code), "noise"))(4) == 4


def test_records_keep_the_hash_and_run_nothing(code: Path) -> None:
    settings = RunSettings(model=f"{code}:Net")
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    record = settings.to_dict()
    assert record["model"] == {"path": "nets.py", "name": "Net", "sha256": digest}
    again = RunSettings.from_dict(record)
    assert again.model == CodeRecord("nets.py", "Net", digest)
    with pytest.raises(SettingError, match=r"named by a file, and is not run; name it yourself: model=nets\.py:Net"):
        run_code("model", again.model)
    again.model.check_same(Code(str(code), "Net"))
    code.write_text("Net = 3\n")
    with pytest.raises(SettingError, match="has changed since the run"):
        again.model.check_same(Code(str(code), "Net"))


def test_names_of_code_in_files_are_not_run(code: Path) -> None:
    for value in (f"{code}:Net", {"name": f"{code}:Net"}, {"path": str(code), "name": "Net"}):
        for setting in ("model", "data", "likelihood"):
            found = getattr(RunSettings.from_dict({setting: value}), setting)
            record = found["name"] if isinstance(found, dict) else found
            assert isinstance(record, CodeRecord)


def test_mistakes_in_code_are_refused(code: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"has no 'Nett'; did you mean 'Net'"):
        Code(str(code), "Nett").load()
    with pytest.raises(SettingError, match="needs the setting 'outputs'"):
        run_code("model", Code(str(code), "Net"))
    with pytest.raises(FileError, match="cannot be read"):
        Code(str(tmp_path / "none.py"), "Net").load()
    bad = tmp_path / "bad.py"
    bad.write_text("1 / 0\n")
    before = set(sys.modules)
    with pytest.raises(SettingError, match="failed: ZeroDivisionError"):
        Code(str(bad), "Net").load()
    assert set(sys.modules) == before
