"""Data sets by name, from files, and from Python objects."""

from __future__ import annotations

from .augmentation import Augmentation
from .corruptions import CORRUPTIONS, corrupt, published_names
from .dataset import DataPart, DataSet
from .files import data_folders
from .load import DATASETS, find_data, load_data, load_ood, with_ood
from .ood import corrupted_test
from .own import image_files, read_image, read_npz, read_table

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "Augmentation",
    "DataPart",
    "DataSet",
    "corrupt",
    "corrupted_test",
    "data_folders",
    "find_data",
    "image_files",
    "load_data",
    "load_ood",
    "published_names",
    "read_image",
    "read_npz",
    "read_table",
    "with_ood",
]
