"""One page of everything that runs and comparisons learned: a single HTML file that needs no network."""

from .page import render_page, write_report
from .reading import RunRecord, read_runs
from .verdict import Verdict, verdict_of

__all__ = ["RunRecord", "Verdict", "read_runs", "render_page", "verdict_of", "write_report"]
