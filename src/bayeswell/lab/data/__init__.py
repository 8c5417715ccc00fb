"""Data sets by name, from files, and from Python objects."""

from __future__ import annotations

from .augmentation import Augmentation
from .corruptions import CORRUPTIONS, corrupt
from .dataset import DataPart, DataSet
from .load import DATASETS, find_data, load_data
from .ood import corrupted_test
from .own import read_npz, read_table

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "Augmentation",
    "DataPart",
    "DataSet",
    "corrupt",
    "corrupted_test",
    "find_data",
    "load_data",
    "read_npz",
    "read_table",
]
