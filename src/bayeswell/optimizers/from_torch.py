"""Any optimizer class of torch, or of one's own, as a part."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from ..errors import SettingError, nearest, require_positive
from ..types import ParamGroups, Stepper
from .checks import own


@dataclass(frozen=True)
class TorchOptimizer(Stepper):
    """An optimizer by its class: ``TorchOptimizer("NAdam", lr=2e-3, settings={"momentum_decay": 4e-3})``.

    ``optimizer`` is a name in ``torch.optim``, or a class of one's own with torch's interface. Where a part is asked
    for, the class itself or a ``functools.partial`` of it does as well: ``stepper=torch.optim.NAdam``. ``lr`` None is
    the class's own default. One that has to be given a closure (LBFGS) cannot be used: a step has one gradient.
    """

    optimizer: str | type[Optimizer] = "NAdam"
    lr: float = None  # type: ignore[assignment]
    settings: Mapping[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "torch"
    paper: ClassVar[str] = "torch.optim"

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Mapping):
            raise SettingError(f"torch: settings = {self.settings!r}; give them by name")
        kind = self._kind()
        parameters = inspect.signature(kind).parameters
        if "lr" not in parameters:
            raise SettingError(f"torch: {kind.__name__} has no argument `lr`, by which rates are set")
        closure = inspect.signature(kind.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise SettingError(f"torch: {kind.__name__} asks for a closure in every step, which training has not")
        default: Any = parameters["lr"].default
        given: Any = self.settings.get("lr", default) if self.lr is None else self.lr
        if given is inspect.Parameter.empty:
            raise SettingError(f"torch: {kind.__name__} has no default `lr`; give one")
        require_positive(f"torch: {kind.__name__}", "lr", given if isinstance(given, int | float) else float(given))
        object.__setattr__(self, "lr", float(given))
        object.__setattr__(self, "settings", {key: value for key, value in self.settings.items() if key != "lr"})
        for key in self.settings:
            if key not in parameters:
                raise SettingError(f"torch: {kind.__name__} has no setting '{key}'; {nearest(key, parameters)}")

    def _kind(self) -> type[Optimizer]:
        kind = self.optimizer
        if isinstance(kind, str):
            names = [n for n, k in vars(torch.optim).items() if isinstance(k, type) and issubclass(k, Optimizer)]
            if kind not in names:
                raise SettingError(f"torch: optimizer = '{kind}'; {nearest(kind, names)}")
            kind = getattr(torch.optim, kind)
        if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
            raise SettingError(f"torch: optimizer = {kind!r}; give a name in torch.optim, or a class like those")
        return kind

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        settings: dict[str, Any] = {"lr": self.lr, **self.settings}
        try:
            return self._kind()(own(param_groups), **settings)
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(f"torch: {self._kind().__name__} cannot be made: {reason:.200}") from error


def optimizer_part(choice: Any) -> Stepper | None:
    """A part of a torch optimizer's class, or of a ``functools.partial`` of one; None for anything else."""
    if isinstance(choice, Optimizer):
        kind = type(choice).__name__
        raise SettingError(
            f"stepper = {kind}(...) is bound to parameters already; give the class, or functools.partial({kind}, ...)"
        )
    settings: dict[str, Any] = {}
    if isinstance(choice, functools.partial):
        if choice.args:
            raise SettingError("stepper: give the settings of a functools.partial by name, not by place")
        choice, settings = choice.func, choice.keywords
    if not (isinstance(choice, type) and issubclass(choice, Optimizer)):
        return None
    known = getattr(torch.optim, choice.__name__, None) is choice
    return TorchOptimizer(choice.__name__ if known else choice, settings=settings)
