"""One page of everything that runs and comparisons learned: a single HTML file that needs no network."""

from .page import render_page, write_report
from .reading import RunRecord, read_runs

__all__ = ["RunRecord", "read_runs", "render_page", "write_report"]
