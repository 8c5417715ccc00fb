"""One experiment: everything that decides a run, by name, as plain data."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..datasets import Augmentation, find_data
from ..errors import SettingError, nearest, require_count
from ..likelihoods import LIKELIHOODS
from ..methods import Method
from ..models import MODELS
from ..training import Devices, KeepBest, usual_batch_size
from .config_parsing import Choice, as_choice, as_data_choice, build_method, merged, nested

_WORKERS = 256


@dataclass(frozen=True)
class Experiment:
    """A method on data with a model: names with settings, and how long.

    ``method``, ``data``, ``model``, ``likelihood`` and ``ood`` (a data set outside the distribution) are names or
    tables ``{"name": ..., setting: value}``; parts of a method are tables in its table. ``model`` None is one that
    suits the data, ``likelihood`` None that of the data. ``early_stopping`` is how many epochs to wait for a better
    ``early_stopping_metric`` of validation. ``augment`` is ``{"pad": 4, "flip": true}``. ``workers`` above 0 reads the
    data through so many processes. ``draws`` are those of the evaluation. ``diagnose`` also keeps, for the report, the
    signal-to-noise of gradients and the stds along training.
    """

    method: Choice = "bbb"
    data: Choice = "digits"
    model: Choice | None = None
    likelihood: Choice | None = None
    epochs: int = 20
    batch_size: int | None = None
    seed: int = 0
    validation: float | None = None
    validation_rule: str = "seed"
    early_stopping: int | None = None
    early_stopping_metric: str = "nll"
    standardise: bool = True
    augment: Mapping[str, Any] | None = None
    accumulate: int = 1
    workers: int = 0
    accelerator: str = "auto"
    devices: int = 1
    precision: str = "32"
    ood: Choice | None = None
    draws: int = 100
    diagnose: bool = False

    def __post_init__(self) -> None:
        """Refuse, before any work, whatever has no name or no sense."""
        choices: dict[str, Any] = {
            "method": as_choice("method", self.method),
            "data": as_data_choice("data", self.data),
        }
        for name in ("model", "likelihood"):
            value = getattr(self, name)
            choices[name] = None if value is None else as_choice(name, value)
        choices["ood"] = None if self.ood is None else as_data_choice("ood", self.ood)
        for name, choice in choices.items():
            object.__setattr__(self, name, choice)
        for name in ("epochs", "accumulate", "devices", "draws"):
            require_count("experiment", name, getattr(self, name))
        if self.batch_size is not None:
            require_count("experiment", "batch_size", self.batch_size)
        _require_whole("seed", self.seed, 0, None)
        _require_whole("workers", self.workers, 0, _WORKERS)
        number = isinstance(self.validation, int | float) and not isinstance(self.validation, bool)
        if self.validation is not None and not (number and 0 <= self.validation < math.inf):
            raise SettingError(f"validation = {self.validation!r}; a number of examples, or a share of them below 1")
        for name in ("standardise", "diagnose"):
            if not isinstance(getattr(self, name), bool):
                raise SettingError(f"{name} = {getattr(self, name)!r}; it must be true or false")
        self._require_parts()

    def batch_size_of(self, examples: int) -> int:
        """How many examples a step has of so many: what was asked for, or the usual number, and never more than all."""
        return min(usual_batch_size(examples) if self.batch_size is None else self.batch_size, examples)

    def _require_parts(self) -> None:
        try:
            build_method(self.method)
            find_data(self.data)
            if self.model is not None:
                MODELS.resolve(self.model)
            if self.likelihood is not None:
                LIKELIHOODS.resolve(self.likelihood)
            if self.ood is not None:
                find_data(self.ood)
        except TypeError as error:
            raise SettingError(f"a setting has a value of the wrong kind: {error}") from error
        _ = self.devices_part, self.keep_best, self.augmentation
        if self.early_stopping is not None and not self.validation:
            raise SettingError(f"early_stopping = {self.early_stopping} looks at held-out data: set validation too")

    @property
    def method_part(self) -> Method:
        """The method with its changes."""
        return build_method(self.method)

    @property
    def devices_part(self) -> Devices:
        """What to train on."""
        return Devices(accelerator=self.accelerator, devices=self.devices, precision=self.precision)

    @property
    def keep_best(self) -> KeepBest | None:
        """Early stopping, if it is wanted."""
        return (
            None if self.early_stopping is None else KeepBest(self.early_stopping_metric, patience=self.early_stopping)
        )

    @property
    def augmentation(self) -> Augmentation | None:
        """What is done to the images of a batch, if anything."""
        if self.augment is None:
            return None
        if not isinstance(self.augment, Mapping):
            raise SettingError(f"augment = {self.augment!r}; a table with pad and flip")
        allowed = [field.name for field in dataclasses.fields(Augmentation)]
        for key in self.augment:
            if key not in allowed:
                raise SettingError(f"augment has no setting '{key}'; {nearest(str(key), allowed)}")
        return Augmentation(**self.augment)

    @property
    def name(self) -> str:
        """A name for the run that says what it is."""
        assert isinstance(self.data, Mapping)
        assert isinstance(self.method, Mapping)
        data = str(self.data.get("path") or self.data.get("set") or self.data["name"]).replace("\\", "/")
        stem = data.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        return slug(f"{stem}-{self.method['name']}-seed{self.seed}")

    def as_json(self) -> dict[str, Any]:
        """Plain data from which ``from_json`` makes the same experiment."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Experiment:
        """The inverse of ``as_json``; what is left out has its default."""
        allowed = experiment_settings()
        for key in record:
            if key not in allowed:
                raise SettingError(f"an experiment has no setting '{key}'; {nearest(str(key), allowed)}")
        return cls(**record)

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """The same with other settings, by dotted path: ``{"epochs": 5, "method.stepper.lr": 0.01}``."""
        record = self.as_json()
        for path, value in settings.items():
            record = merged(record, nested(path, value))
        return Experiment.from_json(record)


def experiment_settings() -> list[str]:
    """What an experiment may be told."""
    return [field.name for field in dataclasses.fields(Experiment)]


def slug(text: str) -> str:
    """A text as a name for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "run"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _require_whole(name: str, value: Any, least: int, most: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        end = "" if most is None else f" to {most}"
        raise SettingError(f"{name} = {value!r}; it must be a whole number from {least}{end}")
