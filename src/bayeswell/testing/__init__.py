"""Conformance checks of custom parts: ``check_part(kind, part)``."""

from __future__ import annotations

from .check import KINDS, check_part
from .report import PartError, Report

__all__ = ["KINDS", "PartError", "Report", "check_part"]
