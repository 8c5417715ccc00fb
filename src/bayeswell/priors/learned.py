"""A posterior as the prior of what comes after it: sequential Bayes."""

from __future__ import annotations

import copy
import math
from typing import Any

from torch import Tensor, nn

from ..errors import CompositionError
from ..registry import settings_of
from ..tree import Site
from ..types import FACTORISED, LOG_PROB, Posterior, PosteriorPart


class LearnedPrior(nn.Module):
    """p(w) = q(w) of earlier data, held fixed: p(w given both data) is proportional to p(new data given w) q(w).

    Exact where q is the exact posterior of the earlier data. Independent Gaussian weights (mean-field, k-tied) have a
    closed form E[log p] = -sum [log s + log(2 pi)/2 + ((m - centre)^2 + std^2) / (2 s^2)]; any other posterior with a
    density needs drawn weights (divergence ``monte_carlo`` or ``path_derivative``). What was trained is kept here as
    buffers: it moves with the model, is saved with it, and no optimizer sees it.
    """

    inverse_variance_by_site: Tensor | None = None
    parts: tuple[Any, ...] = ()

    def __init__(self, part: PosteriorPart, posterior: Posterior) -> None:
        super().__init__()
        if LOG_PROB not in part.provides:
            raise CompositionError(
                f"prior = 'posterior': posterior '{part.name}' has no density to be a prior; use one that has "
                "('mean_field', 'k_tied', 'low_rank', 'full')"
            )
        self.part, self.layout = part, posterior.layout
        self.posterior = _held(posterior)
        self._factorised = FACTORISED in part.provides

    @property
    def centre(self) -> Tensor:
        """(P,): the means."""
        return self.posterior.mean_vector()

    @property
    def inverse_variance(self) -> Tensor | None:
        """(P,): 1/s^2 of independent weights, else None."""
        return self.posterior.std_vector().square().reciprocal() if self._factorised else None

    @property
    def log_std_sum(self) -> Tensor | None:
        """sum log s of independent weights, else None."""
        return self.posterior.std_vector().double().log().sum().to(self.centre.dtype) if self._factorised else None

    @property
    def analytic(self) -> bool:
        """Whether E_q[log p] has a closed form under Gaussian marginals."""
        return self._factorised

    def without_closed_form(self) -> str:
        """What has none."""
        return f"'posterior' ({self.part.name})"

    def log_prob(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log q of the earlier data."""
        value: Tensor = self.posterior(weights)
        return value

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log p(w)] for independent w_i ~ N(mean_i, std_i^2)."""
        return _Gaussians(self.centre, self.posterior.std_vector()).expected_log_prob(mean, std)

    @property
    def independent(self) -> bool:
        """Whether it is a product over weights."""
        return self._factorised

    def at(self, site: Site) -> _Gaussians:
        """The prior of one site alone, in float64, of independent weights."""
        part = self.layout.slices[site.name]
        return _Gaussians(self.centre[part].double(), self.posterior.std_vector()[part].double())

    def std_vector(self) -> Tensor:
        """(P,): standard deviation of each weight."""
        return self.posterior.std_vector()

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        return f"the posterior of earlier data ({self.posterior.explain(site)})"

    def settings(self) -> dict[str, Any]:
        """As plain data; the numbers are in ``state_dict``."""
        return {"posterior": settings_of(self.part)}


class _Gaussians:
    """Independent N(centre_i, s_i^2)."""

    def __init__(self, centre: Tensor, std: Tensor) -> None:
        self.centre, self.std = centre, std

    def log_prob(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,)."""
        squares = ((weights - self.centre) / self.std).square() / 2
        return -(squares + self.std.log() + 0.5 * math.log(2 * math.pi)).sum(-1)

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log p(w)] for independent w_i ~ N(mean_i, std_i^2)."""
        return self.log_prob(mean) - ((std / self.std).square() / 2).sum()


def _held(posterior: Posterior) -> Posterior:
    """A copy whose parameters are buffers."""
    held = copy.deepcopy(posterior)
    for module in held.modules():
        for name, parameter in list(module._parameters.items()):
            del module._parameters[name]
            module.register_buffer(name, None if parameter is None else parameter.detach().clone())
    return held.requires_grad_(False)


def is_posterior(choice: Any) -> bool:
    """Whether a choice of prior asks for the posterior that is there."""
    return isinstance(choice, str) and choice == "posterior"
