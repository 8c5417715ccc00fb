"""Which parts may work together: capabilities are compared, never classes."""

from __future__ import annotations

from typing import Any

from .baselines import LEAVE_ONE_OUT
from .errors import CompositionError
from .registry import kind_of, label_of
from .types import (
    ENTROPY,
    FACTORISED,
    LOG_PROB,
    LOG_STD,
    POINT,
    WEIGHT_SAMPLE,
    Divergence,
    Estimator,
    Likelihood,
    PosteriorPart,
    Prior,
)

_LACKS = {
    FACTORISED: "independent Gaussian weights",
    WEIGHT_SAMPLE: "a weight vector drawn in every step",
    LOG_PROB: "a density log q(w)",
    ENTROPY: "a closed-form entropy",
    LOG_STD: "a mean and a log std for each weight",
    POINT: "one weight vector",
}


def check_estimator(posterior: PosteriorPart, estimator: Estimator) -> None:
    """Refuse an estimator that needs what the posterior does not have."""
    for need in sorted(estimator.needs - posterior.provides):
        if need == WEIGHT_SAMPLE:
            raise CompositionError(
                f"estimator '{estimator.name}' needs {_LACKS[need]}, which posterior '{posterior.name}' does not have: "
                "it is the end of a sampler or an ensemble, not trained itself; use posterior 'delta' or 'mean_field'"
            )
        raise CompositionError(
            f"estimator '{estimator.name}' needs {_lack(need)}, which posterior '{posterior.name}' does not have; "
            "use estimator 'weight_sampling', or posterior 'mean_field' or 'k_tied'"
        )


def check_divergence(posterior: PosteriorPart, prior: Prior, estimator: Estimator, divergence: Divergence) -> None:
    """Refuse a divergence that needs what the posterior, the prior or the estimator does not have."""
    check_divergence_needs(posterior, estimator, divergence)
    if POINT not in posterior.provides and ENTROPY in divergence.needs and not prior.analytic:
        raise CompositionError(
            f"divergence '{divergence.name}' has no closed form for prior {prior.without_closed_form()}; use "
            "divergence 'monte_carlo' or 'path_derivative' (with estimator 'weight_sampling' or 'flipout')"
        )


def check_divergence_needs(posterior: PosteriorPart, estimator: Estimator, divergence: Divergence) -> None:
    """What can be said of a divergence before the prior is known."""
    if POINT in posterior.provides:
        # A point has no density; in place of a closed form it has -log p(w), for any prior.
        if LOG_PROB in divergence.needs:
            raise CompositionError(
                f"divergence '{divergence.name}' needs {_LACKS[LOG_PROB]}, which posterior '{posterior.name}' does not "
                "have; use divergence 'analytic'"
            )
        return
    if WEIGHT_SAMPLE in divergence.needs and WEIGHT_SAMPLE not in estimator.provides:
        raise CompositionError(
            f"divergence '{divergence.name}' needs {_LACKS[WEIGHT_SAMPLE]}, which estimator '{estimator.name}' never "
            "has; use divergence 'analytic', or estimator 'weight_sampling' or 'flipout'"
        )
    if getattr(divergence, "baseline", None) == LEAVE_ONE_OUT and getattr(estimator, "antithetic", False):
        raise CompositionError(
            f"divergence '{divergence.name}' subtracts the mean of a step's other draws, which must not depend on this "
            f"one; those of estimator '{estimator.name}' come in pairs: antithetic=False, or baseline='none'"
        )
    for need in sorted((divergence.needs - {WEIGHT_SAMPLE}) - posterior.provides):
        raise CompositionError(
            f"divergence '{divergence.name}' needs {_lack(need)}, which posterior '{posterior.name}' does not have; "
            "use another divergence or posterior"
        )


def check_likelihood(likelihood: Likelihood, axis: str, part: Any) -> None:
    """Refuse a likelihood that lacks what this part (an estimator, a post-hoc part) calls of it."""
    for need in sorted(part.likelihood_needs):
        if not hasattr(likelihood, need):
            raise CompositionError(
                f"likelihood {kind_of(likelihood)} lacks `{need}`, needed by {axis} {label_of(part)}; write it, or "
                f"use another {axis}"
            )


def _lack(need: str) -> str:
    return _LACKS.get(need, f"'{need}'")
