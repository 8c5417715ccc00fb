"""What comes of a network without training."""

from __future__ import annotations

from dataclasses import dataclass

from ..predictive.predictor import Predictor


@dataclass(frozen=True)
class PostHoc(Predictor):
    """A network that was made Bayesian without training; it predicts, is saved and calibrated as a ``Result`` is.

    ``log_evidence`` is log p(data) under the Laplace approximation, in nats: networks, priors and noise on the same
    data can be compared by it. None where there is none (SWAG).
    """

    log_evidence: float | None = None

    @property
    def prior_precision(self) -> dict[str, float]:
        """1/s^2 of the prior, chosen or given, for each Bayesian parameter by name; empty if it is not Gaussian."""
        found = self.model.prior.inverse_variance_by_site
        sites = self.model.layout.sites
        return {} if found is None else {site.name: float(v) for site, v in zip(sites, found, strict=True)}

    @property
    def variational_parameters(self) -> int:
        """How many free numbers the posterior has, as papers count them."""
        return self.model.variational_parameters
