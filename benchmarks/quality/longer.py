"""The control at the cost of the others: ordinary training for more epochs.

``map*5`` is ``map`` with five times the epochs, for methods that cost five times as much: is it the method, or only the
longer training?
"""

from __future__ import annotations

FACTORS = (2, 5)
_SIGN = "*"


def longer(method: str, factor: int) -> str:
    """The name of a method that is trained for so many times the epochs."""
    return f"{method}{_SIGN}{factor}"


def parted(name: str) -> tuple[str, int]:
    """The method and the factor of its epochs: ("map", 5) of "map*5", 1 of any other."""
    method, sign, factor = name.partition(_SIGN)
    return (method, int(factor)) if sign and factor.isdigit() and int(factor) > 1 else (name, 1)
