"""A network of one's own in a run: given as code or as an object, known again by its SHA-256, and never run unasked."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bayeswell.cli import main
from bayeswell.errors import BayeswellError, BayeswellWarning, FileError, SettingError
from bayeswell.experiments import Experiment, Given, evaluate, given_code, load_problem, resume_run, run
from bayeswell.experiments.given import given_network, model_record
from bayeswell.experiments.network_code import network_code

CODE = """
import torch
from torch import nn

with open({marker!r}, "a") as file:
    file.write("run\\n")

class Net(nn.Module):
    def __init__(self, input_shape, outputs, width=6):
        super().__init__()
        self.first = nn.Linear(input_shape[0], width)
        self.last = nn.Linear(width, outputs)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))

def wide(width, outputs=3):
    return nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, outputs))

def broken():
    raise ValueError("no weights today")

ready = wide(4)
number = 3
"""
SMALL: dict[str, Any] = {"data": "wine", "method": "map", "epochs": 2, "batch_size": 60, "draws": 3}
ARGUMENTS = ["-d", "wine", "-m", "map", "-e", "2", "-b", "60", "--draws", "3", "-q"]


class Code:
    """A file of code, and how often it has been run."""

    def __init__(self, folder: Path) -> None:
        self.marker = folder / "marker.txt"
        self.path = folder / "net.py"
        self.path.write_text(CODE.format(marker=str(self.marker)))

    def spec(self, name: str = "Net") -> str:
        return f"{self.path}:{name}"

    @property
    def runs(self) -> int:
        return len(self.marker.read_text().splitlines()) if self.marker.exists() else 0


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


def begun(code: Code, place: Path, **settings: Any) -> tuple[Experiment, Given]:
    given = given_code(code.spec())
    assert given.network is not None
    chosen = Experiment(**{**SMALL, "model": model_record(given.network, settings)})
    run(chosen, place, given=given)
    return chosen, given


def test_a_class_a_function_and_a_network_are_networks(code: Code) -> None:
    torch.manual_seed(5)
    for name, settings, width in (("Net", {"width": 9}, 9), ("wide", {"width": 7}, 7), ("ready", {}, 4)):
        given = given_code(code.spec(name))
        assert given.network is not None
        assert given.network.name == f"net.py:{name}"
        assert given.network.sha256 == hashlib.sha256(code.path.read_bytes()).hexdigest()
        chosen = Experiment(**{**SMALL, "model": model_record(given.network, settings)})
        one, again = (load_problem(chosen, given).net for _ in range(2))
        other = load_problem(chosen.changed({"seed": 1}), given).net
        assert next(one.parameters()).shape == (width, 13)
        assert list(one.parameters())[-1].shape == (3,)
        first, second, third = (next(net.parameters()) for net in (one, again, other))
        assert torch.equal(first, second)
        assert torch.equal(first, third) == (
            name == "ready"
        )  # a network begins with its own weights, whatever the seed
        assert one is not given.network.found


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Nett", {}, "there is no 'Nett' in .*did you mean 'Net'"),
        ("number", {}, "'number' is of type int; give a class"),
        ("wide", {}, "asks for 'width': give it as a setting"),
        ("Net", {"wdth": 3}, "no setting 'wdth'; did you mean 'width'"),
        ("ready", {"width": 3}, "is a network already and has no setting 'width'"),
        ("broken", {}, r"cannot be made: ValueError: no weights today \(line 21 of net.py\)"),
    ],
)
def test_what_cannot_be_a_network_is_refused_in_one_line(
    code: Code, name: str, settings: dict[str, Any], said: str
) -> None:
    def make() -> None:
        given = given_code(code.spec(name))
        assert given.network is not None
        load_problem(Experiment(**{**SMALL, "model": model_record(given.network, settings)}), given)

    with pytest.raises(BayeswellError, match=said):
        make()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("absent.py:Net", "there is no file"),
        ("net.py:", "write file.py:Net"),
        (":Net", "write file.py:Net"),
        ("no_such_module:Net", "No module named 'no_such_module'"),
        ("bad name:Net", "neither a .py file nor the name of a module"),
    ],
)
def test_a_spec_that_leads_nowhere_is_one_line(spec: str, said: str) -> None:
    with pytest.raises(BayeswellError, match=said):
        network_code(spec)


def test_a_module_beside_the_user_is_found_by_its_name(code: Code, monkeypatch: pytest.MonkeyPatch) -> None:
    package = code.path.parent / "own_package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "nets.py").write_text(code.path.read_text())
    monkeypatch.chdir(code.path.parent)
    monkeypatch.syspath_prepend(str(code.path.parent))
    found = network_code("own_package_of_a_test.nets:Net")
    assert found.name == "own_package_of_a_test.nets:Net"
    assert issubclass(found.found, nn.Module)


def test_a_run_knows_its_code_again(code: Code, tmp_path: Path) -> None:
    begun(code, tmp_path / "run", width=8)
    record = json.loads((tmp_path / "run" / "config.json").read_text())["problem"]["experiment"]["model"]
    assert record == {"name": "net.py:Net", "sha256": hashlib.sha256(code.path.read_bytes()).hexdigest(), "width": 8}
    assert str(tmp_path) not in json.dumps(record)
    with pytest.raises(FileError, match=r"'net.py:Net' \(sha256 .{12}\.\.\.\) is code .* give it again with --model"):
        evaluate(tmp_path / "run")
    found = evaluate(tmp_path / "run", given=given_code(code.spec()), draws=3)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["test"] == result["test"]


def test_changed_code_is_told_and_a_run_does_not_go_on_with_it(code: Code, tmp_path: Path) -> None:
    chosen, _ = begun(code, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "net.py").write_bytes(code.path.read_bytes())
    resume_run(tmp_path / "run", given=given_code(f"{moved / 'net.py'}:Net"))  # the same bytes elsewhere are the same
    code.path.write_text(code.path.read_text() + "\n# another line\n")
    changed = given_code(code.spec())
    with pytest.warns(BayeswellWarning, match=r"is not what the run was trained with .*sha256 was .* is now"):
        evaluate(tmp_path / "run", given=changed, draws=3)
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(SettingError, match=r"model\.sha256 was '.*', is now '.*'; use force"):
        resume_run(tmp_path / "run", given=changed)
    assert chosen.model["name"] == "net.py:Net"  # type: ignore[index,call-overload]


def forged(code: Code, place: Path, name: str) -> None:
    """A finished run whose settings name code."""
    run(Experiment(**{**SMALL, "model": {"name": "mlp", "hidden": [5]}}), place)
    path = place / "config.json"
    record = json.loads(path.read_text())
    record["problem"]["experiment"]["model"] = {"name": name, "sha256": "0" * 64}
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("where", ["absolute", "relative", "module", "in the run"])
def test_a_forged_config_never_runs_code(
    code: Code, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs" / "forged"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = {"absolute": str(code.path), "relative": "net.py", "module": "net", "in the run": "net.py"}[where]
    forged(code, place, f"{name}:Net")
    (place / "net.py").write_bytes(code.path.read_bytes())
    (tmp_path / "new.csv").write_text(",".join(f"c{i}" for i in range(13)) + "\n" + ",".join("1" * 13) + "\n")
    config = tmp_path / "settings.toml"
    config.write_text(f'model = "{name}:Net"\ndata = "wine"\n')
    commands: list[list[str]] = [
        ["evaluate", str(place)],
        ["predict", str(place), "--input", "new.csv"],
        ["report", str(place), "-q", "--again"],
        ["resume", str(place)],
        ["resume", str(place), "--epochs", "3"],
        ["resume", str(place), "--epochs", "3", "--force"],
        ["train", "--config", str(config), "--out", str(tmp_path / "other"), "-q"],
        ["compare", "--methods", "map", "--config", str(config), "--out", str(tmp_path / "compared"), "-q"],
        ["lr-range", "-d", "wine", "--model", f"{place / 'net.py'}:Net"],
        ["evaluate", str(place), "--model", f"{place / 'net.py'}:Net"],
    ]
    for words in commands:
        main(words)
    monkeypatch.chdir(place)
    assert main(["evaluate", ".", "--model", "net:Net"]) == 2
    assert main(["evaluate", ".", "--model", "net.py:Net"]) == 2
    assert "nothing in the folder of a run is run" in capsys.readouterr().err
    (tmp_path / "link.py").symlink_to(place / "net.py")
    with pytest.raises(SettingError, match="nothing in the folder of a run is run"):
        given_code(f"{tmp_path / 'link.py'}:Net")
    assert code.runs == 0
    assert not (tmp_path / "other").exists()


def test_the_way_to_run_it_is_to_say_so(code: Code, tmp_path: Path) -> None:
    """That the test above could fail: the same code is run when it is asked for."""
    assert main(["train", *ARGUMENTS, "--model", code.spec(), "--out", str(tmp_path / "run")]) == 0
    assert code.runs == 1


def test_code_reaches_other_processes_by_where_it_is_and_objects_as_they_are(code: Code) -> None:
    sent = pickle.loads(pickle.dumps(given_code(code.spec())))
    assert code.runs == 2
    assert sent.network.name == "net.py:Net"
    net = nn.Linear(3, 2)
    again = pickle.loads(pickle.dumps(Given(given_network(net))))
    assert torch.equal(again.network.found.weight, net.weight)
    assert again.network.sha256 == given_network(net).sha256


def test_objects_have_a_name_and_a_sha256_of_their_own() -> None:
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)

    def names(net: Any) -> tuple[str, str]:
        return given_network(net).name, given_network(net).sha256

    assert names(one) == names(one)
    assert names(one)[1] != names(other)[1]
    assert names(one)[0] == ":Linear"
    with pytest.raises(BayeswellError, match="net is of type int"):
        given_network(3)
    with pytest.raises(SettingError, match="is an object of a program"):
        load_problem(Experiment(**{**SMALL, "model": model_record(given_network(one))}))
