"""A view of a lifted network whose weights are moved by a constant; the divergence is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..tree import Layout, Site
from ..types import BayesianModel, Estimator, Inputs, LinearLayer, Posterior, PosteriorPart, Prior


class ShiftedPosterior(Posterior):
    """q moved by ``offset``: draws and means are moved, the KL stays that of the unmoved q.

    With ``offset`` None it is a probe: nothing is moved, and draws and means are handed out as new beginnings of the
    graph, so that ``slope`` can say how a loss changes as they all move.
    """

    def __init__(self, base: Posterior, prior: Prior, offset: Tensor | None) -> None:
        super().__init__()
        self.base = base
        self.layout, self.noise_size = base.layout, base.noise_size
        self._prior, self._offset = prior, offset
        self._mean: Tensor | None = None
        self._handed_out: list[Tensor] = []

    @property
    def handed_out(self) -> tuple[Tensor, ...]:
        """The beginnings that a probe has handed out so far."""
        return tuple(self._handed_out)

    def slope(self, loss: Tensor) -> Tensor:
        """(P,): the gradient of a loss with respect to the offset of a probe, at zero."""
        found = torch.autograd.grad(loss, self._handed_out, materialize_grads=True)
        parts = [gradient.reshape(-1, self.layout.size) for gradient in found]
        return parts[0][0] if len(parts) == len(parts[0]) == 1 else torch.cat(parts).sum(0)

    def _moved(self, weights: Tensor) -> Tensor:
        if self._offset is not None:
            return weights + self._offset
        handed_out = weights.detach().requires_grad_()
        self._handed_out.append(handed_out)
        return handed_out

    def mean_vector(self) -> Tensor:
        """(P,): the moved means."""
        # Made once, by the first who asks: estimators differentiate with respect to this very tensor.
        if self._mean is None:
            self._mean = self._moved(self.base.mean_vector())
        return self._mean

    def like(self) -> Tensor:
        """As before: not the moved means, which may never be needed."""
        return self.base.like()

    def std_vector(self) -> Tensor:
        """(P,): as before."""
        return self.base.std_vector()

    def variance_vector(self) -> Tensor:
        """(P,): as before."""
        return self.base.variance_vector()

    def scaled_square_sum(self, values: Tensor) -> Tensor:
        """As before."""
        return self.base.scaled_square_sum(values)

    def sample(self, noise: Tensor) -> Tensor:
        """The same draws, moved."""
        return self._moved(self.base.sample(noise))

    def forward(self, weights: Tensor) -> Tensor:
        """log q of the unmoved draws."""
        value: Tensor = self.base(weights if self._offset is None else weights - self._offset)
        return value

    def entropy(self) -> Tensor:
        """As before."""
        return self.base.entropy()

    def sample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Moved draws, unmoved KL."""
        weights, kl = self.base.sample_and_kl(noise, self._prior)
        return None if weights is None else self._moved(weights), kl

    def explain(self, site: Site) -> str:
        """As before."""
        return self.base.explain(site)


class _ShiftedPrior:
    """log p of the unmoved draws, for divergences that evaluate it at a draw."""

    def __init__(self, base: Prior, offset: Tensor | None) -> None:
        self._base, self._offset = base, offset
        self.inverse_variance_by_site, self.log_std_sum = base.inverse_variance_by_site, base.log_std_sum
        self.centre = base.centre

    @property
    def inverse_variance(self) -> Tensor | None:
        return self._base.inverse_variance

    def without_closed_form(self) -> str:
        return self._base.without_closed_form()

    @property
    def analytic(self) -> bool:
        return self._base.analytic

    def log_prob(self, weights: Tensor) -> Tensor:
        return self._base.log_prob(weights if self._offset is None else weights - self._offset)

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        return self._base.expected_log_prob(mean, std)

    def std_vector(self) -> Tensor:
        return self._base.std_vector()


class ShiftedModel:
    """The model with its weights moved by ``offset`` (P,), or a probe of it; everything else is the model's own."""

    def __init__(self, model: BayesianModel, offset: Tensor | None) -> None:
        self._model = model
        self._posterior = ShiftedPosterior(model.posterior, model.prior, offset)
        self._prior = _ShiftedPrior(model.prior, offset)

    @property
    def net(self) -> nn.Module:
        """The network itself."""
        return self._model.net

    @property
    def posterior(self) -> ShiftedPosterior:
        """q, moved."""
        return self._posterior

    @property
    def posterior_part(self) -> PosteriorPart:
        """As before."""
        return self._model.posterior_part

    @property
    def prior(self) -> Prior:
        """p, moved along with q."""
        return self._prior

    @property
    def estimator(self) -> Estimator:
        """As before."""
        return self._model.estimator

    @property
    def layout(self) -> Layout:
        """As before."""
        return self._model.layout

    @property
    def linear_layers(self) -> Mapping[str, LinearLayer]:
        """As before."""
        return self._model.linear_layers

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """As before: the weights given are moved already."""
        return self._model.call(weights, inputs)
