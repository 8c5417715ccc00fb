"""Saving and loading: tensors and a plain record in a folder that is whole, checked, and runs no code."""

from __future__ import annotations

from .bundle import Bundle, read_bundle, write_bundle
from .contents import JSON

__all__ = ["JSON", "Bundle", "read_bundle", "write_bundle"]
