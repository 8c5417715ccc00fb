"""Words by which parts say what they can do, what they need, and how a model predicts."""

from __future__ import annotations

# What a part can do, or needs of another; assembly compares these words instead of classes.
FACTORISED = "factorised"
"""Weights are independent Gaussians: mean and std say it all."""
WEIGHT_SAMPLE = "weight_sample"
"""A weight vector common to the batch is drawn in each step."""
LOG_PROB = "log_prob"
"""log q(w) can be evaluated."""
ENTROPY = "entropy"
"""The entropy of q has a closed form."""
POINT = "point"
"""q is one weight vector: no entropy, any log p(w) is exact."""
LOG_STD = "log_std"
"""The trainable state is one mean and one log std for each weight."""
BANK = "bank"
"""q is a number of networks, each drawn with equal chance: it has no centre."""
MIXTURE = "mixture"
"""q is several distributions, each drawn from equally often: it has no centre either."""

WITHOUT_CENTRE = frozenset({BANK, MIXTURE})
"""Posteriors with these words have no mean network."""

# What a prediction averages over draws.
SAMPLED = "sampled"
"""Averages over networks: the outputs of each drawn weight vector."""
LINEARISED = "linearised"
"""Averages over the network to first order around the posterior's mean."""
MEAN = "mean"
"""No average: the network at the posterior's mean."""
PREDICTIONS = (SAMPLED, LINEARISED, MEAN)
"""The ways to predict."""
