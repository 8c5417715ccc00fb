"""p(w) and q(w) over one flat vector of P weights; D draws."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..errors import SettingError
from ..random import standard_normal
from ..tree import Layout, Site


@runtime_checkable
class Prior(Protocol):
    """p(w), laid out over the sites of one network (independent weights).

    Where it is Gaussian throughout, ``inverse_variance`` is 1/s^2 (a scalar or (P,)), ``inverse_variance_by_site`` the
    same with one number a site, and ``log_std_sum`` the sum of log s over all weights; else all are None. ``centre`` is
    (P,) where the prior is centred elsewhere than at zero, else None.
    """

    @property
    def inverse_variance(self) -> Tensor | None:
        """1/s^2 of a Gaussian prior."""
        ...

    @property
    def inverse_variance_by_site(self) -> Tensor | None:
        """The same, one number a site."""
        ...

    @property
    def log_std_sum(self) -> Tensor | None:
        """The sum of log s of a Gaussian prior."""
        ...

    @property
    def centre(self) -> Tensor | None:
        """(P,): where the prior is centred; None at zero."""
        ...

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


@dataclass(frozen=True)
class Covariance:
    """Cov[w] = diag(``variances``) + F F' + the sites whose matrix is M + A E B', independent of all else.

    ``variances`` is (P,), F = ``factor`` (P, r) or None, and (A, B) are found in ``matrices`` by the site's name.
    """

    variances: Tensor
    factor: Tensor | None = None
    matrices: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


class Posterior(nn.Module):
    """q(w), a trainable distribution over the flat weight vector. Calling it gives log q(w).

    A bank of networks has ``members`` > 0 of them (``member``). ``extra_names`` are the network's other parameters and
    buffers that come with each draw. ``can_set_stds`` and ``can_scale_stds`` say whether ``set_stds`` and
    ``scale_stds`` are more than a refusal, ``settable_columns`` the same of ``set_covariance``.
    """

    layout: Layout
    noise_size: int
    log_std_speed: float = 1.0
    """How far a log std moves, at most, as each parameter that it is made of moves by one."""
    extra_names: tuple[str, ...] = ()
    can_set_stds: bool = False
    can_scale_stds: bool = False
    settable_columns: int = 0
    """How many columns F of ``set_covariance`` may have; 0: q cannot hold any."""
    takes_keys: bool = False
    """Whether ``sample_and_kl`` takes noise that is known by its key (``random.KeyedNoise``), to need less memory."""
    keys_from: int | None = None
    """From how many weights on that is worth its while; None: from where memory is what a step costs."""
    rates: Mapping[str, float] = MappingProxyType({})
    """Of parameters by name: what multiplies the learning rate of the stds, where it is not 1."""

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

    def covariance(self) -> Covariance | None:
        """The covariance of a Gaussian q, in parts that are cheap to multiply with; None where it is not known."""
        return None

    @property
    def variational_parameters(self) -> int:
        """How many free numbers q has, means among them: what papers report. A symmetric matrix counts its triangle."""
        return sum(parameter.numel() for parameter in self.parameters())

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
                tensors = self.layout.unflatten(self.sample(noise)[0].detach())  # a point hands out a view
            del noise
            yield tensors
            del tensors

    def passing_draws(self, count: int, generator: torch.Generator | None) -> Iterator[dict[str, Tensor]]:
        """As ``draws``, for who is done with one before asking for the next: it may be given the same memory.

        Memory that the system has to hand out anew takes more time to get than a draw takes to compute.
        """
        return self.draws(count, generator)

    def channels_last_draws(
        self, count: int, generator: torch.Generator | None, kernels: Collection[str]
    ) -> Iterator[dict[str, Tensor]]:
        """As ``passing_draws``; these kernels of convolutions may lie in ``torch.channels_last`` already."""
        return self.passing_draws(count, generator)

    @property
    def members(self) -> int:
        """How many networks q is made of, each drawn with equal chance; 0 if it is a distribution over all weights."""
        return 0

    def member(self, index: int) -> dict[str, Tensor]:
        """One network of a bank: tensors by name."""
        raise SettingError(f"{type(self).__name__} is not a bank of networks: it has no members")

    def centres(self) -> Iterator[dict[str, Tensor]]:
        """The mean network of each component of a mixture, or the one there is: tensors by name."""
        yield self.layout.unflatten(self.mean_vector().detach())

    def useful_draws(self, count: int) -> int:
        """How many of ``count`` draws say something new: each member of a bank once, else all."""
        return min(count, self.members) if self.members else count

    def set_stds(self, std: Tensor) -> None:
        """Give each weight this standard deviation (P,); refused where stds are made of something else."""
        raise SettingError(
            f"{type(self).__name__} has no std for each weight that could be set; use posterior 'mean_field'"
        )

    def set_covariance(self, variances: Tensor, factor: Tensor) -> None:
        """Make Cov[w] = diag(variances) + F F' of (P,) variances above 0 and (P, k) columns; the mean stays.

        Refused where q has no such covariance, or fewer columns (``settable_columns``).
        """
        raise SettingError(
            f"{type(self).__name__} has no low-rank covariance that could be set; use posterior 'low_rank'"
        )

    def scale_stds(self, factor: float) -> None:
        """Multiply every deviation from the mean by a factor above 0; refused where there is no spread around one."""
        raise SettingError(f"{type(self).__name__} has no spread around a mean that could be scaled")

    def rows_by_site(self, name: str, parameter: Tensor) -> list[tuple[str, int, int]]:
        """Which rows of one of q's parameters belong to which site: (site, first row, behind the last).

        A parameter that belongs to no single site has its own name in the site's place.
        """
        if parameter.dim() and len(parameter) == self.layout.size:
            return rows_of([(site.name, site.size) for site in self.layout.sites])
        return [(name, 0, len(parameter) if parameter.dim() else 1)]

    def explain(self, site: Site) -> str:
        """How this site is represented, for ``describe()``."""
        return type(self).__name__


def rows_of(sizes: Iterable[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """(name, first row, behind the last) of pieces that lie one behind the other."""
    rows, at = [], 0
    for name, size in sizes:
        rows.append((name, at, at + size))
        at += size
    return rows
