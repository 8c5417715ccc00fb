"""What a result says of itself at its end: how good its bound is, and whether it may be trusted."""

from .elbo import FinalELBO, measure_elbo
from .length import Length, judge_length
from .pareto import ParetoReport, importance_ratios, pareto_report
from .trust import Note, Trust, trust

__all__ = [
    "FinalELBO",
    "Length",
    "Note",
    "ParetoReport",
    "Trust",
    "importance_ratios",
    "judge_length",
    "measure_elbo",
    "pareto_report",
    "trust",
]
