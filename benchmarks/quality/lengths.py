"""Methods at another length of training than a problem's epochs, by their names.

``map*5`` is ``map`` with five times the epochs, for methods that cost five times as much: is it the method, or only the
longer training? ``deep-ensemble/5`` asks the same from the other side: its epochs are divided by its cost, so that all
members together cost one ordinary training. ``auto@budget=1`` is told that budget, and divides it by its own rule.

Nothing of the package is imported here: worker processes set their threads before they import torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FACTORS = (2, 5)
"""Of the control's epochs."""
_TIMES, _OVER, _BUDGET = "*", "/", "@budget="
_NAME = re.compile(rf"(?P<method>.+)(?P<sign>{re.escape(_TIMES)}|{_OVER}|{_BUDGET})(?P<number>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Length:
    """A method, how many times the problem's epochs it is trained for, and what ``fit`` is given besides."""

    method: str
    factor: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ordinary(self) -> bool:
        """Whether it is the method as it stands in a comparison at equal epochs."""
        return self.factor == 1 and not self.settings

    @property
    def shortened(self) -> bool:
        """Whether it was held to a cost, in the place of the epochs of all."""
        return self.factor < 1 or bool(self.settings)

    def epochs(self, usual: int) -> int:
        """The nearest whole number of epochs, and one at least: the record's passes say what it came to."""
        return max(1, round(self.factor * usual))


def longer(method: str, factor: int) -> str:
    """The name of a method that is trained for so many times the epochs."""
    return f"{method}{_TIMES}{factor}"


def shorter(method: str, cost: float) -> str:
    """The name of a method whose epochs are divided by what a step of it costs."""
    return f"{method}{_OVER}{cost:g}"


def budgeted(method: str, budget: float = 1) -> str:
    """The name of a method that is given a budget, in units of ordinary training."""
    return f"{method}{_BUDGET}{budget:g}"


def parted(name: str) -> Length:
    """The method and its length: five times the epochs of "map*5"; any other name is a method of ordinary length."""
    found = _NAME.fullmatch(name)
    number = float(found["number"]) if found else 0.0
    if found and found["sign"] == _BUDGET:
        return Length(found["method"], settings={"budget": number})
    if found and number > 1:
        return Length(found["method"], number if found["sign"] == _TIMES else 1 / number)
    return Length(name)
