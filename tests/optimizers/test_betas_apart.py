"""``beta1`` and ``beta2`` of Adam and its kin, each by a name of its own, wherever settings are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeswell.cli.options import experiment_from
from bayeswell.errors import SettingError
from bayeswell.experiments import Experiment
from bayeswell.experiments.config_parsing import merged, parse_settings, read_config
from bayeswell.methods import Method, find_method, resolve
from bayeswell.optimizers import OPTIMIZERS, Adam
from bayeswell.registry import settings_of
from bayeswell.studies import read_study

KIN = ("adam", "amsgrad", "adamw", "radam", "adabound", "amsbound")


@pytest.mark.parametrize("name", KIN)
def test_one_beta_leaves_the_other_as_it_was(name: str) -> None:
    first, second = OPTIMIZERS.resolve(name).betas
    assert OPTIMIZERS.resolve({"name": name, "beta1": 0.7}).betas == (0.7, second)
    assert OPTIMIZERS.resolve({"name": name, "beta2": 0.6}).betas == (first, 0.6)
    assert OPTIMIZERS.resolve({"name": name, "beta2": 0.6, "beta1": 0.7}).betas == (0.7, 0.6)
    assert OPTIMIZERS.resolve({"name": name, "betas": [0.5, 0.4], "beta2": 0.6}).betas == (0.5, 0.6)
    part = OPTIMIZERS.resolve({"name": name, "beta1": 0.7})
    assert OPTIMIZERS.resolve(json.loads(json.dumps(settings_of(part)))) == part
    built = part.build([{"params": [torch.zeros(2, requires_grad=True)]}])
    assert built.param_groups[0]["betas"] == (0.7, second)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"name": "adam", "beta1": 1.0}, r"adam: betas = 1.0; it must lie in \[0, 1\)"),
        ({"name": "adam", "beta2": "x"}, r"adam: betas = 'x'; it must lie in \[0, 1\)"),
        ({"name": "adam", "betas": [0.9], "beta2": 0.5}, r"adam: betas = \[0.9\]; there must be two"),
        ({"name": "adam", "betas": 0.9, "beta2": 0.5}, r"adam: betas = 0.9; there must be two"),
        ({"name": "adam", "beta3": 0.9}, r"has no setting 'beta3'; did you mean 'beta"),
        ({"name": "sgd", "beta1": 0.9}, r"optimizer 'sgd' has no setting 'beta1'"),
    ],
)
def test_what_is_no_beta_is_refused(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        OPTIMIZERS.resolve(choice)


def betas_of(experiment: Experiment) -> tuple[float, float]:
    found: tuple[float, float] = resolve(experiment.method_part).stepper.betas  # type: ignore[attr-defined]
    return found


def test_command_line_toml_and_python_say_it_alike(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('data = "wine"\n[method]\nname = "bbb"\nstepper.beta2 = 0.95\n')
    by_file = Experiment.from_json(read_config(tmp_path / "run.toml", ("data", "method")))
    by_line = Experiment(method={"name": "bbb", **parse_settings(["stepper.beta2=0.95"], "--set")}, data="wine")
    assert betas_of(by_file) == betas_of(by_line) == (0.9, 0.95)
    assert betas_of(Experiment.from_json(by_file.as_json()).changed({"method.stepper.beta1": 0.3})) == (0.3, 0.95)
    other = Experiment(method={"name": "bbb", "stepper": {"name": "amsgrad", "beta1": 0.3}}, data="wine")
    assert betas_of(other) == (0.3, 0.999)
    by_part = find_method("bbb").changed(stepper=Adam(betas=(0.8, 0.7))).changed(stepper={"beta2": 0.95})
    assert resolve(by_part).stepper.betas == (0.8, 0.95)  # type: ignore[attr-defined]
    by_table = find_method("map").changed(stepper={"name": "adam", "beta1": 0.3})
    assert resolve(by_table).stepper.betas == (0.3, 0.999)  # type: ignore[attr-defined]


def stepper_betas(method: Method) -> tuple[float, float]:
    found: tuple[float, float] = resolve(method).stepper.betas  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize("start", ["bbb", "named"])
def test_of_both_the_one_said_later_stands(name: str, start: str) -> None:
    first = {"beta1": 0.5, "beta2": 0.6, **({"name": name} if start == "named" else {})}
    one = find_method("bbb").changed(stepper=first)
    assert stepper_betas(one) == (0.5, 0.6)
    pair = one.changed(stepper={"betas": [0.9, 0.99]})
    assert stepper_betas(pair) == (0.9, 0.99)
    again = pair.changed(stepper={"beta1": 0.3})
    assert stepper_betas(again) == (0.3, 0.99)
    assert stepper_betas(again.changed(stepper={"eps": 1e-6})) == (0.3, 0.99)
    assert stepper_betas(again.changed(stepper={"betas": (0.8, 0.7), "beta2": 0.6})) == (0.8, 0.6)


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("stepper.beta1 = 0.5", ["stepper.betas=[0.9, 0.99]"], (0.9, 0.99)),
        ('stepper = {name = "adamw", beta1 = 0.5}', ["stepper.betas=[0.9, 0.99]"], (0.9, 0.99)),
        ("stepper.betas = [0.5, 0.6]", ["stepper.beta1=0.9"], (0.9, 0.6)),
        ("", ["stepper.beta1=0.5", "stepper.betas=[0.9, 0.99]"], (0.9, 0.99)),
        ("", ["stepper.betas=[0.9, 0.99]", "stepper.beta1=0.5"], (0.5, 0.99)),
        ("stepper.beta1 = 0.5", ["lr=0.1"], (0.5, 0.999)),
    ],
)
def test_what_the_command_line_says_of_them_wins(
    file: str, line: list[str], found: tuple[float, float], tmp_path: Path
) -> None:
    (tmp_path / "run.toml").write_text(f'data = "wine"\n[method]\nname = "bbb"\n{file}\n')
    experiment, _ = experiment_from({"config": tmp_path / "run.toml", "method_set": line})
    assert betas_of(experiment) == found
    assert betas_of(Experiment.from_json(json.loads(json.dumps(experiment.as_json(), sort_keys=True)))) == found


def test_a_number_that_is_no_element_of_the_list_stays() -> None:
    table = {"stepper": {"name": "ivon", "beta1": 0.5}}
    assert merged(table, {"stepper": {"betas": [0.9, 0.99]}}) == {
        "stepper": {"name": "ivon", "beta1": 0.5, "betas": [0.9, 0.99]}
    }


def test_a_study_has_them_in_its_grid_and_its_random_points(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("""
title = "t"
paper = "p"
scores = ["accuracy"]
[run]
data = "digits"
[cells.adam]
method = {name = "bbb", stepper = {name = "adam"}}
grid = {"method.stepper.beta2" = [0.5, 0.99]}
[cells.adam.random]
"method.stepper.beta1" = {near = [0.9], below = 1}
[scales.cpu]
""")
    cells = read_study(tmp_path / "s.toml").scale("cpu").cells
    assert [betas_of(cell.experiment)[1] for cell in cells] == [0.5, 0.99]
    assert [betas_of(cell.experiment)[0] for cell in cells] == [cell.at["method.stepper.beta1"] for cell in cells]
