"""Names for parts: one registry for each axis, open to parts from outside the package.

A part is anything with the members that its axis asks for (``bayeswell.types`` has the protocols); most are frozen
dataclasses whose fields are their settings. A *name* is needed only where a part is spoken of in text: on the command
line, in TOML, in saved files. Names come from the package itself, from ``bayeswell.register(axis, Part)``, and from
other installed packages, through the entry-point group ``bayeswell.parts`` (an entry is called ``axis.name``)::

    [project.entry-points."bayeswell.parts"]
    "likelihood.zero_inflated" = "my_package.likelihoods:ZeroInflated"
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .errors import BayeswellWarning, SettingError, nearest

GROUP = "bayeswell.parts"
GIVEN = "given"
"""In a file: the name of a part without settings, which is given again when the file is read."""
PartT = TypeVar("PartT")

AXES: dict[str, Registry[Any]] = {}
"""Every registry by the name of its axis, as far as its room has been imported."""


class Registry(Generic[PartT]):
    """The members of one axis, by name.

    ``requires`` are the members that an object must have to be taken. What else the ``protocol`` of the axis has with a
    default (``noise`` of an estimator, say) may be missing: the part is then completed by it. ``adapt`` makes parts of
    ordinary objects (functions, torch's own classes), or returns None for what it does not know.
    """

    def __init__(
        self,
        axis: str,
        *parts: type[PartT],
        requires: Sequence[str] = (),
        protocol: type | None = None,
        adapt: Callable[[Any], PartT | None] | None = None,
    ) -> None:
        self.axis = axis
        self.requires = tuple(requires)
        self._protocol, self._adapt = protocol, adapt
        self._parts: dict[str, type[PartT]] = {}
        for part in parts:
            self.register(part)
        AXES[axis.lower().replace(" ", "_")] = self

    def register(self, part: type[PartT]) -> type[PartT]:
        """Give a class its name on this axis; the class comes back, so that this serves as a decorator too."""
        name = getattr(part, "name", None)
        if not isinstance(part, type) or not isinstance(name, str) or not name:
            raise SettingError(
                f"{self.axis}: {label_of(part)} cannot be registered; give a class with a class attribute `name`"
            )
        self._require_members(part)
        known = self._parts.get(_key(name))
        if known is not None and (known.__module__, known.__qualname__) != (part.__module__, part.__qualname__):
            raise SettingError(f"{self.axis} '{name}' is taken by {known.__module__}.{known.__qualname__}")
        self._parts[_key(name)] = part
        return part

    def unregister(self, part: type[PartT]) -> None:
        """Take a name back; nothing happens if it is not this class's."""
        name = getattr(part, "name", "")
        if self._parts.get(_key(name)) is part:
            del self._parts[_key(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def knows(self, name: Any) -> bool:
        """Whether there is a part of this name, here or in another installed package."""
        if not isinstance(name, str):
            return False
        if _key(name) not in self._parts:
            self._look_outside(_key(name))
        return _key(name) in self._parts

    def __getitem__(self, name: str) -> type[PartT]:
        if not self.knows(name):
            raise SettingError(f"unknown {self.axis} '{name}'; {nearest(str(name), self._parts)}")
        return self._parts[_key(name)]

    def resolve(self, choice: Any, outside: Sequence[Any] = ()) -> PartT:
        """A part from its name, from ``{"name": ..., setting: value}``, or from an object.

        An object is taken if it has what the axis asks for, or if it is one of the ordinary objects that the axis
        knows how to use. ``outside`` are classes (or objects without settings) whose names count too, here and now.
        """
        if isinstance(choice, str):
            return self._build(choice, {}, outside)
        if isinstance(choice, Mapping):
            settings = dict(choice)
            if GIVEN in settings:
                return self._given(settings[GIVEN], outside)
            if "name" not in settings:
                raise SettingError(f"{self.axis}: a mapping needs the key 'name'; it has {sorted(settings)}")
            return self._build(settings.pop("name"), settings, outside)
        adapted = None if self._adapt is None else self._adapt(choice)
        if adapted is not None:
            return adapted
        if isinstance(choice, type):
            raise SettingError(f"{self.axis} = {choice!r} is a class; give an object: {choice.__name__}(...)")
        if choice is None or isinstance(choice, int | float | list | tuple):
            raise SettingError(
                f"{self.axis} = {choice!r} is neither a name, a mapping nor a {self.axis}; {nearest('', self)}"
            )
        self._require_members(choice)
        part: PartT = self._completed(choice)
        return part

    def _completed(self, part: Any) -> Any:
        """The part itself, or with the protocol's defaults where it lacks something that has one."""
        if self._protocol is None or self._protocol in type(part).__mro__:
            return part
        wanted = {name for kind in self._protocol.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
        return part if all(hasattr(part, name) for name in wanted | {"name"}) else Completed(part, self._protocol)

    def _given(self, name: Any, outside: Sequence[Any]) -> PartT:
        """The object that a file only names."""
        for part in outside:
            if kind_of(part) == name:
                # A copy: what is loaded into it is not loaded into the given one.
                return self.resolve(part() if isinstance(part, type) else copy.deepcopy(part))
        raise SettingError(f"the {self.axis} is `{name}` of your own, which a file cannot hold")

    def _require_members(self, part: Any) -> None:
        missing = [member for member in self.requires if not hasattr(part, member)]
        if missing:
            lacks = ", ".join(f"`{member}`" for member in missing)
            raise SettingError(
                f"{self.axis} {kind_of(part)} lacks {lacks}; what a part needs is in bayeswell.types; by name there "
                f"are: {', '.join(sorted(self._parts))}"
            )

    def _build(self, name: str, settings: Mapping[str, Any], outside: Sequence[Any]) -> PartT:
        classes = [part for part in outside if isinstance(part, type) and isinstance(getattr(part, "name", None), str)]
        part: Any = next((one for one in classes if _key(getattr(one, "name", "")) == _key(str(name))), None)
        return self._made(self[name] if part is None else part, f"'{name}'", settings)

    def _made(self, part: type[PartT], label: str, settings: Mapping[str, Any]) -> PartT:
        if dataclasses.is_dataclass(part):
            settings = known_settings(f"{self.axis} {label}", part, settings)
        try:
            made = part(**settings)
        except TypeError as error:
            raise SettingError(f"{self.axis} {label} cannot be made: {error}") from error
        completed: PartT = self._completed(made)
        return completed

    def _look_outside(self, wanted: str | None = None) -> None:
        """Take in what other installed packages offer under a name, or all that they offer for this axis.

        Optimizers and samplers may both be called ``stepper.name``. Only what is asked for is imported, and a package
        that is broken is told of and left out.
        """
        axis = self.axis.lower().replace(" ", "_")
        for entry in _offered_outside():
            kind, _, name = entry.name.partition(".")
            if kind not in (axis, *(("stepper",) if axis in ("optimizer", "sampler") else ())):
                continue
            if _key(name) in self._parts or wanted not in (None, _key(name)):
                continue
            try:
                part = entry.load()
                if kind == axis or bool(getattr(part, "samples", False)) == (axis == "sampler"):
                    self.register(part)
            except Exception as error:
                reason = " ".join(str(error).split())
                note = f"{self.axis} '{name}' of {entry.value} cannot be used ({type(error).__name__}: {reason:.150})"
                warnings.warn(note, BayeswellWarning, stacklevel=4)

    def summaries(self) -> dict[str, tuple[str, str]]:
        """For every name, those of other installed packages too: the one-line summary and the paper."""
        self._look_outside()
        return {
            name: ((part.__doc__ or "").strip().partition("\n")[0], getattr(part, "paper", ""))
            for name, part in self._parts.items()
        }


def _offered_outside() -> tuple[EntryPoint, ...]:
    """What other installed packages offer: read again only if a folder of the path has changed, as it takes 20 ms."""
    return _read_offers(entry_points, tuple((folder, _changed_at(folder)) for folder in sys.path))


@functools.lru_cache(maxsize=4)
def _read_offers(
    read: Callable[..., Iterable[EntryPoint]], path: tuple[tuple[str, int | None], ...]
) -> tuple[EntryPoint, ...]:
    return tuple(read(group=GROUP))


def _changed_at(folder: str) -> int | None:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return None


class Completed:
    """A part from outside together with its protocol's defaults for what it does not have."""

    def __init__(self, part: Any, protocol: type) -> None:
        self.part, self._protocol = part, protocol

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("part", "_protocol"):
            raise AttributeError(name)
        try:
            return getattr(self.part, name)
        except AttributeError:
            if name == "name":
                return label_of(self.part).strip("'")
            default = inspect.getattr_static(self._protocol, name)
        return default.__get__(self) if hasattr(default, "__get__") else default

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.part(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.part)


def bare(part: Any) -> Any:
    """The part itself, without what it was completed by."""
    return part.part if isinstance(part, Completed) else part


def _key(name: str) -> str:
    return name.replace("-", "_")


def label_of(part: Any) -> str:
    """What to call a part in a message: its name, or that of its class or function."""
    name = getattr(part, "name", None)
    if isinstance(name, str):
        return f"'{name}'"
    return kind_of(part)


def kind_of(part: Any) -> str:
    """The name of a part's class, or of the class or function that it is."""
    return str(getattr(part, "__name__", type(part).__name__))


def known_settings(owner: str, part: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a dataclass, or of one that there is, after a look at their names.

    A part may have ``elements``, names for single numbers of its lists: ``{"beta1": ("betas", 0)}``. Such a number
    stands where one table gives both (of two tables the later one wins: ``elements``); what is not given of the list
    is the part's own.
    """
    fields = {field.name for field in dataclasses.fields(part) if field.init}
    elements: Mapping[str, tuple[str, int]] = getattr(part, "elements", {})
    for key in settings:
        if key not in fields and key not in elements:
            raise SettingError(f"{owner} has no setting '{key}'; {nearest(key, fields | elements.keys())}")
    whole = {key: value for key, value in settings.items() if key in fields}
    for name, (field, place) in elements.items():
        numbers = whole.get(field, getattr(part, field))
        # A list that is none is left for the part to refuse.
        if name in settings and isinstance(numbers, list | tuple) and len(numbers) > place:
            whole[field] = (*numbers[:place], settings[name], *numbers[place + 1 :])
    return whole


def settings_of(part: Any) -> dict[str, Any]:
    """A part as plain JSON-ready data: its name and settings; the inverse of ``Registry.resolve``."""
    part = bare(part)
    name = getattr(part, "name", None)
    if not isinstance(name, str) or not dataclasses.is_dataclass(part) or isinstance(part, type):
        raise SettingError(
            f"{label_of(part)} cannot be written down: it has no name and settings; make it a dataclass with a class "
            "attribute `name`, and register it with bayeswell.register(axis, Class)"
        )
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
    return {"name": name, **values}


def written(registry: Registry[Any], part: Any) -> dict[str, Any]:
    """A part for a file: its name and settings; of an object that has none its name, to be given again at loading.

    Refused if reading would bring back something else: where the name belongs to another class (one derived from a
    registered part and not renamed), where a setting is more than numbers, words, and lists of them, and where there is
    no name at all (a lambda).
    """
    own = bare(part)
    if not isinstance(getattr(own, "name", None), str) or not dataclasses.is_dataclass(own):
        if not kind_of(own).isidentifier():
            raise SettingError(
                f"{registry.axis} {kind_of(own)} has no name by which a file could call it; write it as `def` or as a "
                "class, and give it to load(path, parts=[...]) again, or bayeswell.register it"
            )
        return {GIVEN: kind_of(own)}
    settings = settings_of(own)
    name = settings["name"]
    if registry.knows(name) and registry[name] is not type(own):
        raise SettingError(
            f"{registry.axis} {kind_of(own)} goes by the name '{name}' of {registry[name].__name__}, which a file "
            "would bring back in its place; give the class a `name` of its own and bayeswell.register it"
        )
    for key, value in settings.items():
        if not is_plain(value):
            raise SettingError(
                f"{registry.axis} '{name}' cannot be written to a file: its setting '{key}' is a {kind_of(value)}; "
                "write a class of your own whose settings are numbers and words, and bayeswell.register it"
            )
    return settings


def is_plain(value: Any) -> bool:
    """Whether a setting is numbers, words, and lists and mappings of them: what a file can hold."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
