"""A setting of a run: how it is said, shown and looked at. ``schema`` declares which there are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import SettingError, nearest, require_count


@dataclass(frozen=True)
class Setting:
    """How one setting is said and shown; ``name``, ``kind`` (what is typed for it) and ``default`` are its field's.

    ``shown`` is its default in words, where the value would not tell. ``off`` makes it a switch, with this option for
    no. ``settings`` makes it a choice by name, whose own settings are given by a second option with this help.
    ``unnamed`` is the name that stands for a choice by the data, where its settings are given alone. ``check`` refuses,
    by the setting's name, a value that cannot be.
    """

    panel: str
    help: str
    short: str | None = None
    shown: str | None = None
    metavar: str | None = None
    off: str | None = None
    settings: str | None = None
    unnamed: str | None = None
    check: Callable[[str, Any], None] | None = None
    name: str = ""
    kind: type = str
    default: Any = None

    @property
    def option(self) -> str:
        """The long option."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def settings_option(self) -> str:
        """The option for settings of what was chosen by name; those of the method are set most, so theirs is short."""
        return "--set" if self.name == "method" else f"{self.option}-set"

    def require(self, value: Any) -> None:
        """Refuse a value that cannot be; None stands where it is the default."""
        if self.check is not None and not (value is None and self.default is None):
            self.check(self.name, value)


def count(name: str, value: Any) -> None:
    """A whole number of at least 1."""
    require_count("experiment", name, value)


def whole(least: int, most: int | None = None) -> Callable[[str, Any], None]:
    """A whole number from ``least`` to ``most``."""

    def check(name: str, value: Any) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            end = "" if most is None else f" to {most}"
            raise SettingError(f"{name} = {value!r}; it must be a whole number from {least}{end}")

    return check


TEST = "test"
PREDICTIONS = ("sampled", "linearised", "mean")
"""As in ``types``, which would bring torch."""


def way_to_predict(name: str, value: Any) -> None:
    """How to predict."""
    if value not in PREDICTIONS:
        raise SettingError(f"{name} = {value!r}; {nearest(str(value), PREDICTIONS)}")


def what_to_trace(name: str, value: Any) -> None:
    """Which data the record of training shows besides."""
    if value != TEST:
        raise SettingError(f"{name} = {value!r}; it may be '{TEST}': validation data are measured with `validation`")


def examples(name: str, value: Any) -> None:
    """So many examples, or a share of them."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise SettingError(f"{name} = {value!r}; a number of examples, or a share of them below 1")
    if value >= 1 and value != int(value):
        raise SettingError(f"{name} = {value:g}; a whole number of examples, or a share below 1")


def path_text(name: str, value: Any) -> None:
    """The path of a folder, as a text."""
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"{name} = {value!r}; it must be the path of a folder")


def switch(name: str, value: Any) -> None:
    """On or off."""
    if not isinstance(value, bool):
        raise SettingError(f"{name} = {value!r}; it must be true or false")


def fold_of(name: str, value: Any) -> None:
    """``I/K``: part I of K, from 2 on."""
    found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", value) if isinstance(value, str) else None
    if found is None or int(found[2]) < 2 or int(found[1]) > int(found[2]):
        raise SettingError(f"{name} = {value!r}; write I/K, part I of K: 1/5 to 5/5")
