"""What training and predicting cost: `make bench`, or `python -m benchmarks` in the project's folder.

Every part of the benchmark runs in a process of its own; within it all cases take turns, and a result is the median of
ratios. See benchmarks/README.md.
"""
