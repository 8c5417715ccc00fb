"""The ranges of a sweep, as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayeswell.errors import SettingError
from bayeswell.sweeps import Choices, Range, parse_space
from bayeswell.sweeps.space import check_space


def test_every_kind_of_range_is_read() -> None:
    space = parse_space(
        [
            "stepper.lr = 1e-4:1e-1:log",
            "posterior.rank=1:8",
            "method.prior.std=0.5:2",
            "temperature=0.01,0.1,1",
            "k=1:64:log",
        ]
    )
    assert space == {
        "stepper.lr": Range(1e-4, 0.1, log=True),
        "posterior.rank": Range(1, 8, whole=True),
        "method.prior.std": Range(0.5, 2.0),
        "temperature": Choices((0.01, 0.1, 1)),
        "k": Range(1, 64, log=True, whole=True),
    }
    assert isinstance(space["posterior.rank"].low, int)
    assert parse_space(["likelihood.learned=true,false", "model=mlp,lenet"]) == {
        "likelihood.learned": Choices((True, False)),
        "model": Choices(("mlp", "lenet")),
    }


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["stepper.lr"], "no '='"),
        (["=1:2"], "'' is not the name of a setting"),
        (["a b=1:2"], "'a b' is not the name"),
        (["../x=1:2"], "'../x' is not the name"),
        (["lr=1"], "a single value is a setting"),
        (["lr="], "a single value is a setting"),
        (["lr=1:2:3:4"], "write name=low:high"),
        (["lr=1:2:lin"], "'lin' is unknown; allowed after the second ':' is log"),
        (["lr=a:b"], "both ends must be numbers"),
        (["lr=:1"], "both ends must be numbers"),
        (["lr=2:1"], "the low end must be below the high end"),
        (["lr=1:1"], "the low end must be below the high end"),
        (["lr=0:1:log"], "on the log scale the low end must be above 0"),
        (["lr=nan:1"], "both ends must be finite"),
        (["lr=0.1:inf"], "both ends must be finite"),
        (["lr=1,,2"], "a choice is empty"),
        (["lr=1,1"], "a choice is given twice"),
        (["lr=1,inf"], "choices must be finite"),
        (["lr=1:2", "lr=3:4"], "'lr' is given twice"),
        (["a=x,y", "a.b=3:4"], "'a' and 'a.b' cannot both vary"),
        ([], "nothing to vary"),
    ],
)
def test_a_bad_range_is_refused_in_one_line(texts: list[str], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_space(texts)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6))


@given(low=numbers, high=numbers, log=st.booleans())
def test_the_text_of_a_range_gives_the_range_again(low: float, high: float, log: bool) -> None:
    if low >= high or (log and low <= 0):
        return
    whole = isinstance(low, int) and isinstance(high, int)
    found = Range(low, high, log, whole)
    again = check_space({"x": found})["x"]
    assert again == found
    assert again.whole == whole


def test_choices_may_be_a_list_and_what_is_no_range_is_refused_in_one_line() -> None:
    found = check_space({"stepper.lr": [0.1, 0.01], "where": ("all", "last_layer"), "temperature": "0.1,1"})
    assert found == parse_space(["stepper.lr=0.1,0.01", "where=all,last_layer", "temperature=0.1,1"])
    for wrong in (0.1, {"low": 1}, None):
        with pytest.raises(SettingError, match=r"space: lr = .*give a list of choices, or write name=low:high"):
            check_space({"lr": wrong})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (["fc*,head", "all"], "the choice 'fc*,head' holds a comma, which parts choices; give a text without one"),
        ([None, 1.0], "the choice None is neither true or false, a number nor a text; leave it out"),
        ([(0.9, 0.99), (0.8, 0.9)], "the choice (0.9, 0.99) is neither true or false, a number nor a text"),
        (["1", "2"], "the choice '1' is a text that reads as 1; give 1 itself, or another text"),
        (["a", "true"], "the choice 'true' is a text that reads as True; give True itself, or another text"),
        (["a", "1e3"], "the choice '1e3' is a text that reads as 1000.0"),
        ([" a", "b"], "the choice ' a' is a text that reads as 'a'"),
        (["near:x", "y"], "the choice 'near:x' begins as a range; give another text"),
        (["a", ""], "a choice is empty"),
        ([1.0, float("inf")], "choices must be finite"),
        ([1, True], "a choice is given twice"),
        (["0:1"], "a single value is a setting, not a range; give two choices or more"),
        ([], "give two choices or more"),
    ],
)
@pytest.mark.parametrize("form", [list, tuple, lambda values: Choices(tuple(values))])
def test_a_list_that_text_cannot_hold_is_refused_in_one_line(choices: list[Any], said: str, form: Any) -> None:
    with pytest.raises(SettingError) as caught:
        check_space({"where": form(choices)})
    assert str(caught.value).startswith("space: where = ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


values = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["near:", "1", "true", "x"]))


@given(st.lists(values, max_size=4))
def test_a_list_is_refused_or_stays_what_it_is(choices: list[Any]) -> None:
    try:
        found = check_space({"x": choices})["x"]
    except SettingError:
        return
    assert isinstance(found, Choices)
    assert [(type(value), value) for value in found.values] == [(type(value), value) for value in choices]
    again = parse_space([f"x={found.text}"])["x"]
    assert again == found
    assert list(map(type, again.values)) == list(map(type, choices))


def test_numbers_of_numpy_are_numbers() -> None:
    found = check_space({"x": list(np.array([0.1, 0.01])), "y": Range(np.float64(0.1), 1.0)})
    assert found == {"x": Choices((0.1, 0.01)), "y": Range(0.1, 1.0)}
    assert repr(found["x"]) == "Choices(values=(0.1, 0.01))"


def test_whole_ends_do_not_make_a_range_whole_that_is_not() -> None:
    assert check_space({"x": Range(0, 1)})["x"] == Range(0.0, 1.0, whole=False)
    assert check_space({"x": Range(1.0, 8.0, whole=True)})["x"] == Range(1, 8, whole=True)
    with pytest.raises(SettingError, match=r"space: x = '1.5:8': a range of whole numbers needs whole ends"):
        check_space({"x": Range(1.5, 8, whole=True)})
