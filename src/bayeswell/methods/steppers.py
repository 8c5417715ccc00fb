"""Optimizers and samplers are one axis: what moves the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import SettingError, nearest
from ..optimizers import OPTIMIZERS
from ..samplers import SAMPLERS
from ..types import Stepper


def find_stepper(choice: Any) -> Stepper:
    """An optimizer or a sampler, by name, with settings, or as an object (a torch optimizer's class among them)."""
    name = choice if isinstance(choice, str) else choice.get("name") if isinstance(choice, Mapping) else None
    if choice is None or isinstance(choice, int | float | list | tuple):
        raise SettingError(
            f"stepper = {choice!r}; give a name, settings, an optimizer or sampler, or a torch optimizer"
        )
    if name is None:
        return OPTIMIZERS.resolve(choice)
    for registry in (SAMPLERS, OPTIMIZERS):
        if registry.knows(name):
            return registry.resolve(choice)
    raise SettingError(f"unknown stepper '{name}'; {nearest(str(name), [*OPTIMIZERS, *SAMPLERS])}")
