"""The k-tied Normal: standard deviations of a weight matrix as a low-rank product."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import BayeswellWarning, SettingError, require_count, require_positive
from ..native import takes, tied_draw_and_kl, tied_slopes
from ..native.memory import empty
from ..random import KeyedNoise
from ..tree import Layout, Site
from ..types import ENTROPY, FACTORISED, LOG_PROB, WEIGHT_SAMPLE, Posterior, Prior
from ..types.posterior import rows_of
from .factorised import FactorisedPosterior
from .mean_field import MeanFieldPosterior
from .one_pass import GaussianPrior, slopes
from .start import check_initial_std, initial_std_vector
from .std_forms import AS_IT_IS
from .streamed import KeyedTiedDraw


class KTiedPosterior(FactorisedPosterior):
    """Trainable state: ``mean``, ``log_factors`` (of all tied sites, flat) and ``log_std`` (of the others, if any)."""

    log_std: nn.Parameter | None
    std_form = AS_IT_IS
    can_scale_stds = True
    log_std_speed = 2.0  # log std_ij = log sum_k exp(a_ik + b_jk): both factors move

    def __init__(
        self,
        layout: Layout,
        means: Tensor,
        stds: Tensor,
        tied: frozenset[str],
        tie: str | tuple[str, ...],
        rank: int,
        spread: float,
    ) -> None:
        super().__init__(layout, means)
        self.tied, self.tie, self.rank = tied, tie, rank
        factors, free = [], []
        for site in layout.sites:
            piece = stds[layout.slices[site.name]]
            if site.name not in tied:
                free.append(piece.log())
                continue
            rows, columns = site.matrix_shape or (0, 0)
            centre = 0.5 * (math.log(float(piece.mean()) / rank) - spread**2)
            factors.append(centre + spread * torch.randn_like(means[:1].expand((rows + columns) * rank)))
        self.log_factors = nn.Parameter(torch.cat(factors))
        self.register_parameter("log_std", nn.Parameter(torch.cat(free)) if free else None)
        # Each site, and where its numbers lie: in ``log_std``, or in ``log_factors`` (rows, columns).
        self.places = tuple(self._find_places())
        self.table = self._make_table()

    def std_state(self) -> Tensor:
        """std_ij = sum_k u_ik v_jk with u = exp(a), v = exp(b) for tied sites, exp(log_std) for the others."""
        return _stds(self, self.log_factors.exp(), self.log_std)

    @torch.no_grad()
    def scale_stds(self, factor: float) -> None:
        """Half of log(factor) to each side of a product, all of it to the other log stds."""
        self.log_factors.add_(0.5 * math.log(factor))
        if self.log_std is not None:
            self.log_std.add_(math.log(factor))

    def sample_and_kl(self, noise: Tensor | KeyedNoise | None, prior: Prior) -> tuple[Tensor | None, Tensor]:
        """As every factorised posterior's, without ever writing the stds down where the compiled formulas can."""
        if isinstance(noise, KeyedNoise):
            return super().sample_and_kl(noise, prior)
        gaussian, log_std_sum = GaussianPrior.of(prior, self.layout), prior.log_std_sum
        given = (self.mean, self.log_factors, self.log_std, noise)
        if gaussian is None or log_std_sum is None or self.table is None:
            return super().sample_and_kl(noise, prior)
        if (noise is not None and len(noise) > 1) or not takes(*given, gaussian.precision.values):
            return super().sample_and_kl(noise, prior)
        constant = log_std_sum - 0.5 * self.layout.size
        weights, kl = _TiedDrawAndKL.apply(*given, gaussian, constant, self)
        return weights, kl

    def _keyed(self, noise: KeyedNoise, gaussian: GaussianPrior, prior: Prior) -> tuple[Tensor, Tensor] | None:
        given = (self.mean, self.log_factors, self.log_std)
        if self.table is None or prior.log_std_sum is None or not takes(*given, gaussian.precision.values):
            return None
        constant = prior.log_std_sum - 0.5 * self.layout.size
        weights, kl = KeyedTiedDraw.apply(*given, noise, gaussian, constant, self)
        return weights, kl

    def slopes_by_torch(
        self, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None, prior: GaussianPrior,
        of_weights: Tensor | None, of_kl: Tensor | None,
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:  # fmt: skip
        """The gradients of mean, log_factors and log_std, such that they can be differentiated."""
        std = _stds(self, factors, log_std)
        of_mean, of_std = slopes(mean, std, noise, prior, AS_IT_IS, of_weights, of_kl)
        assert of_std is not None
        return of_mean, *_slopes_of_stds(self, factors, std, of_std)

    def _make_table(self) -> Tensor | None:
        """``places`` for the compiled formulas; None if a matrix lies in memory as they cannot read it.

        Of a table with its output units last (an embedding) they read the transpose: left and right change places.
        """
        rows = []
        for site, free, sides in self.places:
            start = self.layout.slices[site.name].start
            if sides is None:
                rows.append([start, site.size, 0, free.start, 0])
                continue
            left, right = (side.start for side in sides)
            if site.output_dim == 0 and site.matrix_shape is not None:
                rows.append([start, site.size, site.matrix_shape[1], left, right])
            elif site.output_dim == 1 and len(site.shape) == 2:
                rows.append([start, site.size, site.shape[1], right, left])
            else:
                return None
        return torch.tensor(rows, dtype=torch.int64, device="cpu")

    def _find_places(self) -> Iterator[tuple[Site, slice, tuple[slice, slice] | None]]:
        at, free_at = 0, 0
        for site in self.layout.sites:
            if site.name not in self.tied:
                yield site, slice(free_at, free_at + site.size), None
                free_at += site.size
                continue
            rows, columns = (side * self.rank for side in site.matrix_shape or (0, 0))
            yield site, slice(0), (slice(at, at + rows), slice(at + rows, at + rows + columns))
            at += rows + columns

    def rows_by_site(self, name: str, parameter: Tensor) -> list[tuple[str, int, int]]:
        """Tied sites have rows of ``log_factors``, the others of ``log_std``."""
        if name == "mean":
            return super().rows_by_site(name, parameter)
        tied = name == "log_factors"
        sites = [site for site in self.layout.sites if (site.name in self.tied) == tied]
        return rows_of((s.name, sum(s.matrix_shape or (0, 0)) * self.rank if tied else s.size) for s in sites)

    def explain(self, site: Site) -> str:
        """For ``describe()``."""
        if site.name in self.tied:
            rows, columns = site.matrix_shape or (0, 0)
            return f"k_tied(rank={self.rank}, {rows}x{columns})"
        if site.matrix_shape is None:
            return "mean_field (not a matrix)"
        if not site.fits(self.tie):
            return "mean_field (not chosen by tie)"
        return f"mean_field (rank {self.rank} exceeds its smaller side {min(site.matrix_shape)})"


def _stds(posterior: KTiedPosterior, factors: Tensor, log_std: Tensor | None) -> Tensor:
    """(P,): all stds, from the factors themselves and the logarithms of the others."""
    pieces = []
    for site, free, sides in posterior.places:
        if sides is None:
            assert log_std is not None
            pieces.append(log_std[free].exp())
            continue
        left, right = (factors[side].view(-1, posterior.rank) for side in sides)
        pieces.append(site.from_matrix(left @ right.T).reshape(-1))
    joined = None if torch.is_grad_enabled() or not takes(*pieces) else empty((posterior.layout.size,), pieces[0])
    return torch.cat(pieces, out=joined)


def _slopes_of_stds(
    posterior: KTiedPosterior, factors: Tensor, std: Tensor, of_std: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The gradients of log_factors and log_std. Nothing is written in place: ``of_std`` may be a batch of them."""
    of_factors, of_log_std = [], []
    for site, _, sides in posterior.places:
        place = posterior.layout.slices[site.name]
        if sides is None:
            of_log_std.append(of_std[place] * std[place])
            continue
        left, right = (factors[side].view(-1, posterior.rank) for side in sides)
        of_matrix = site.to_matrix(of_std[place].view(site.shape))
        of_factors += [(of_matrix @ right).reshape(-1), (of_matrix.T @ left).reshape(-1)]
    return torch.cat(of_factors) * factors, torch.cat(of_log_std) if of_log_std else None


class _TiedDrawAndKL(torch.autograd.Function):
    """One draw (None without noise) and the KL of ``one_pass``; the equations are there."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_factors: Tensor, log_std: Tensor | None, noise: Tensor | None,
        prior: GaussianPrior, constant: Tensor, posterior: KTiedPosterior,
    ) -> tuple[Tensor | None, Tensor]:  # fmt: skip
        factors = log_factors.exp()
        ctx.save_for_backward(log_factors, log_std, mean, noise)
        ctx.prior = prior
        ctx.posterior = posterior
        ctx.set_materialize_grads(False)
        table = posterior.table
        assert table is not None
        drawn, kl = tied_draw_and_kl(table, posterior.rank, factors, log_std, mean, noise, prior.precision)
        return None if drawn is None else drawn[None], mean.new_tensor(kl + constant.item())

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        if of_weights is None and of_kl is None:
            return (None,) * 7
        log_factors, log_std, mean, noise = ctx.saved_tensors
        factors = log_factors.exp()
        prior: GaussianPrior = ctx.prior
        posterior: KTiedPosterior = ctx.posterior
        of_draw = None if of_weights is None else of_weights.contiguous()
        if not torch.is_grad_enabled() and takes(of_draw, of_kl):
            table = posterior.table
            assert table is not None
            of_mean, of_factors, of_log_std = tied_slopes(
                table, posterior.rank, factors, log_std, mean, noise, prior.precision, of_draw, of_kl
            )
            return of_mean, of_factors.mul_(factors), of_log_std, None, None, None, None
        given = (mean, noise, prior, of_weights, of_kl)
        return *posterior.slopes_by_torch(factors, log_std, *given), None, None, None, None


@dataclass(frozen=True)
class KTied:
    """Stds of each weight matrix as a rank-k product of positive factors: half the parameters of mean-field.

    std_ij = sum_k u_ik v_jk with u = exp(a), v = exp(b) (optimised in log form), weights independent given
    that. A matrix of m x n has k (m + n) std parameters instead of m n. Factors start as
    a, b ~ N((log(s/k) - spread^2)/2, spread^2), so that E[std] = s, the mean std that mean-field would start
    from; spread > 0 breaks the symmetry between the k components, which would otherwise stay equal forever.

    ``tie`` chooses the tied parameters by name patterns; a convolution kernel is tied as the matrix (output
    channels) x (input channels x kernel area). The paper ties dense and recurrent matrices only. Biases, and
    matrices whose smaller side is below the rank, stay mean-field (with a warning where nothing is left to tie).
    """

    rank: int = 2
    tie: str | tuple[str, ...] = "*"
    initial_std: float | None = None
    spread: float = 0.1

    name: ClassVar[str] = "k_tied"
    paper: ClassVar[str] = "Swiatkowski et al. 2020"
    provides: ClassVar[frozenset[str]] = frozenset({FACTORISED, WEIGHT_SAMPLE, LOG_PROB, ENTROPY})

    def __post_init__(self) -> None:
        require_count("k_tied", "rank", self.rank)
        require_positive("k_tied", "spread", self.spread)
        check_initial_std("k_tied", self.initial_std)
        patterns = (self.tie,) if isinstance(self.tie, str) else self.tie
        if not isinstance(patterns, tuple | list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise SettingError(f"k_tied: tie = {self.tie!r}; it must be a name pattern or several")

    def build(self, layout: Layout, prior: Prior, means: Tensor) -> Posterior:
        """Trainable state over the layout."""
        chosen = [s for s in layout.sites if s.matrix_shape is not None and s.fits(self.tie)]
        if not chosen and self.tie == "*":
            warnings.warn(
                "k_tied: the network has no weight matrix to tie; all stds are mean-field",
                BayeswellWarning,
                stacklevel=2,
            )
            return MeanFieldPosterior(layout, means, initial_std_vector(self.initial_std, prior))
        if not chosen:
            raise SettingError(
                f"k_tied: tie = {self.tie!r} fits no weight matrix; the network has: "
                f"{', '.join(s.name for s in layout.sites if s.matrix_shape) or 'none'}"
            )
        stds = initial_std_vector(self.initial_std, prior)
        largest = max(min(s.matrix_shape) for s in chosen if s.matrix_shape)
        if self.rank > largest:
            warnings.warn(
                f"k_tied: rank = {self.rank} exceeds the smaller side ({largest}) of every matrix that could be tied; "
                "all stds are mean-field",
                BayeswellWarning,
                stacklevel=2,
            )
            return MeanFieldPosterior(layout, means, stds)
        tied = frozenset(s.name for s in chosen if s.matrix_shape and self.rank <= min(s.matrix_shape))
        return KTiedPosterior(layout, means, stds, tied, self.tie, self.rank, self.spread)
