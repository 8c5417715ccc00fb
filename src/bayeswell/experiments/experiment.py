"""One experiment: everything that decides a run, by name, as plain data."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..datasets import Augmentation, find_data
from ..errors import SettingError, nearest
from ..likelihoods import LIKELIHOODS
from ..methods import Method, resolve
from ..models import MODELS
from ..plain import plain
from ..training import Devices, KeepBest, usual_batch_size
from ..training.as_given import require_nothing_to_train
from .config_parsing import as_choice, as_data_choice, build_method, lr_to_stepper, merged, nested
from .given import needs_code
from .network_code import shown_name
from .paths import run_config
from .schema import SETTINGS, RunSettings

TRACE_DRAWS = 10
BY_THE_DATA = "auto"
"""The name of a model or likelihood of which only settings are given: the data decide which one it is."""


@dataclass(frozen=True)
class Experiment(RunSettings):
    """The settings of a run, each looked at before any work, and the parts that they name.

    ``model`` None is one that suits the data, ``likelihood`` None that of the data. ``early_stopping`` is how many
    epochs to wait for a better ``early_stopping_metric`` of validation. ``workers`` above 0 reads the data through so
    many processes. ``draws`` are those of the evaluation.
    """

    def __post_init__(self) -> None:
        """Refuse, before any work, whatever has no name or no sense."""
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            setting.require(value)
            if setting.settings is not None and value is not None:
                value = (as_data_choice if name in ("data", "ood") else as_choice)(name, value)
                value = lr_to_stepper(value) if name == "method" else value
            elif name == "validation" and value is not None and value >= 1:
                value = int(value)  # so many examples; a share stays what it is
            elif name == "where":
                value = _where(value)
            elif name == "init" and value is not None:  # the same place, wherever the run goes on
                value = os.path.abspath(os.path.expanduser(value))
            object.__setattr__(self, name, value)
        self._require_parts()

    def batch_size_of(self, examples: int) -> int:
        """How many examples a step has of so many: what was asked for, or the usual number, and never more than all."""
        return min(usual_batch_size(examples) if self.batch_size is None else self.batch_size, examples)

    def _require_parts(self) -> None:
        """Each part knows best what it can be told: it is made, and let go again."""
        try:
            method = self.method_part
            if self.init is not None and method.means in ("redrawn", "prior"):
                raise SettingError(f"init = {self.init!r}: means = {method.means!r} draws other weights; leave out one")
            if self.epochs == 0:
                require_nothing_to_train(resolve(method))
            listened = resolve(method).needs_validation if method.plateau else ""
            if listened and not self.validation:
                raise SettingError(f"plateau: metric = '{listened}' looks at held-out data: set validation too")
            for registry, choice in ((MODELS, self.model), (LIKELIHOODS, self.likelihood)):
                if choice is not None and not (_by_the_data(choice) or needs_code(choice)):
                    registry.resolve(choice)
            for data in (self.data, self.ood):
                if data is not None and not needs_code(data):
                    find_data(data)
        except TypeError as error:
            raise SettingError(f"a setting has a value of the wrong kind: {error}") from error
        _ = self.devices_part, self.keep_best, self.augmentation
        if self.trace_draws is not None and self.trace is None and self.trace_steps is None:
            raise SettingError(
                f"trace_draws = {self.trace_draws}: nothing is traced; set trace = 'test' or trace_steps"
            )
        if self.early_stopping is not None and not self.validation:
            raise SettingError(f"early_stopping = {self.early_stopping} looks at held-out data: set validation too")

    @property
    def method_part(self) -> Method:
        """The method with its changes; ``prediction`` is how its model will predict."""
        method = build_method(self.method)
        return method if self.prediction is None else dataclasses.replace(method, prediction=self.prediction)

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
    def draws_of_traces(self) -> int:
        """How many networks are drawn for each look along training."""
        return TRACE_DRAWS if self.trace_draws is None else self.trace_draws

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
        data = shown_name(str(self.data.get("path") or self.data.get("set") or self.data["name"])).replace("\\", "/")
        stem = data.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        fold = "" if self.fold is None else f"-fold{self.fold.split('/')[0]}"
        return slug(f"{stem}-{self.method['name']}-seed{self.seed}{fold}")

    def as_json(self) -> dict[str, Any]:
        """Plain data from which ``from_json`` makes the same experiment."""
        return {name: plain(getattr(self, name)) for name in SETTINGS}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Experiment:
        """The inverse of ``as_json``; what is left out has its default."""
        for key in record:
            if key not in SETTINGS:
                raise SettingError(f"an experiment has no setting '{key}'; {nearest(str(key), SETTINGS)}")
        return cls(**record)

    def changed(self, settings: Mapping[str, Any]) -> Experiment:
        """The same with other settings, by dotted path: ``{"epochs": 5, "method.stepper.lr": 0.01}``."""
        record = self.as_json()
        for path, value in settings.items():
            record = merged(record, nested(path, value))
        return Experiment.from_json(record)


class BegunInPython(SettingError):
    """A run that `fit(folder=...)` has left: its data were objects of a program."""


def experiment_of(path: str | os.PathLike[str]) -> Experiment:
    """The experiment that the run in a folder was begun with."""
    problem = run_config(path).get("problem")
    record = problem.get("experiment") if isinstance(problem, Mapping) else None
    if not isinstance(record, Mapping):
        raise BegunInPython(
            f"the run in {os.fspath(path)!r} was begun by `fit` in a program, and its data are not in the folder: run "
            "that program again, with fit(..., folder=..., resume=True)"
        )
    return Experiment.from_json(record)


def _by_the_data(choice: Any) -> bool:
    """Whether the data decide which one it is, and only settings were given."""
    return isinstance(choice, Mapping) and choice.get("name") == BY_THE_DATA


def _where(value: Any) -> Any:
    """A word, or a list of names of layers, which a text holds with commas between them."""
    names = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(one, str) and one for one in names):
        raise SettingError(f"where = {value!r}; 'all', 'last_layer', or names of layers: 'fc*,head'")
    return names[0] if len(names) == 1 else list(names)


def slug(text: str) -> str:
    """A text as a name for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "run"
