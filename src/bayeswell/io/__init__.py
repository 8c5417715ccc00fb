"""Saved folders: safetensors, JSON and checksums; nothing that is loaded runs code."""

from __future__ import annotations

from .folders import folder_exists, folder_lock, load_folder, save_folder
from .models import SavedModel, load_model, save_adapter, save_model
from .networks import build_network, describe_network
from .packing import pack_state, unpack_state

__all__ = [
    "SavedModel",
    "build_network",
    "describe_network",
    "folder_exists",
    "folder_lock",
    "load_folder",
    "load_model",
    "pack_state",
    "save_adapter",
    "save_folder",
    "save_model",
    "unpack_state",
]
