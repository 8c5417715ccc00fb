"""May the posterior be believed? k-hat for a density, R-hat and effective draws for chains: as ``training`` has them."""

from ..training.verdicts import ParetoReport, Trust, importance_ratios, pareto_report, trust

__all__ = ["ParetoReport", "Trust", "importance_ratios", "pareto_report", "trust"]
