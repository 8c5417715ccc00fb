"""Plain networks by name."""

from __future__ import annotations

from .build import MODELS, build_model, default_model

__all__ = ["MODELS", "build_model", "default_model"]
