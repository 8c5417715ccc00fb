"""What a sweep varies: for each setting a range or a few choices, written as one piece of text.

``stepper.lr=1e-4:1e-1:log``    a number between two others, even on the log scale
``temperature=0.01:1``          the same, even on the plain scale
``posterior.rank=1:8``          a whole number, because both ends are written as whole numbers
``temperature=0.01,0.1,1``      one of these
``stepper.lr=near:0.001,0.01``  one of these, v, then N(v, v/2), drawn again until above 0 (``random_settings``)
``stepper.momentum=near:0.5,0.9:below=1``  and below 1
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import SettingError
from ..random_settings import near_fault

Value: TypeAlias = bool | int | float | str

GRAMMAR = "write name=low:high, name=low:high:log, name=a,b,c or name=near:a,b,c"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_WHOLE = re.compile(r"[+-]?\d+")
_NEAR, _BELOW = "near:", ":below="


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both ends included; whole ones if ``whole``."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def text(self) -> str:
        return f"{self._end(self.low)!r}:{self._end(self.high)!r}{':log' if self.log else ''}"

    def _end(self, end: float) -> float:
        """Whole ends are written so only if the range is whole: how they are written says that it is."""
        return int(end) if self.whole and end == int(end) else float(end)


@dataclass(frozen=True)
class Choices:
    """One of a few values."""

    values: tuple[Value, ...]

    @property
    def text(self) -> str:
        return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in self.values)


@dataclass(frozen=True)
class Near:
    """One of a few values v, then N(v, v/2), drawn again until above 0 and below ``below``."""

    values: tuple[float, ...]
    below: float = math.inf

    @property
    def text(self) -> str:
        end = f":below={self.below!r}" if self.below < math.inf else ""
        return f"{_NEAR}{','.join(map(repr, self.values))}{end}"


Spread: TypeAlias = Range | Choices | Near
Space: TypeAlias = Mapping[str, Spread]


def parse_space(texts: Iterable[str]) -> dict[str, Spread]:
    """A space from lines such as ``stepper.lr=1e-4:1e-1:log``."""
    space: dict[str, Spread] = {}
    for text in texts:
        name, equals, spread = (part.strip() for part in text.partition("="))
        if not equals:
            raise SettingError(f"space {text!r}: no '='; {GRAMMAR}")
        if name in space:
            raise SettingError(f"space: '{name}' is given twice; give each setting one range")
        space[name] = parse_spread(name, spread)
    return check_space(space)


def check_space(space: Mapping[str, Spread | str | Sequence[Value]]) -> dict[str, Spread]:
    """A space with every name and range in order; ranges may still be text, and choices a list."""
    if not space:
        raise SettingError(f"space: nothing to vary; {GRAMMAR}")
    for name in space:
        if not _NAME.fullmatch(name):
            raise SettingError(f"space: {name!r} is not the name of a setting; write words joined by dots")
    parsed = {name: _checked(name, spread) for name, spread in space.items()}
    for name in parsed:
        inner = [other for other in parsed if other.startswith(f"{name}.")]
        if inner:
            raise SettingError(f"space: '{name}' and '{inner[0]}' cannot both vary: one lies inside the other")
    return parsed


def _checked(name: str, spread: object) -> Spread:
    """One range or list of choices, which its text gives again: that is what is kept with a sweep."""
    if isinstance(spread, str):
        return parse_spread(name, spread)
    if isinstance(spread, Choices | list | tuple):
        return _choices(name, spread.values if isinstance(spread, Choices) else spread)
    if not isinstance(spread, Range | Near):
        raise SettingError(f"space: {name} = {spread!r:.80}; give a list of choices, or {GRAMMAR}")
    again = parse_spread(name, spread.text)
    if isinstance(spread, Range) and again != spread:
        raise SettingError(f"space: {name} = '{spread.low}:{spread.high}': a range of whole numbers needs whole ends")
    return again


def _choices(name: str, given: Sequence[object]) -> Choices:
    """Choices value by value: none may read as another, or as several."""
    found = Choices(tuple(_choice(name, given, value) for value in given))
    if len(found.values) < 2:
        hint = "a single value is a setting, not a range; " if found.values else ""
        raise SettingError(f"space: {name} = {_shown(given)}: {hint}give two choices or more")
    if found.text.startswith(_NEAR):
        raise SettingError(
            f"space: {name} = {_shown(given)}: the choice {found.values[0]!r} begins as a range; give another text"
        )
    parse_spread(name, found.text)  # empty ones, infinite ones, and one given twice
    return found


def _choice(name: str, given: Sequence[object], value: object) -> Value:
    """The value itself, as a plain one."""
    owner = f"space: {name} = {_shown(given)}: the choice {value!r:.80}"
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):  # numbers of NumPy are such, and are written otherwise
        return int(value) if isinstance(value, int) else float(value)
    if not isinstance(value, str):
        raise SettingError(f"{owner} is neither true or false, a number nor a text; leave it out")
    if "," in value:
        raise SettingError(f"{owner} holds a comma, which parts choices; give a text without one")
    read = _value(value.strip())
    if read != value:
        raise SettingError(f"{owner} is a text that reads as {read!r}; give {read!r} itself, or another text")
    return value


def _shown(given: Sequence[object]) -> str:
    return f"{list(given)!r:.80}"


def parse_spread(name: str, text: str) -> Spread:
    """One range or list of choices; the name is for messages."""
    if text.startswith(_NEAR):
        return _near(name, text)
    if "," in text:
        values = tuple(_value(part.strip()) for part in text.split(","))
        if "" in values:
            raise SettingError(f"space: {name} = {text!r}: a choice is empty; write name=a,b,c")
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):
            raise SettingError(f"space: {name} = {text!r}: choices must be finite")
        if len(set(values)) < len(values):
            raise SettingError(f"space: {name} = {text!r}: a choice is given twice")
        return Choices(values)
    parts = [part.strip() for part in text.split(":")]
    if len(parts) not in (2, 3):
        hint = "a single value is a setting, not a range; " if len(parts) == 1 else ""
        raise SettingError(f"space: {name} = {text!r}: {hint}{GRAMMAR}")
    if len(parts) == 3 and parts[2] != "log":
        raise SettingError(f"space: {name} = {text!r}: {parts[2]!r} is unknown; allowed after the second ':' is log")
    return _range(name, text, parts[0], parts[1], log=len(parts) == 3)


def _near(name: str, text: str) -> Near:
    listed, bounded, bound = text.removeprefix(_NEAR).partition(_BELOW)
    try:
        values, below = [float(part) for part in listed.split(",")], float(bound) if bounded else math.inf
    except ValueError as error:
        raise SettingError(
            f"space: {name} = {text!r}: write numbers, name=near:0.5,0.9 or name=near:0.5,0.9:below=1"
        ) from error
    fault = near_fault(values, below)
    if fault is not None:
        raise SettingError(f"space: {name} = {text!r}: {fault}")
    return Near(tuple(values), below)


def _range(name: str, text: str, low_text: str, high_text: str, *, log: bool) -> Range:
    whole = all(_WHOLE.fullmatch(part) for part in (low_text, high_text))
    try:
        low, high = float(low_text), float(high_text)
    except ValueError as error:
        raise SettingError(f"space: {name} = {text!r}: both ends must be numbers; {GRAMMAR}") from error
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SettingError(f"space: {name} = {text!r}: both ends must be finite")
    if low >= high:
        raise SettingError(f"space: {name} = {text!r}: the low end must be below the high end")
    if log and low <= 0:
        raise SettingError(f"space: {name} = {text!r}: on the log scale the low end must be above 0")
    if whole:
        return Range(int(low_text), int(high_text), log, whole=True)
    return Range(low, high, log)


def _value(text: str) -> Value:
    """A number or a truth value if it reads as one, else the text itself."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def corners(space: Space) -> list[dict[str, Value]]:
    """A few points that have every end and every choice in them: to see, before any work, that all can be set."""
    ends = {
        name: (spread.low, spread.high) if isinstance(spread, Range) else spread.values
        for name, spread in space.items()
    }
    most = max(len(values) for values in ends.values())
    return [{name: values[min(index, len(values) - 1)] for name, values in ends.items()} for index in range(most)]
