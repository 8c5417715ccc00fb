"""Saved folders: safetensors, JSON and checksums; nothing that is loaded runs code."""

from __future__ import annotations

from .folders import folder_exists, folder_lock, load_folder, save_folder
from .networks import build_network, describe_network
from .packing import pack_state, unpack_state

__all__ = [
    "build_network",
    "describe_network",
    "folder_exists",
    "folder_lock",
    "load_folder",
    "pack_state",
    "save_folder",
    "unpack_state",
]
