"""Values as plain data: what comes out is what a JSON file would give back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest

from bayeswell.plain import fields_of, plain


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


class Spoken:
    def as_json(self) -> dict[str, str]:
        return {"said": "so"}


def test_what_comes_out_is_what_a_file_gives_back() -> None:
    value = {"a": (1, 2.5, [True, None]), 3: Pair((1,), {"deep": Pair("x")}), "own": Spoken()}
    found = plain(value)
    assert found == {
        "a": [1, 2.5, [True, None]],
        "3": {"left": [1], "right": {"deep": {"left": "x", "right": None}}},
        "own": {"said": "so"},
    }
    assert json.loads(json.dumps(found)) == found


def test_numbers_that_are_not_finite() -> None:
    value = Pair(math.inf, [math.nan, 0.5])
    assert plain(value, finite=True) == {"left": None, "right": [None, 0.5]}
    assert plain(value)["left"] == math.inf


def test_other_objects_are_the_callers_to_say() -> None:
    def named(value: Any) -> Any:
        return {"kind": type(value).__name__, **fields_of(value, named)}

    assert plain([Pair(1, Pair(2))], named) == [
        {"kind": "Pair", "left": 1, "right": {"kind": "Pair", "left": 2, "right": None}}
    ]
    thing = object()
    assert plain([thing]) == [thing]
    assert plain(Pair) is Pair

    def refuse(value: Any) -> Any:
        raise ValueError(type(value).__name__)

    with pytest.raises(ValueError, match="object"):
        plain({"a": [thing]}, refuse)
