"""Studies: a paper's claims, tried. Cells over a grid of settings, seeds, results as they come, verdicts by rule."""

from .cells import Cell
from .claims import FAILS, HOLDS, UNKNOWN, UNTESTED, Claim, Verdict, judge
from .definition import SCALES, Scale, Study, read_study
from .findings import Findings, best_findings
from .folders import find_studies, write_pages
from .results import Line, append_line, read_results
from .running import Job, jobs_of, results_path, run_study
from .validation import validate_study

__all__ = [
    "FAILS",
    "HOLDS",
    "SCALES",
    "UNKNOWN",
    "UNTESTED",
    "Cell",
    "Claim",
    "Findings",
    "Job",
    "Line",
    "Scale",
    "Study",
    "Verdict",
    "append_line",
    "best_findings",
    "find_studies",
    "jobs_of",
    "judge",
    "read_results",
    "read_study",
    "results_path",
    "run_study",
    "validate_study",
    "write_pages",
]
