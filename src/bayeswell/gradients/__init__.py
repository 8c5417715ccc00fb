"""Objectives that look around before they go: wrappers of the gradient of any method."""

from .by_pass import ShiftedPasses
from .sharpness import Sharpness, SharpObjective
from .shifted import ShiftedModel

__all__ = ["SharpObjective", "Sharpness", "ShiftedModel", "ShiftedPasses"]
