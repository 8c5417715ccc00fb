"""May the posterior be believed? k-hat of a density, R-hat and effective draws of chains, as ``training`` has them."""

from ..training.verdicts import ParetoReport, Trust, importance_ratios, pareto_report, trust

__all__ = ["ParetoReport", "Trust", "importance_ratios", "pareto_report", "trust"]
