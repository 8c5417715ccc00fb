"""Plain networks by name."""

from __future__ import annotations

from .build import MODELS, build_model, default_model
from .parts import ACTIVATIONS, ModelPart

__all__ = ["ACTIVATIONS", "MODELS", "ModelPart", "build_model", "default_model"]
