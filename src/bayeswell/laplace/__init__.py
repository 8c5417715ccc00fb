"""The Laplace approximation: curvature, structures, evidence."""

from __future__ import annotations

from ..core.protocols import PostHocPart
from ..core.registry import Registry
from .evidence import at_end_of_range
from .part import Curvature, Laplace

POST_HOC: Registry[PostHocPart] = Registry("post_hoc", Laplace, requires=("fit",))
"""Approximations after training, by name."""

__all__ = ["POST_HOC", "Curvature", "Laplace", "at_end_of_range"]
