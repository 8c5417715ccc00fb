"""Data sets by name, from files, and from Python objects."""

from __future__ import annotations

from .dataset import DataSet
from .load import DATASETS, load_data

__all__ = ["DATASETS", "DataSet", "load_data"]
