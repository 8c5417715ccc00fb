"""The evidence lower bound as a number to report."""

from __future__ import annotations

import math

from ..errors import require_between, require_count


def negative_elbo(expected_nll: float, kl: float, training_examples: int) -> float:
    """-ELBO in nats per datum: expected NLL (per datum, over draws) + KL(q, p) / N, N the number of training examples.

    Of the expected NLL, not that of the averaged prediction. With test data in the first term it is what papers
    tabulate as "-ELBO" of a test set.
    """
    require_count("negative_elbo", "training_examples", training_examples)
    for name, value in (("expected_nll", expected_nll), ("kl", kl)):
        require_between("negative_elbo", name, value, -math.inf, math.inf, open_low=True, open_high=True)
    return expected_nll + kl / training_examples
