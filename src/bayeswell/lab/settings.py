"""Settings of a run: one typed dataclass for Python, TOML and the command line."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from ..core.errors import BayeswellError, FileError, SettingError, check_integer, check_number, nearest
from ..core.registry import describe
from ..methods import Method, find_method

Record = dict[str, Any]
_CODE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Code:
    """An object in a Python file of the user: a network, data, or a likelihood.

    ``load`` runs the file. Only a user makes one, in Python or on the command line; names in files make a
    ``CodeRecord``.

    Args:
        path: of the file.
        name: of the object in it.
    """

    path: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Code | None:
        """Return the code of "file.py:Name"; None for any other text."""
        found = _CODE.fullmatch(text)
        return None if found is None else cls(found["path"], found["name"])

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self._read()).hexdigest()

    @property
    def record(self) -> CodeRecord:
        return CodeRecord(Path(self.path).name, self.name, self.sha256)

    def load(self) -> Any:
        """Run the file and return the object."""
        module = self._module()
        if not hasattr(module, self.name):
            offered = [name for name in vars(module) if not name.startswith("_")]
            raise SettingError(f"{self}: {self.path} has no '{self.name}'; {nearest(self.name, offered)}")
        return getattr(module, self.name)

    def _module(self) -> Any:
        path = Path(self.path).expanduser().resolve()
        name = f"bayeswell_code_{hashlib.sha256(str(path).encode() + self._read()).hexdigest()[:16]}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise SettingError(f"{self}: {self.path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        # Dataclasses and pickle look for the module by its name.
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, Exception) and not isinstance(error, BayeswellError):
                raise SettingError(f"{self}: running {self.path} failed: {type(error).__name__}: {error}") from error
            raise
        return module

    def _read(self) -> bytes:
        try:
            return Path(self.path).expanduser().read_bytes()
        except OSError as error:
            raise FileError(f"{self}: {self.path} cannot be read: {error.strerror}") from error

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.name}"


@dataclass(frozen=True)
class CodeRecord:
    """The name of code in a saved file; it is never run.

    Args:
        path: file name without its folder.
        name: of the object.
        sha256: of the file that was run.
    """

    path: str
    name: str
    sha256: str = ""

    def refuse(self, setting: str) -> SettingError:
        """Return the error that asks for the code itself."""
        return SettingError(
            f"{setting} '{self}' is Python code named by a file, and is not run; name it yourself: {setting}={self}"
        )

    def check_same(self, code: Code) -> None:
        """Refuse another version of the code."""
        if self.sha256 and code.sha256 != self.sha256:
            raise SettingError(f"{code} has changed since the run: its SHA-256 is {code.sha256}, not {self.sha256}")

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"


def call_with(owner: str, found: Any, settings: Mapping[str, Any], offered: Mapping[str, Any]) -> Any:
    """Call a class or function with the settings and with those offered arguments that it names.

    Anything else is returned as it is, and takes no settings.
    """
    if not (inspect.isclass(found) or inspect.isroutine(found)):
        if settings:
            raise SettingError(f"{owner} is an object of type {type(found).__name__} and takes no settings")
        return found
    names = inspect.signature(found).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in names.values())
    for key in settings:
        if key not in names and not takes_all:
            raise SettingError(f"{owner} has no setting '{key}'; {nearest(key, names)}")
    arguments = {**{key: value for key, value in offered.items() if key in names}, **settings}
    for key, one in names.items():
        optional = one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        if not optional and key not in arguments:
            raise SettingError(f"{owner} needs the setting '{key}'")
    return found(**arguments)


def run_code(setting: str, choice: Any, offered: Mapping[str, Any] | None = None) -> Any:
    """Return what code of the user makes; any other choice is returned as it is.

    Networks and data are made by calling a function or class. A likelihood may itself be a function of outputs, so only
    a class of likelihoods is called.

    Args:
        setting: that holds the choice, for messages.
        choice: ``Code``, or ``{"name": Code, setting: value}``.
        offered: arguments that a function may take by name.
    """
    named = isinstance(choice, Mapping)
    code = choice.get("name") if named else choice
    if isinstance(code, CodeRecord):
        raise code.refuse(setting)
    if not isinstance(code, Code):
        return choice
    found = code.load()
    if setting == "likelihood" and not inspect.isclass(found):
        return found
    settings = {key: value for key, value in choice.items() if key != "name"} if named else {}
    return call_with(str(code), found, settings, offered or {})


Choice = str | Record | Code
"""A name, ``{"name": ..., setting: value}``, or code of the user."""
_INTEGERS = {
    **dict.fromkeys(("epochs", "seed"), 0),
    **dict.fromkeys(("batch_size", "early_stopping", "draws", "threads", "workers", "devices"), 1),
}
"""Smallest values."""
_NUMBERS = ("lr", "validation", "train_size")
_TABLES = ("data_settings", "settings", "model_settings", "augment")


@dataclass(frozen=True)
class RunSettings:
    """Settings of one run.

    Args:
        data: a name of ``bayeswell list data``, table:FILE, npz:FILE, or file.py:name.
        data_settings: settings of the data, such as split=3 or target=price.
        ood: out-of-distribution data: noise, corrupted, or the name of another data set; one or a list.
        method: a name of ``bayeswell list methods``.
        settings: settings of the method, such as temperature=1, prior=normal or members=5.
        likelihood: a name, or file.py:name; the default is categorical for classes and gaussian for real targets.
        model: a name of ``bayeswell list models``, or file.py:name; the default suits the inputs.
        model_settings: settings of the network, such as hidden=[100,100].
        init: folder of a finished run whose weights are the start.
        epochs: passes over the data.
        batch_size: examples of a step; the default is 100, or a fiftieth of small data.
        lr: learning rate of the method's optimizer.
        seed: of starts, order, noise and dropout.
        validation: held-out training examples: a number, or a share below 1.
        validation_rule: seed (drawn by the seed) or last (the last of the training examples).
        train_size: use so many of the other training examples, or such a share.
        fold: I/K tests on part I of K parts of all examples.
        early_stopping: stop after so many epochs without a better validation score.
        early_stopping_metric: the score that stops training.
        standardize: scale inputs and real targets by the training examples.
        augment: random shifts and mirroring of training images, as in pad=4, flip=true.
        calibrate: choose a scale of the stds and a temperature on held-out data: true, a share, or a number of folds.
        draws: networks drawn for the scores at the end.
        threads: of the CPU; the default suits the size of the network.
        workers: members trained at a time, each in a process.
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices.
        precision: 32 or bf16-mixed.
        folder: of the run; the default is made from data, method and seed.
    """

    data: Choice = "digits"
    data_settings: Record = field(default_factory=dict)
    ood: str | Record | list[str | Record] = field(default_factory=list)
    method: str = "auto"
    settings: Record = field(default_factory=dict)
    likelihood: Choice | None = None
    model: Choice | None = None
    model_settings: Record = field(default_factory=dict)
    init: str | None = None
    epochs: int = 20
    batch_size: int | None = None
    lr: float | None = None
    seed: int = 0
    validation: int | float | None = None
    validation_rule: str = "seed"
    train_size: int | float | None = None
    fold: str | None = None
    early_stopping: int | None = None
    early_stopping_metric: str = "nll"
    standardize: bool = True
    augment: Record | None = None
    calibrate: bool | int | float = False
    draws: int = 100
    threads: int | None = None
    workers: int = 1
    accelerator: str = "auto"
    devices: int = 1
    precision: str = "32"
    folder: str | None = None

    def __post_init__(self) -> None:
        for name in ("data", "model", "likelihood"):
            value = getattr(self, name)
            self._set(name, (Code.parse(value) or value) if isinstance(value, str) else value)
        self._set("ood", [self.ood] if isinstance(self.ood, str | Mapping) else list(self.ood or ()))
        for name, least in _INTEGERS.items():
            if getattr(self, name) is not None:
                self._set(name, check_integer("run", name, getattr(self, name), least))
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None:
                number = check_number("run", name, value, 0)
                self._set(name, int(value) if isinstance(value, Integral) else number)
        for name in _TABLES:
            if not isinstance(getattr(self, name), Mapping | None):
                raise SettingError(f"run: `{name}` must be a table of settings, got {getattr(self, name)!r}")
        if not isinstance(self.standardize, bool):
            raise SettingError(f"run: `standardize` must be true or false, got {self.standardize!r}")
        if self.early_stopping is not None and not self.validation:
            raise SettingError(f"run: `early_stopping` = {self.early_stopping} needs `validation`, such as 0.1")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def names(cls) -> list[str]:
        return [one.name for one in dataclasses.fields(cls)]

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return one line of help for each setting."""
        block = inspect.getdoc(cls).partition("Args:")[2]  # type: ignore[union-attr]
        lines = (line.strip().partition(": ") for line in block.strip().splitlines())
        return {name: text for name, _, text in lines}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the settings of ``to_dict``. Code that a record names is not run: it becomes a ``CodeRecord``."""
        return cls().changed(**{key: _without_code(value) for key, value in record.items()})

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Return settings from a TOML file; see ``from_dict``."""
        try:
            return cls.from_dict(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise FileError(f"{path} is not TOML: {error}") from error

    def changes(self) -> dict[str, Any]:
        """Return the settings that do not have their default."""
        default = type(self)()
        return {name: getattr(self, name) for name in self.names() if getattr(self, name) != getattr(default, name)}

    def to_dict(self) -> dict[str, Any]:
        """Return ``changes`` JSON-ready."""
        return {name: _jsonable(value) for name, value in self.changes().items()}

    def changed(self, **settings: Any) -> Self:
        """Return other settings; unknown names are refused."""
        for key in settings:
            if key not in self.names():
                raise SettingError(f"a run has no setting '{key}'; {nearest(key, self.names())}")
        return dataclasses.replace(self, **settings)

    @property
    def data_choice(self) -> Any:
        """``data`` with ``data_settings``, for ``load_data``."""
        if not self.data_settings:
            return self.data
        return {**(self.data if isinstance(self.data, Mapping) else {"name": self.data}), **self.data_settings}

    @property
    def method_part(self) -> Method:
        """The method with ``settings`` and ``lr``."""
        changes = dict(self.settings) if self.lr is None else {**self.settings, "lr": self.lr}
        method = find_method(self.method)
        return method.changed(**changes) if changes else method

    @property
    def title(self) -> str:
        """A short name of the run for folders and tables: data, method and seed."""
        data = self.data.get("name") if isinstance(self.data, Mapping) else self.data
        fold = "" if self.fold is None else f"-fold{self.fold.partition('/')[0]}"
        text = f"{Path(str(data).rpartition(':')[2]).stem}-{self.method}-seed{self.seed}{fold}"
        return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "run"


def _without_code(value: Any) -> Any:
    if isinstance(value, Code):
        return value.record
    code = Code.parse(value) if isinstance(value, str) else None
    if code is not None:
        return CodeRecord(code.path, code.name)
    if isinstance(value, Mapping):
        is_code = {"path", "name"} <= set(value) <= {"path", "name", "sha256"} and str(value["path"]).endswith(".py")
        return CodeRecord(**value) if is_code else {key: _without_code(item) for key, item in value.items()}
    return value


def _jsonable(value: Any) -> Any:
    if isinstance(value, Code):
        value = value.record
    if isinstance(value, CodeRecord):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_jsonable(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    return _jsonable(describe(value))
