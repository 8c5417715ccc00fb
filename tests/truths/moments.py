"""Exact moments of the outputs of a layer that is affine in its weight and bias, when these are Gaussian.

out = op(x, W, b) is affine in (W, b) with Jacobian J, so with (W, b) ~ N(m, S) it is Gaussian with mean
op(x, m) and covariance J S J', across units, positions and examples: one weight serves the whole batch.

What an estimator owes to this truth: weight sampling matches all of it; flipout matches the blocks of single
examples and its weight noise has covariance 0 between examples; local reparameterization matches the diagonal
and has 0 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
Op = Callable[[Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class OutputMoments:
    """`mean`, `variance` in the shape of the output, examples first; `covariance` of the flattened output."""

    mean: Tensor
    variance: Tensor
    covariance: Tensor

    def example_covariance(self, first: int, second: int) -> Tensor:
        """Covariance of the flattened outputs of example `first` with those of example `second`."""
        size = self.mean[0].numel()
        rows, columns = slice(first * size, (first + 1) * size), slice(second * size, (second + 1) * size)
        return self.covariance[rows, columns]


def _double(x: Tensor) -> Tensor:
    # Integer inputs (indices of an embedding) stay integers.
    return x.detach().double() if x.is_floating_point() else x


def jacobian(op: Op, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """d vec(op) / d (vec(weight), vec(bias)), outputs x parameters; refuses an op not affine in them."""
    x, weight = _double(x), _double(weight)
    bias = None if bias is None else _double(bias)
    split = weight.numel()
    shift = torch.empty(0, dtype=torch.float64) if bias is None else bias.flatten()
    point = torch.cat([weight.flatten(), shift])

    def outputs(flat: Tensor) -> Tensor:
        b = None if bias is None else flat[split:].reshape(bias.shape)
        return op(x, flat[:split].reshape(weight.shape), b).flatten()

    dense = torch.func.jacrev(outputs)(point)
    assert isinstance(dense, Tensor)
    # A second point, far from the first: an affine map is told exactly by its value and Jacobian.
    step = torch.linspace(-1.3, 1.7, point.numel(), dtype=torch.float64).sin() + 0.4
    predicted, actual = outputs(point) + dense @ step, outputs(point + step)
    if not torch.allclose(predicted, actual, rtol=1e-9, atol=1e-9 * float(actual.abs().max())):
        error = float((predicted - actual).abs().max())
        raise ValueError(f"op is not affine in its weight and bias: off by {error:.2e} at a second point")
    return dense


def output_moments_general(
    op: Op,
    x: Tensor,
    weight_mean: Tensor,
    covariance: Tensor,
    bias_mean: Tensor | None = None,
    dense: Tensor | None = None,
) -> OutputMoments:
    """Moments of op(x, W, b) for (vec(W), vec(b)) ~ N(means, `covariance`), the bias (if any) last.

    `dense` is the Jacobian where it is known already: it is the same at all means.
    """
    parameters = weight_mean.numel() + (0 if bias_mean is None else bias_mean.numel())
    if covariance.shape != (parameters, parameters):
        raise ValueError(f"covariance has shape {tuple(covariance.shape)}, needs {(parameters, parameters)}")
    if dense is None:
        dense = jacobian(op, x, weight_mean, bias_mean)
    mean = op(_double(x), _double(weight_mean), None if bias_mean is None else _double(bias_mean)).detach()
    outputs = dense @ _double(covariance) @ dense.T
    if outputs.shape[0] != math.prod(mean.shape):
        raise ValueError("op must return one tensor")
    return OutputMoments(mean, outputs.diagonal().reshape(mean.shape).clone(), outputs)


def output_moments(
    op: Op,
    x: Tensor,
    weight_mean: Tensor,
    weight_std: Tensor,
    bias_mean: Tensor | None = None,
    bias_std: Tensor | None = None,
) -> OutputMoments:
    """Moments of op(x, W, b) for independent W_i ~ N(weight_mean_i, weight_std_i^2); likewise the bias.

    `bias_mean` without `bias_std` is a deterministic bias.
    """
    variances = [_double(weight_std).expand(weight_mean.shape).flatten().square()]
    if bias_mean is not None:
        std = torch.zeros_like(bias_mean) if bias_std is None else bias_std
        variances.append(_double(std).expand(bias_mean.shape).flatten().square())
    elif bias_std is not None:
        raise ValueError("bias_std given without bias_mean")
    return output_moments_general(op, x, weight_mean, torch.cat(variances).diag(), bias_mean)
