"""One draw and its divergence, noise never in memory, of posteriors so large that memory is what a step costs.

The equations are those of ``one_pass``. Noise comes from a key: the compiled formulas make it in the caches, a few
thousand numbers at a time, and make it again where the gradient needs it. The gradient of the weights becomes, in the
same memory, that of the means. So of P weights a step with Adam holds means, log stds and their moments (6 P numbers),
and at any time at most two more vectors of P: the drawn weights and their gradients, or the gradients of means and log
stds.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ..native import draw_and_kl, takes, tied_draw_and_kl, tied_slopes
from ..native import slopes as native_slopes
from ..random import KeyedNoise
from .one_pass import GaussianPrior, slopes
from .std_forms import StdForm


def keyed_draw_and_kl(
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


class _DrawAndKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, state: Tensor, noise: KeyedNoise, prior: GaussianPrior, constant: Tensor, form: StdForm
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(mean, state)
        ctx.noise, ctx.prior, ctx.form = noise, prior, form
        ctx.set_materialize_grads(False)
        weights, total = draw_and_kl(form.native, mean, state, noise.key, prior.precision)
        assert weights is not None
        return weights[None], mean.new_tensor(total + constant.item())

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, state = ctx.saved_tensors
        noise, prior, form = ctx.noise, ctx.prior, ctx.form
        if of_weights is None and of_kl is None:
            return (None,) * 6
        if torch.is_grad_enabled():  # a gradient that is itself differentiated
            return *slopes(mean, state, noise.tensor(), prior, form, of_weights, of_kl), None, None, None, None
        of_draw = None if of_weights is None else owned(of_weights)
        key = None if of_draw is None else noise.key
        given = (mean, state, key, prior.precision, of_draw, of_kl, of_draw)
        return *native_slopes(form.native, *given), None, None, None, None


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


class KeyedTiedDraw(torch.autograd.Function):
    """The same for tied stds; ``posterior`` knows where each lies."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_factors: Tensor, log_std: Tensor | None, noise: KeyedNoise, prior: GaussianPrior,
        constant: Tensor, posterior: TiedPosterior,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ctx.save_for_backward(mean, log_factors, log_std)
        ctx.noise, ctx.prior, ctx.posterior = noise, prior, posterior
        ctx.set_materialize_grads(False)
        assert posterior.table is not None
        given = (log_factors.exp(), log_std, mean, noise.key, prior.precision)
        weights, total = tied_draw_and_kl(posterior.table, posterior.rank, *given)
        assert weights is not None
        return weights[None], mean.new_tensor(total + constant.item())

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, log_factors, log_std = ctx.saved_tensors
        if of_weights is None and of_kl is None:
            return (None,) * 7
        factors, posterior = log_factors.exp(), ctx.posterior
        if torch.is_grad_enabled():
            by_torch = (factors, log_std, mean, ctx.noise.tensor(), ctx.prior, of_weights, of_kl)
            return *posterior.slopes_by_torch(*by_torch), None, None, None, None
        of_draw = None if of_weights is None else owned(of_weights)
        key = None if of_draw is None else ctx.noise.key
        given = (factors, log_std, mean, key, ctx.prior.precision, of_draw, of_kl, of_draw)
        of_mean, of_factors, of_log_std = tied_slopes(posterior.table, posterior.rank, *given)
        return of_mean, of_factors.mul_(factors), of_log_std, None, None, None, None
