"""Report page of finished runs."""

from __future__ import annotations

from .page import render_report, write_report
from .reading import read_comparison
from .summary import summarize, tables_of

__all__ = ["read_comparison", "render_report", "summarize", "tables_of", "write_report"]
