"""What holds for the parts of every axis: they are copied, written down and shown."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..registry import Completed, is_plain, settings_of
from .axes import registries, resolved
from .report import Check, Omitted, require, require_same


@dataclass(frozen=True)
class Subject:
    """A part as its axis uses it."""

    axis: str
    part: Any

    @property
    def own(self) -> Any:
        """The object itself, without what completes it."""
        return self.part.part if isinstance(self.part, Completed) else self.part


def deep_copies(subject: Subject) -> None:
    """A copy is of the same class and has the same settings."""
    copied = copy.deepcopy(subject.part)
    _same(subject, copied, "a deep copy")


def pickles(subject: Subject) -> None:
    """It can be pickled, if its class can be imported.

    Nothing in the package reads a pickle; that it comes back as it was is what ``deep_copies`` says, by the same means.
    """
    kind = type(subject.own)
    module = sys.modules.get(kind.__module__)
    if getattr(module, kind.__qualname__.split(".")[0], None) is None or "<" in kind.__qualname__:
        raise Omitted(f"the class {kind.__qualname__} cannot be imported")
    if any(_is_function(value) for value in _values(subject.own)):
        raise Omitted("it holds a function")
    pickle.dumps(subject.part)


def settings_round_trip(subject: Subject) -> None:
    """Name and settings bring back the same part: that is how it is written to files."""
    own = subject.own
    if not isinstance(getattr(own, "name", None), str) or not dataclasses.is_dataclass(own):
        raise Omitted("it is no dataclass with a `name`, so it cannot be written to a file")
    settings = settings_of(own)
    odd = [key for key, value in settings.items() if not is_plain(value)]
    if odd:
        raise Omitted(f"its setting '{odd[0]}' is more than numbers and words, so it cannot be written to a file")
    kind = type(own)
    for registry in registries(subject.axis):
        if registry.knows(settings["name"]):
            known = registry[settings["name"]]
            require(
                known is kind,
                f"its name '{settings['name']}' belongs to {known.__qualname__}, which a file would bring back",
            )
    again = resolved(subject.axis, settings, (kind,))
    _same(subject, again, "the part that its settings bring back")


def has_a_summary(subject: Subject) -> None:
    """The first line of the docstring is what lists of parts show."""
    kind = type(subject.own)
    if not isinstance(getattr(kind, "name", None), str):
        raise Omitted("it has no name, so no list shows it")
    text = (kind.__doc__ or "").strip()
    generated = text.startswith(f"{kind.__name__}(")  # what a dataclass without a docstring gets
    require(bool(text) and not generated, f"the class {kind.__name__} has no docstring; its first line is shown")


EVERY_AXIS: tuple[Check, ...] = (deep_copies, pickles, settings_round_trip, has_a_summary)


def _same(subject: Subject, found: Any, what: str) -> None:
    own = found.part if isinstance(found, Completed) else found
    require(type(own) is type(subject.own), f"{what} is a {type(own).__name__}, not a {type(subject.own).__name__}")
    if dataclasses.is_dataclass(own) and not isinstance(own, type):
        fields = [field.name for field in dataclasses.fields(own) if field.init and is_plain(getattr(own, field.name))]
        require_same(
            f"the settings of {what}",
            {name: getattr(own, name) for name in fields},
            {name: getattr(subject.own, name) for name in fields},
        )
    if isinstance(own, nn.Module):
        require_same(f"the state of {what}", own.state_dict(), subject.own.state_dict())


def _values(part: Any) -> list[Any]:
    return [*getattr(part, "__dict__", {}).values(), part]


def _is_function(value: Any) -> bool:
    return inspect.isfunction(value) and ("<" in value.__qualname__)
