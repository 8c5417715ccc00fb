"""Every posterior with every estimator, from the registries, and the law of the outputs that each pair has."""

from __future__ import annotations

import pytest

import bayeswell as bw
from nets import (
    ESTIMATOR_CHOICES,
    ESTIMATOR_DEFAULTS,
    LAYERS,
    POSTERIOR_CHOICES,
    Choice,
    label,
    pairs,
)

JOINT = "one weight draw serves the whole batch"

PER_EXAMPLE = "one weight draw an example, uncorrelated between examples but for the shared bias"

MARGINAL = "each output its own noise: independent over examples, units and positions"

NO_NOISE = "the network at the posterior mean"

LAWS = {
    "weight_sampling": JOINT,
    "flipout": PER_EXAMPLE,
    "local_reparameterization": MARGINAL,
    "variational_laplace": NO_NOISE,
    "score_function": JOINT,
}
"""The law of one stochastic pass. An estimator without an entry is held to UNSTATED."""

PAIRS = list(pairs(POSTERIOR_CHOICES, ESTIMATOR_DEFAULTS))

DETAILED_PAIRS = list(pairs(POSTERIOR_CHOICES, ESTIMATOR_CHOICES))

DIFFERENTIATED_PAIRS = [pair for pair in DETAILED_PAIRS if bw.ESTIMATORS.resolve(pair[1]).differentiates_weights]
"""Those whose gradient is the derivative of their value at the same noise."""


def ids(pair_list: list[tuple[Choice, Choice]]) -> list[str]:
    return [f"{label(posterior)}+{label(estimator)}" for posterior, estimator in pair_list]


each_pair = pytest.mark.parametrize(("posterior", "estimator"), PAIRS, ids=ids(PAIRS))

each_detailed_pair = pytest.mark.parametrize(("posterior", "estimator"), DETAILED_PAIRS, ids=ids(DETAILED_PAIRS))

each_differentiated_pair = pytest.mark.parametrize(
    ("posterior", "estimator"), DIFFERENTIATED_PAIRS, ids=ids(DIFFERENTIATED_PAIRS)
)

each_layer = pytest.mark.parametrize("kind", LAYERS)
