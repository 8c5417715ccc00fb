"""``check_part``: does a part of one's own do what its axis asks for? (As scikit-learn's ``check_estimator``.)"""

from .check import check_part
from .report import PartError, Report

__all__ = ["PartError", "Report", "check_part"]
