"""Errors and warnings. Each message is one line: what is wrong, the value, what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any


class BayeswellError(Exception):
    """Base class of all errors raised on purpose."""


class SettingError(BayeswellError, ValueError):
    """A setting has a value that is not allowed."""


class Unsupported(BayeswellError, NotImplementedError):
    """A part lacks an optional method that another part calls."""


class MissingExtra(SettingError, ImportError):
    """An optional dependency is not installed."""


class CompositionError(BayeswellError, ValueError):
    """Two parts cannot work together."""


class DataError(BayeswellError, ValueError):
    """Inputs or targets cannot be used as they are."""


class NetworkError(BayeswellError, ValueError):
    """The network cannot be made Bayesian, or behaves in a way that a part cannot handle."""


class FileError(BayeswellError, OSError):
    """A saved file is missing, incomplete, altered or of another kind."""


class DivergenceError(BayeswellError, ArithmeticError):
    """The loss is not finite; the step was not taken."""


class BayeswellWarning(UserWarning):
    """Base class of all warnings."""


class DataWarning(BayeswellWarning):
    """Data are usable but probably not what was meant (scale, softmax outputs, weights)."""


class FitWarning(BayeswellWarning):
    """A check after training failed."""


def nearest(name: str, allowed: Iterable[str], count: int = 3) -> str:
    """Return the end of an error message: the nearest allowed names, or all of them if they are few."""
    names = sorted(allowed)
    by_lower = {one.lower(): one for one in names}
    name = "lr" if name.lower() == "learning_rate" and "lr" in names else name.lower()
    close = difflib.get_close_matches(name, by_lower, n=count)
    if close:
        return f"did you mean {' or '.join(repr(by_lower[c]) for c in close)}?"
    shown = ", ".join(names[:12])
    return f"allowed: {shown}{', ...' if len(names) > 12 else ''}"


def check_number(
    owner: str, setting: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> float:
    """Return ``value`` as a float in [low, high]; ``above=True`` excludes ``low``. numpy numbers are numbers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise SettingError(f"{owner}: `{setting}` must be a finite number, got {value!r}")
    number = float(value)
    if number < low or number > high or (above and number == low):
        lower = f"above {low:g}" if above else f"at least {low:g}"
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise SettingError(f"{owner}: `{setting}` must be {lower}{upper}, got {value!r}")
    return number


def check_integer(owner: str, setting: str, value: Any, low: int = 1) -> int:
    """Return ``value`` as an int of at least ``low``; numpy integers are integers."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise SettingError(f"{owner}: `{setting}` must be an integer of at least {low}, got {value!r}")
    return int(value)


def check_choice(owner: str, setting: str, value: Any, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of the allowed names."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        raise SettingError(f"{owner}: `{setting}` = {value!r}; {nearest(str(value), names, 1)}")
    return value
