"""Data to learn from."""

from .bundled import Split, digits, noise_like

__all__ = ["Split", "digits", "noise_like"]
