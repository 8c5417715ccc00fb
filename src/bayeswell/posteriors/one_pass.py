"""The draw and the divergence of independent Gaussian weights, value and gradients as one pass over the weights each.

With w = m + s eps, h = 1 / p^2 for prior stds p, and

    KL = k + sum [h (m^2 + s^2) / 2 - log s],        k = sum [log p - 1/2],

upstream gradients g (of w) and c (of KL) give d/dm = g + c h m and d/ds = g eps + c (h s - 1 / s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..native import Precision, gaussian, takes, transformed
from ..native.fused import fused
from ..tree import Layout
from ..types import Prior
from .std_forms import StdForm


@dataclass(frozen=True)
class GaussianPrior:
    """What a KL from independent N(0, p^2) needs to know: 1 / p^2, one number for each stretch of weights."""

    precision: Precision

    @classmethod
    def of(cls, prior: Prior, layout: Layout) -> GaussianPrior | None:
        """That of a prior; None if it is not Gaussian throughout, or has its centre elsewhere than at zero."""
        if prior.centre is not None or prior.inverse_variance_by_site is None:
            return None
        return cls(Precision(prior.inverse_variance_by_site, layout.ends))

    @property
    def inverse_variance(self) -> Tensor:
        """1 / p^2 as a scalar or (P,), for torch's operations; the compiled formulas read the stretches."""
        return self.precision.spread()


def draws_and_kl(
    mean: Tensor, state: Tensor, noise: Tensor | None, prior: GaussianPrior, constant: Tensor, form: StdForm
) -> tuple[Tensor | None, Tensor]:
    """(D, P) draws (None without noise) and the KL with k = ``constant``."""
    if transformed():
        std = form.std(state)
        drawn = None if noise is None else torch.addcmul(mean, std, noise)
        terms = 0.5 * prior.inverse_variance * (mean.square() + std.square()) - form.log_std(state)
        return drawn, terms.sum() + constant
    weights, kl = _DrawsAndKL.apply(mean, state, noise, prior, constant, form)
    return weights, kl


def variances(state: Tensor, form: StdForm) -> Tensor:
    """(P,) s^2."""
    if transformed():
        return form.std(state).square()
    variance: Tensor = _Variances.apply(state, form)
    return variance


def weighted_squares(state: Tensor, values: Tensor, form: StdForm) -> Tensor:
    """sum (s values)^2."""
    if transformed():
        return (form.std(state) * values).square().sum()
    total: Tensor = _WeightedSquares.apply(state, values, form)
    return total


class _DrawsAndKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, state: Tensor, noise: Tensor | None, prior: GaussianPrior, constant: Tensor,
        form: StdForm,
    ) -> tuple[Tensor | None, Tensor]:  # fmt: skip
        ctx.save_for_backward(mean, state, noise)
        ctx.prior, ctx.form = prior, form
        ctx.set_materialize_grads(False)
        if _one_draw(noise) and _is_native(form, mean, state, noise, prior.precision.values):
            drawn, value = gaussian.draw_and_kl(form.native, mean, state, noise, prior.precision)
            return None if drawn is None else drawn[None], mean.new_tensor(value + constant.item())
        return _draws_and_kl(mean, state, noise, prior.inverse_variance, constant, form)

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        mean, state, noise = ctx.saved_tensors
        form: StdForm = ctx.form
        prior: GaussianPrior = ctx.prior
        if of_weights is None and of_kl is None:
            return (None,) * 6
        if _one_draw(noise) and _is_native(form, mean, state, noise, prior.precision.values, of_weights, of_kl):
            given = (noise, prior.precision, of_weights, of_kl)
            return *gaussian.slopes(form.native, mean, state, *given), None, None, None, None
        return *slopes(mean, state, noise, prior, form, of_weights, of_kl), None, None, None, None


@fused
def _draws_and_kl(
    mean: Tensor, state: Tensor, noise: Tensor | None, inverse_variance: Tensor, constant: Tensor, form: StdForm
) -> tuple[Tensor | None, Tensor]:
    """By torch's operations."""
    std = form.std(state)
    weights = None if noise is None else torch.addcmul(mean, std, noise)
    terms = std.square().addcmul_(mean, mean).mul_(inverse_variance).mul_(0.5).sub_(form.log_std(state))
    return weights, terms.sum() + constant


def slopes(
    mean: Tensor, state: Tensor, noise: Tensor | None, prior: GaussianPrior, form: StdForm, of_weights: Tensor | None,
    of_kl: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of mean and state for ``draws_and_kl``, from those of its two results, by torch's operations."""
    return _slopes(mean, state, noise, prior.inverse_variance, form, of_weights, of_kl)


@fused
def _slopes(
    mean: Tensor, state: Tensor, noise: Tensor | None, inverse_variance: Tensor, form: StdForm,
    of_weights: Tensor | None, of_kl: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    slope, of_mean, of_state = form.slope(state), None, None
    if of_weights is not None:
        assert noise is not None
        of_mean = of_weights.sum(0)
        of_state = (of_weights * noise).sum(0) * slope
    if of_kl is not None:
        scale = inverse_variance * of_kl
        of_kl_by_state = form.std(state) * scale * slope - form.log_slope(state) * of_kl
        of_mean = mean * scale if of_mean is None else torch.addcmul(of_mean, mean, scale)
        of_state = of_kl_by_state if of_state is None else of_state + of_kl_by_state
    return of_mean, of_state


def point_and_kl(mean: Tensor, prior: GaussianPrior, constant: Tensor) -> tuple[Tensor, Tensor]:
    """(1, P): the weights themselves, and constant + sum h m^2 / 2."""
    if transformed():
        return mean[None], 0.5 * (prior.inverse_variance * mean.square()).sum() + constant
    weights, kl = _PointAndKL.apply(mean, prior, constant)
    return weights, kl


class _PointAndKL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, prior: GaussianPrior, constant: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(mean)
        ctx.prior = prior
        ctx.set_materialize_grads(False)
        if takes(mean, prior.precision.values):
            return mean[None], mean.new_tensor(gaussian.half_squares(mean, prior.precision) + constant.item())
        return mean[None], 0.5 * torch.dot(mean * prior.inverse_variance, mean) + constant

    @staticmethod
    def backward(ctx: Any, of_weights: Tensor | None, of_kl: Tensor | None) -> tuple[Tensor | None, None, None]:
        (mean,) = ctx.saved_tensors
        prior: GaussianPrior = ctx.prior
        of_draw = None if of_weights is None else of_weights[0]
        if of_kl is None:
            return of_draw, None, None
        if not torch.is_grad_enabled() and takes(mean, prior.precision.values, of_draw, of_kl):
            return gaussian.half_squares_slope(mean, prior.precision, of_draw, of_kl), None, None
        of_mean = mean * (prior.inverse_variance * of_kl)
        return of_mean if of_draw is None else of_mean + of_draw, None, None


class _Variances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: Tensor, form: StdForm) -> Tensor:
        ctx.save_for_backward(state)
        ctx.form = form
        return gaussian.variance(form.native, state) if _is_native(form, state) else form.std(state).square()

    @staticmethod
    def backward(ctx: Any, of_variance: Tensor) -> tuple[Tensor, None]:
        (state,) = ctx.saved_tensors
        form: StdForm = ctx.form
        if _is_native(form, state, of_variance):
            return gaussian.variance_slope(form.native, of_variance, state), None
        return 2 * of_variance * form.std(state) * form.slope(state), None


class _WeightedSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, state: Tensor, values: Tensor, form: StdForm) -> Tensor:
        ctx.save_for_backward(state, values)
        ctx.form = form
        if _is_native(form, state, values):
            return values.new_tensor(gaussian.weighted_squares(form.native, state, values))
        return form.std(state).mul(values).square_().sum()

    @staticmethod
    def backward(ctx: Any, of_sum: Tensor) -> tuple[Tensor, Tensor, None]:
        state, values = ctx.saved_tensors
        form: StdForm = ctx.form
        if _is_native(form, state, values, of_sum):
            return *gaussian.weighted_squares_slopes(form.native, state, values, of_sum), None
        std = form.std(state)
        flow = std * values * (2 * of_sum)
        return flow * values * form.slope(state), flow * std, None


def _is_native(form: StdForm, *tensors: Tensor | None) -> bool:
    """Whether the compiled formulas take these: they know two forms of std.

    Not where gradients are recorded: inside these functions that is so only when a gradient is itself differentiated.
    """
    return form.native >= 0 and not torch.is_grad_enabled() and takes(*tensors)


def _one_draw(noise: Tensor | None) -> bool:
    """The compiled formulas make one draw at a time."""
    return noise is None or len(noise) == 1
