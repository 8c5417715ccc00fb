"""Known answers that other tests compare with.

Nothing here imports the package under test: every truth is a closed form, a quadrature or a brute-force
optimum in float64 (numpy, scipy, torch). The test files beside them check the truths themselves by
means independent of how they are computed.
"""
