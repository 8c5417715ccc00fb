"""Parts by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest

from bayeswell.core.errors import SettingError
from bayeswell.core.registry import REGISTRIES, Registry, describe, register


@dataclass(frozen=True)
class Square:
    side: float = 1.5
    name: ClassVar[str] = "square-shape"

    def area(self) -> float:
        return self.side**2


@pytest.fixture
def shapes() -> Iterator[Registry[Square]]:
    yield Registry("shape", Square, requires=("area",), adapt=lambda c: Square(c) if isinstance(c, complex) else None)
    del REGISTRIES["shape"]


@pytest.mark.parametrize("choice", ["square-shape", "square_shape", {"name": "square-shape"}, Square()])
def test_names_mappings_and_objects_resolve_alike(shapes: Registry[Square], choice: object) -> None:
    assert shapes.resolve(choice) == Square()


def test_describe_is_inverted_by_resolve(shapes: Registry[Square]) -> None:
    assert shapes.resolve(describe(Square(2.25))) == Square(2.25)


def test_ordinary_objects_are_adapted(shapes: Registry[Square]) -> None:
    assert shapes.resolve(2j).side == 2j


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("squar-shape", "square"),
        ({"name": "square-shape", "sid": 2}, "'side'"),
        ({"side": 2}, "'name'"),
        (None, "shape = None"),
        (Square, "class"),
        (object(), "`area`"),
    ],
)
def test_wrong_choices_are_refused_by_name(shapes: Registry[Square], choice: object, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        shapes.resolve(choice)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_register_refuses_a_name_that_is_in_use(shapes: Registry[Square]) -> None:
    class Other:
        name = "square-shape"
        area = 1

    with pytest.raises(SettingError, match="already registered"):
        register("shape", Other)


def test_register_adds_a_part(shapes: Registry[Square]) -> None:
    class Disc:
        name = "disc"
        area = 3

    register("shape", Disc)
    assert isinstance(shapes.resolve("disc"), Disc)
