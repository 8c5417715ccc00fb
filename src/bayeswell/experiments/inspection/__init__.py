"""A trained run looked at from all sides, for the report: measured once, kept as plain numbers in its folder."""

from .knobs import Knobs
from .run import INSPECTION, inspect_run, inspection_of

__all__ = ["INSPECTION", "Knobs", "inspect_run", "inspection_of"]
