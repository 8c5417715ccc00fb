"""Data to learn from: by name, from files of one's own, and what lies outside the distribution."""

from ..tables import Scaling
from .augmentation import Augmentation
from .bundled import Split, digits, noise_like
from .corruptions import CORRUPTIONS, FAMILIES, corrupt
from .data import Data
from .files import cache_folder, data_folders
from .load import DATASETS, data_status, find_data, is_data_name, load_data, load_inputs
from .published_corruptions import PublishedCorruptions

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "FAMILIES",
    "Augmentation",
    "Data",
    "PublishedCorruptions",
    "Scaling",
    "Split",
    "cache_folder",
    "corrupt",
    "data_folders",
    "data_status",
    "digits",
    "find_data",
    "is_data_name",
    "load_data",
    "load_inputs",
    "noise_like",
]
