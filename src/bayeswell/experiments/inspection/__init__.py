"""A trained run looked at from all sides, for the report: measured once, kept as plain numbers in its folder."""

from .run import INSPECTION, inspect_run, inspection_of

__all__ = ["INSPECTION", "inspect_run", "inspection_of"]
