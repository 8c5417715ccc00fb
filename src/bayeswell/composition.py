"""Which parts may work together: capabilities are compared, never classes."""

from __future__ import annotations

from .errors import CompositionError
from .types import (
    ENTROPY,
    FACTORISED,
    LOG_PROB,
    POINT,
    WEIGHT_SAMPLE,
    Divergence,
    Estimator,
    PosteriorPart,
    Prior,
)

_LACKS = {
    FACTORISED: "independent Gaussian weights",
    WEIGHT_SAMPLE: "a weight vector drawn in every step",
    LOG_PROB: "a density log q(w)",
    ENTROPY: "a closed-form entropy",
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
            f"estimator '{estimator.name}' needs {_LACKS[need]}, which posterior '{posterior.name}' does not have; "
            "use estimator 'weight_sampling', or posterior 'mean_field' or 'k_tied'"
        )


def check_divergence(posterior: PosteriorPart, prior: Prior, estimator: Estimator, divergence: Divergence) -> None:
    """Refuse a divergence that needs what the posterior, the prior or the estimator does not have."""
    if POINT in posterior.provides:
        if divergence.name != "analytic":
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
    for need in sorted((divergence.needs - {WEIGHT_SAMPLE}) - posterior.provides):
        raise CompositionError(
            f"divergence '{divergence.name}' needs {_LACKS[need]}, which posterior '{posterior.name}' does not have; "
            "use another divergence or posterior"
        )
    if divergence.name == "analytic" and not prior.analytic:
        raise CompositionError(
            "divergence 'analytic' has no closed form for prior 'scale_mixture'; use divergence 'monte_carlo' or "
            "'path_derivative' (with estimator 'weight_sampling' or 'flipout')"
        )
