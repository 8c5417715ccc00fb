"""p(w) and q(w) over one flat vector of P weights; D draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..random import standard_normal
from ..tree import Layout, Site


@runtime_checkable
class Prior(Protocol):
    """p(w), laid out over the sites of one network (independent weights).

    Where it is Gaussian throughout, ``inverse_variance`` is 1/s^2 (a scalar or (P,)), ``inverse_variance_by_site`` the
    same with one number a site, and ``log_std_sum`` the sum of log s over all weights; else all are None. ``centre`` is
    (P,) where the prior is centred elsewhere than at zero, else None.
    """

    inverse_variance: Tensor | None
    inverse_variance_by_site: Tensor | None
    log_std_sum: Tensor | None
    centre: Tensor | None

    def log_prob(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log p(w)."""
        ...

    def expected_log_prob(self, mean: Tensor, std: Tensor) -> Tensor:
        """E[log p(w)] for w_i ~ N(mean_i, std_i^2): a scalar. Only if ``analytic``."""
        ...

    @property
    def analytic(self) -> bool:
        """Whether ``expected_log_prob`` has a closed form for every site."""
        ...

    def without_closed_form(self) -> str:
        """The names of the densities that have none, for a message."""
        ...

    def std_vector(self) -> Tensor:
        """(P,): standard deviation of each weight under the prior."""
        ...


class Posterior(nn.Module):
    """q(w), a trainable distribution over the flat weight vector. Calling it gives log q(w)."""

    layout: Layout
    noise_size: int

    def mean_vector(self) -> Tensor:
        """(P,): E[w]."""
        raise NotImplementedError

    def like(self) -> Tensor:
        """Any tensor with the dtype and device of the weights."""
        return self.mean_vector()

    def std_vector(self) -> Tensor:
        """(P,): marginal standard deviation of each weight."""
        raise NotImplementedError

    def variance_vector(self) -> Tensor:
        """(P,): marginal variances."""
        return self.std_vector().square()

    def scaled_square_sum(self, values: Tensor) -> Tensor:
        """sum_i (std_i values_i)^2 for a (P,) vector."""
        return (self.std_vector() * values).square().sum()

    def sample(self, noise: Tensor) -> Tensor:
        """(D, noise_size) standard normal noise -> (D, P) reparameterised draws."""
        raise NotImplementedError

    def forward(self, weights: Tensor) -> Tensor:
        """(D, P) -> (D,): log q(w)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Differential entropy in nats."""
        raise NotImplementedError

    def sample_and_kl(self, noise: Tensor | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """Draws (None without noise) and the analytic KL(q || p) = -H[q] - E_q[log p], in one call."""
        weights = None if noise is None else self.sample(noise)
        kl = -self.entropy() - prior.expected_log_prob(self.mean_vector(), self.std_vector())
        return weights, kl

    def draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """Networks drawn from q, one at a time: tensors by parameter name, without gradient."""
        like = self.mean_vector()
        for _ in range(count):
            with torch.no_grad():
                noise = standard_normal((1, self.noise_size), like=like, generator=generator)
                tensors = self.layout.unflatten(self.sample(noise)[0])
            del noise
            yield tensors
            del tensors

    def explain(self, site: Site) -> str:
        """How this site is represented, for ``describe()``."""
        raise NotImplementedError
