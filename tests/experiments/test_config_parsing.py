"""Settings as people write them come out as the library's own parts."""

from __future__ import annotations

from typing import Any

import pytest

from bayeswell.errors import SettingError
from bayeswell.experiments import build_method, merged, parse_settings, parse_value
from bayeswell.experiments.config_parsing import as_data_choice
from bayeswell.methods import find_method


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3), ("-2", -2), ("1e-3", 0.001), (".5", 0.5), ("true", True), ("False", False), ("none", None),
        ("[100, 50]", [100, 50]), ('{"a": 1}', {"a": 1}), ("sgd", "sgd"), ("k-tied", "k-tied"), ("", ""),
        ("nan", "nan"), ("inf", "inf"), ("NaN", "NaN"), ("-Infinity", "-Infinity"), ('"3"', "3"),
    ],
)  # fmt: skip
def test_a_value_is_what_it_looks_like(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_settings_nest_by_their_dots_and_the_last_wins() -> None:
    pairs = ["stepper.lr=0.1", "temperature=0.3", "stepper.lr=0.02", "plateau.means.metric=nll"]
    assert parse_settings(pairs, "--set") == {
        "stepper": {"lr": 0.02},
        "temperature": 0.3,
        "plateau": {"means": {"metric": "nll"}},
    }


@pytest.mark.parametrize("order", [["stepper=sgd", "stepper.lr=0.07"], ["stepper.lr=0.07", "stepper=sgd"]])
def test_a_name_and_a_setting_of_one_part_meet_in_either_order(order: list[str]) -> None:
    assert parse_settings(order, "--set") == {"stepper": {"name": "sgd", "lr": 0.07}}


@pytest.mark.parametrize("pair", ["stepper", "=3", ".lr=3", "stepper.=3", "a..b=3"])
def test_a_setting_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(SettingError, match="setting=value"):
        parse_settings([pair], "--set")


def test_another_name_brings_none_of_the_old_settings() -> None:
    base = {"method": {"name": "k-tied", "posterior": {"rank": 3}}}
    assert merged(base, {"method": {"name": "swag"}}) == {"method": {"name": "swag"}}
    assert merged(base, {"method": {"name": "k_tied", "temperature": 0.3}}) == {
        "method": {"name": "k_tied", "posterior": {"rank": 3}, "temperature": 0.3}
    }
    assert base == {"method": {"name": "k-tied", "posterior": {"rank": 3}}}


def test_a_method_changes_in_what_was_set_and_nothing_else() -> None:
    found = build_method({"name": "k-tied", "posterior": {"rank": 3}, "stepper": {"lr": 0.02}, "temperature": 0.7})
    expected = find_method("k-tied").changed(
        posterior={"name": "k_tied", "rank": 3}, stepper={"name": "adam", "lr": 0.02}, temperature=0.7
    )
    assert found == expected


def test_a_part_may_be_replaced_by_another() -> None:
    found = build_method({"name": "bbb", "stepper": {"name": "sgd", "lr": 0.3}, "prior": "xavier"})
    assert found.stepper == {"name": "sgd", "lr": 0.3}
    assert found.prior == "xavier"


def test_settings_of_sharpness_keep_its_others() -> None:
    assert build_method({"name": "f-bbb-geometry", "sharpness": {"rho": 0.3}}).sharpness == {
        "rho": 0.3,
        "geometry": "mean_over_std",
        "norm": "paper",
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"posterir": "x"}, "did you mean 'posterior'"),
        ({"name": "bbbb"}, "did you mean 'bbb'"),
        ({"temperature": "warm"}, "temperature = 'warm'"),
        ({"temperature": None}, "must be a number"),
        ({"members": True}, "must be a number"),
        ({"members": 2.5}, "whole number"),
        ({"summary": "mine"}, "no setting 'summary'"),
    ],
)
def test_a_method_says_what_it_does_not_know(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        build_method({"name": "bbb", **settings})


def test_paths_stand_for_data_of_ones_own() -> None:
    for given, name in (("some/table.csv", "csv"), ("x.NPZ", "npz"), ("./pictures", "images")):
        choice = as_data_choice("data", given)
        assert choice["name"] == name
        assert choice["path"].startswith("/") or ":" in choice["path"]
    assert as_data_choice("data", "digits") == {"name": "digits"}
