"""Columns, missing cells, texts and scales: one preparation of data, learned from training examples, for every door."""

from .arrays import as_array, as_arrays, is_array, is_frame, is_series
from .columns import Columns, NumberColumn, TextColumn
from .numbers import outliers, require_usable, warn_of_outliers
from .preparation import CLASSES, REAL, Preparation
from .scaling import Scaling, scaling_of
from .table import Table, table_of
from .targets import is_named, target_cells
from .units import warn_of_units

__all__ = [
    "CLASSES",
    "REAL",
    "Columns",
    "NumberColumn",
    "Preparation",
    "Scaling",
    "Table",
    "TextColumn",
    "as_array",
    "as_arrays",
    "is_array",
    "is_frame",
    "is_named",
    "is_series",
    "outliers",
    "require_usable",
    "scaling_of",
    "table_of",
    "target_cells",
    "warn_of_outliers",
    "warn_of_units",
]
