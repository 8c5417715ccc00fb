"""The options of ``fit`` besides network, data, method and likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import SettingError, check_integer, nearest
from ..methods import Method
from .callbacks import Callback, KeepBest
from .checkpoint import RunFolder
from .devices import Devices

EXTRA = ("augment", "target", "output", "standardize")
"""Keywords of ``fit`` that are no setting of the method."""


@dataclass(frozen=True)
class FitOptions:
    """Options of one fit, checked once; ``fit`` describes them. ``settings`` change the method."""

    epochs: int = 20
    batch_size: int | None = None
    seed: int = 0
    validation: Any = None
    early_stopping: KeepBest | int | None = None
    folder: RunFolder | None = None
    resume: bool = False
    callbacks: tuple[Callback, ...] = ()
    progress: bool | None = None
    calibrate: bool | int | float = False
    workers: int = 1
    devices: Devices = field(default_factory=Devices)
    augment: Any = None
    target: str | None = None
    output: Any = None
    standardize: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_keywords(cls, settings: Mapping[str, Any], **given: Any) -> FitOptions:
        """Return checked options; ``settings`` are the remaining keywords of ``fit``."""
        allowed = [*cls.__dataclass_fields__, *Method.settings(), "net", "data", "method", "likelihood"]
        for key in settings:
            if key not in (*EXTRA, *Method.settings()):
                raise SettingError(f"fit has no setting '{key}'; {nearest(key, allowed)}")
        if isinstance(settings.get("lr"), bool):
            raise SettingError(f"fit: `lr` must be a number, got {settings['lr']!r}")
        extra = {key: settings[key] for key in EXTRA if key in settings}
        rest = {key: value for key, value in settings.items() if key not in EXTRA}
        return cls(**given, **extra, settings=rest)

    def __post_init__(self) -> None:
        check = object.__setattr__
        check(self, "epochs", check_integer("fit", "epochs", self.epochs, 0))
        check(self, "seed", check_integer("fit", "seed", self.seed, -(2**63)))
        check(self, "workers", check_integer("fit", "workers", self.workers))
        if self.batch_size is not None:
            check(self, "batch_size", check_integer("fit", "batch_size", self.batch_size))
        if self.folder is not None and not isinstance(self.folder, RunFolder):
            check(self, "folder", RunFolder(self.folder))
        if not isinstance(self.devices, Devices):
            check(self, "devices", Devices(devices=check_integer("fit", "devices", self.devices)))
        check(self, "callbacks", _callbacks(self.callbacks))
        if self.resume and self.folder is None:
            raise SettingError("`resume` = True needs the `folder` of the run")
        if self.workers > 1 and (self.devices.devices > 1 or self.callbacks):
            other = "devices" if self.devices.devices > 1 else "callbacks"
            raise SettingError(f"`workers` = {self.workers} trains members in other processes, which take no `{other}`")
        if not isinstance(self.standardize, bool):
            raise SettingError(f"fit: `standardize` must be True or False, got {self.standardize!r}")
        if self.target is not None and not isinstance(self.target, str):
            raise SettingError(f"fit: `target` must be the name of a column, got {self.target!r}")
        if self.augment is not None and not callable(self.augment):
            raise SettingError(f"fit: `augment` must be a function (inputs, generator) -> inputs, got {self.augment!r}")
        if self.epochs == 0 and self.standardize:
            raise SettingError("`standardize` needs training: with epochs=0 the network is used as it is")


def _callbacks(given: Any) -> tuple[Callback, ...]:
    callbacks = (given,) if isinstance(given, Callback) else tuple(given)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            kind = callback.__name__ if isinstance(callback, type) else type(callback).__name__
            raise SettingError(f"fit: `callbacks` must be objects of classes derived from Callback, got {kind}")
    return callbacks
