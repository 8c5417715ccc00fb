"""Errors a user can catch: each message is one line that names the thing, its value and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class BayeswellError(Exception):
    """Base of every error that bayeswell raises on purpose.

    ``model`` is the lifted network as it was before the step that failed, where training was under way.
    """

    model: Any = None


class SettingError(BayeswellError, ValueError):
    """A setting has a value that is not allowed."""


class MissingExtra(SettingError, ImportError):
    """What was asked for needs an extra that is not installed; the line names it and the command that installs it."""


class AbsentError(SettingError, AttributeError):
    """Something that this object does not have (kept samples, a prediction); ``hasattr`` says so too."""


class CompositionError(BayeswellError, ValueError):
    """Two parts that cannot work together were combined; both are named, with the remedy."""


class DataError(BayeswellError, ValueError):
    """Inputs or targets cannot be used as they are."""


class NetworkError(BayeswellError, ValueError):
    """The network cannot be lifted, or behaves in a way that a part cannot handle."""


class FileError(BayeswellError, OSError):
    """A saved file is missing, cut short, altered or of another kind."""


class InUseError(FileError):
    """Another process works on the run in this folder."""


class NetworkNeeded(FileError):
    """A saved model has a network of a class of one's own, which must be given: a file holds no code."""


class BufferMismatch(BayeswellError, ValueError):
    """A tensor is not what a compiled formula would read or write: another length, dtype, device or order in memory."""


class DivergenceError(BayeswellError, ArithmeticError):
    """Training or sampling ran away: a step would have made a number NaN or inf, and was not taken."""


class RankLostError(BayeswellError, RuntimeError):
    """Another process of a run on several devices has gone."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The end of an error line: the nearest valid name, if one is close, and all that are allowed."""
    names = sorted(allowed)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"


def require_positive(owner: str, setting: str, value: float) -> None:
    """Refuse anything but a finite number above zero."""
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SettingError(f"{owner}: {setting} = {value!r}; it must be a finite number above 0")


def require_between(
    owner: str, setting: str, value: float, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    """Refuse anything but a number between two others; an open end is itself not allowed."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    above = number and (low < value if open_low else low <= value)
    if not (above and (value < high if open_high else value <= high)):
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        allowed = f"number in {left}{low:g}, {high:g}{right}"
        if high == float("inf"):
            allowed = (
                "finite number" if low == -high else f"finite number {'above' if open_low else 'of at least'} {low:g}"
            )
        raise SettingError(f"{owner}: {setting} = {value!r}; it must be a {allowed}")


def require_count(owner: str, setting: str, value: int) -> None:
    """Refuse anything but a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingError(f"{owner}: {setting} = {value!r}; it must be a whole number of at least 1")


class BayeswellWarning(UserWarning):
    """Something that a user should know, but that is not an error."""


class ScaleWarning(BayeswellWarning):
    """Inputs or targets are far from unit scale."""


class VerdictWarning(BayeswellWarning):
    """What a result says of itself when training has ended: why it should not be trusted, and what would help."""
