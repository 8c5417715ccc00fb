"""Saving and loading: tensors and a plain record in a folder that is whole, checked, and runs no code."""

from __future__ import annotations

from .bundle import Bundle, read_bundle, write_bundle
from .contents import JSON
from .documents import LineLog, read_document, read_lines, read_plain, write_document, write_whole
from .states import pack_state, unpack_state

__all__ = [
    "JSON",
    "Bundle",
    "LineLog",
    "pack_state",
    "read_bundle",
    "read_document",
    "read_lines",
    "read_plain",
    "unpack_state",
    "write_bundle",
    "write_document",
    "write_whole",
]
