"""One draw and its divergence, block by block, of posteriors so large that memory is what a step costs.

The equations are those of ``one_pass``. Noise comes from a key, and is made again where the gradient needs it: it is
never all in memory. The gradient of the weights becomes, in the same memory, that of the means. So of P weights a step
with Adam holds means, log stds and their moments (6 P numbers), and at any time at most two more vectors of P: the
drawn weights and their gradients, or the gradients of means and log stds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from ..native import streamed, takes
from ..native.memory import empty_like
from ..random import KeyedNoise
from .one_pass import GaussianPrior, slopes
from .std_forms import StdForm

_BLOCK = 1 << 20
"""Numbers of a block: its noise, 4 MB, is still in the caches as it is used."""


def draw_and_kl_by_blocks(
    mean: Tensor, state: Tensor, noise: KeyedNoise, prior: GaussianPrior, constant: Tensor, form: StdForm
) -> tuple[Tensor, Tensor] | None:
    """(1, P) weights and the KL; None where the compiled formulas do not take these."""
    if form.native < 0 or not takes(mean, state, prior.precision.values):
        return None
    weights, kl = _DrawAndKL.apply(mean, state, noise, prior, constant, form)
    return weights, kl


def owned(gradient: Tensor) -> Tensor:
    """The gradient of a drawn vector as a vector that may be written to.

    Networks read the draw through ``Layout.unflatten``, whose gradient is a concatenation: memory that nobody else has.
    A view into something larger is copied.
    """
    vector = gradient.reshape(-1).contiguous()
    whole = vector.untyped_storage().nbytes() == vector.numel() * vector.element_size()
    return vector if whole else vector.clone()


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, _BLOCK):
        yield slice(start, min(start + _BLOCK, size))


class _DrawAndKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, state: Tensor, noise: KeyedNoise, prior: GaussianPrior, constant: Tensor, form: StdForm
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(mean, state)
        ctx.noise, ctx.prior, ctx.form = noise, prior, form
        ctx.set_materialize_grads(False)
        weights, total = empty_like(mean), constant.item()
        ends = [] if prior.precision.ends is None else prior.precision.ends.tolist()
        for at in _blocks(mean.numel()):
            precision = streamed.part_of(prior.precision, ends, at.start, at.stop)
            drawn = noise.block(at.start, at.stop)
            total += streamed.draw_block(form.native, mean[at], state[at], drawn, precision, weights[at])
        return weights[None], mean.new_tensor(total)

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, state = ctx.saved_tensors
        noise, prior, form = ctx.noise, ctx.prior, ctx.form
        if of_weights is None and of_kl is None:
            return (None,) * 6
        if torch.is_grad_enabled():  # a gradient that is itself differentiated
            return *slopes(mean, state, noise.tensor(), prior, form, of_weights, of_kl), None, None, None, None
        of_mean = torch.zeros_like(mean) if of_weights is None else owned(of_weights)
        of_state = empty_like(state)
        ends = [] if prior.precision.ends is None else prior.precision.ends.tolist()
        for at in _blocks(mean.numel()):
            precision = streamed.part_of(prior.precision, ends, at.start, at.stop)
            given = (mean[at], state[at], noise.block(at.start, at.stop), precision)
            streamed.slope_block(form.native, *given, of_mean[at], of_kl, of_state[at])
        return of_mean, of_state, None, None, None, None


class TiedPosterior(Protocol):
    """What the posterior of tied stds is asked for here."""

    rank: int
    table: Tensor | None

    def slopes_by_torch(
        self, factors: Tensor, log_std: Tensor | None, mean: Tensor, noise: Tensor | None, prior: GaussianPrior,
        of_weights: Tensor | None, of_kl: Tensor | None,
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:  # fmt: skip
        """The gradients of mean, log_factors and log_std, such that they can be differentiated."""
        ...


class TiedBySite(torch.autograd.Function):
    """The same for tied stds, a site at a time; ``posterior`` knows where each lies."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_factors: Tensor, log_std: Tensor | None, noise: KeyedNoise, prior: GaussianPrior,
        constant: Tensor, posterior: TiedPosterior,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.save_for_backward(mean, log_factors, log_std)
        ctx.noise, ctx.prior, ctx.posterior = noise, prior, posterior
        ctx.set_materialize_grads(False)
        weights, total, factors = empty_like(mean), constant.item(), log_factors.exp()
        for site, at, precision in _sites(posterior.table, prior):
            given = (mean[at], noise.block(at.start, at.stop), precision)
            total += streamed.draw_site(site, posterior.rank, factors, log_std, *given, weights[at])
        return weights[None], mean.new_tensor(total)

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, log_factors, log_std = ctx.saved_tensors
        if of_weights is None and of_kl is None:
            return (None,) * 7
        factors, posterior = log_factors.exp(), ctx.posterior
        if torch.is_grad_enabled():
            given = (mean, ctx.noise.tensor(), ctx.prior, of_weights, of_kl)
            return *posterior.slopes_by_torch(factors, log_std, *given), None, None, None, None
        of_mean = torch.zeros_like(mean) if of_weights is None else owned(of_weights)
        of_factors, of_log_std = torch.empty_like(factors), None if log_std is None else empty_like(log_std)
        for site, at, precision in _sites(posterior.table, ctx.prior):
            given = (mean[at], ctx.noise.block(at.start, at.stop), precision, of_mean[at], of_kl)
            streamed.slope_site(site, posterior.rank, factors, log_std, *given, of_factors, of_log_std)
        return of_mean, of_factors.mul_(factors), of_log_std, None, None, None, None


def _sites(table: Tensor | None, prior: GaussianPrior) -> Iterator[tuple[Tensor, slice, Tensor]]:
    """Each row of the table as that of a vector by itself, where it lies in the whole, and its precisions."""
    assert table is not None
    values, by_site = prior.precision.values, prior.precision.ends is not None
    for index, (start, size, *rest) in enumerate(table.tolist()):
        if size:
            at = slice(start, start + size)
            row = torch.tensor([[0, size, *rest]], dtype=torch.int64, device="cpu")
            yield row, at, values[index : index + 1] if by_site else values[at]
