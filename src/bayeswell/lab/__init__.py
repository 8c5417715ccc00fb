"""Data sets, networks, runs, comparisons, sweeps, plots and reports."""
