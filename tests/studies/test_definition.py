"""Study files: merged settings, grids, random points and claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.definition import PAPERS, draw_setting, merged, nested, read_studies, read_study

from bayeswell.core.errors import SettingError

STUDY = """
title = "Rates"
shared = "shared.toml"
[cells]
one = {method = "bbb", posterior = {initial_std = 0.1}}
two = {method = "map", posterior = {name = "delta"}, grid = {}}
[grid]
temperature = [0.1, 1.0]
[scales.small]
seeds = 2
run = {epochs = 3, model = "mlp", posterior = {initial_std = 0.5}}
each = {two = {epochs = 4}}
[[claims]]
text = "{k} is better"
each = {k = ["one", "two"]}
only = ["first"]
rule = {value = "{k}", score = "nll", between = [0, 1], at = {optimizer = {lr = 0.1}}}
[variants.first]
run = {data = "digits"}
[variants.second]
run = {data = "wine"}
"""
SHARED = """
[run]
model = "lenet5"
model_settings = {width = 6}
posterior = {parameter = "rho"}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "shared.toml").write_text(SHARED)
    path = tmp_path / "rates.toml"
    path.write_text(STUDY)
    return path


def test_variants_are_studies(file):
    first, second = read_study(file)
    assert (first.name, second.name) == ("first", "second")
    assert second.scales["small"].cells[0].settings["data"] == "wine"
    assert (len(first.claims), len(second.claims)) == (2, 0)


def test_settings_are_merged_in_order(file):
    cells = read_study(file)[0].scales["small"].cells
    assert [cell.name for cell in cells] == ["one@temperature=0.1", "one@temperature=1", "two"]
    settings = cells[0].settings
    assert settings["posterior"] == {"parameter": "rho", "initial_std": 0.1}
    assert settings["temperature"] == 0.1
    assert settings["epochs"] == 3
    assert cells[2].settings["epochs"] == 4
    assert cells[2].settings["posterior"] == {"name": "delta"}


def test_another_model_takes_no_old_settings(file):
    assert "model_settings" not in read_study(file)[0].scales["small"].cells[0].settings


def test_claims_are_repeated(file):
    claims = read_study(file)[0].claims
    assert [claim.text for claim in claims] == ["one is better", "two is better"]
    assert claims[1].rule["value"] == "two"
    assert claims[0].rule["at"] == {"optimizer.lr": 0.1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[grid]", "[grids]", "unknown key 'grids'"),
        ('value = "{k}"', 'value = "three"', "no cell 'three'"),
        ('value = "{k}"', 'values = "{k}"', "needs one of"),
        ("[scales.small]", "[scales.tiny]", "no scale 'tiny'"),
    ],
)
def test_mistakes_are_refused(file, old, new, message):
    file.write_text(STUDY.replace(old, new))
    with pytest.raises(SettingError, match=message):
        read_study(file)


def test_merged_replaces_parts_of_another_name():
    base = {"optimizer": {"name": "adam", "lr": 1.0}}
    assert merged(base, {"optimizer": {"lr": 2.0}}) == {"optimizer": {"name": "adam", "lr": 2.0}}
    assert merged(base, {"optimizer": {"name": "sgd"}}) == {"optimizer": {"name": "sgd"}}
    assert nested("a.b", 1) == {"a": {"b": 1}}


def test_random_search_draws_v_plus_half_v_noise():
    """Mean and std of N(v, v/2) above 0 against the truncated normal, within 5 standard errors."""
    draws = np.array([draw_setting({"near": [2.0]}, seed) for seed in range(4000)])
    density, cdf = math.exp(-2) / math.sqrt(2 * math.pi), 0.5 * (1 + math.erf(2 / math.sqrt(2)))
    ratio = density / cdf
    assert abs(draws.mean() - (2 + ratio)) < 5 * draws.std() / math.sqrt(4000)
    assert abs(draws.var() - (1 - 2 * ratio - ratio**2)) < 5 * draws.var() * math.sqrt(2 / 4000)
    assert draws.min() > 0
    assert draw_setting({"near": [0]}, 1) == 0.0
    assert all(draw_setting({"near": [0.9], "below": 1}, seed) < 1 for seed in range(100))


def test_log_uniform_draws():
    draws = np.log([draw_setting({"from": 0.01, "to": 1, "log": True}, seed) for seed in range(2000)])
    assert abs(draws.mean() - 0.5 * math.log(0.01)) < 5 * draws.std() / math.sqrt(2000)


def test_all_studies_can_be_read():
    studies = read_studies()
    assert {study.folder.name for study in studies} == set(PAPERS)
    assert all("smoke" in study.scales and "paper" in study.scales for study in studies)
