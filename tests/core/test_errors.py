"""Checks of numbers that a user gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayeswell.core.errors import SettingError, check_choice, check_integer, check_number, nearest


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_integers_of_numpy_are_integers(value: object) -> None:
    assert check_integer("fit", "epochs", value) == 3


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3", None])
def test_other_values_are_no_count(value: object) -> None:
    with pytest.raises(SettingError, match="`epochs`"):
        check_integer("fit", "epochs", value)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), 1])
def test_numbers_of_numpy_are_numbers(value: object) -> None:
    assert check_number("adam", "lr", value, 0, 1) == float(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.1, True, "x"])
def test_other_values_are_no_number_in_range(value: object) -> None:
    with pytest.raises(SettingError, match="`lr`"):
        check_number("adam", "lr", value, 0, 1)


def test_open_end_is_excluded() -> None:
    with pytest.raises(SettingError, match="above 0"):
        check_number("adam", "lr", 0.0, 0, above=True)


def test_nearest_names_come_first() -> None:
    assert nearest("bbbb", ["bbb", "map", "hwa"]) == "did you mean 'bbb'?"
    assert "allowed: hwa, map" in nearest("zzz", ["map", "hwa"])
    with pytest.raises(SettingError, match="identity"):
        check_choice("sharpness", "geometry", "identiti", ["identity", "mean_over_std"])
