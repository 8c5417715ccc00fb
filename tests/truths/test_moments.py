"""Output moments checked by sampling weights, and by formulas for dense layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .arrays import generic_gaussian
from .moments import Op, output_moments, output_moments_general
from .statistics import assert_covariance_close, assert_mean_close, assert_variance_close

OPS: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...], int | None]] = {
    "linear": (F.linear, (3, 4), (2, 4), 2),
    "linear without bias": (F.linear, (3, 4), (2, 4), None),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), (2, 2, 4), (2, 2, 3), 2),
    "conv2d grouped, strided, dilated": (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2),
        (2, 2, 5, 4),
        (4, 1, 2, 2),
        4,
    ),
    "conv2d circular": (
        lambda x, w, b: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), w, b),
        (2, 1, 3, 3),
        (1, 1, 3, 3),
        1,
    ),
    "conv2d transposed": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2),
        (2, 2, 2, 2),
        (2, 1, 2, 3),
        1,
    ),
}


def layer(name: str) -> tuple[Op, torch.Tensor, list[Any]]:
    """The op, its input, and generic [weight mean, weight std, bias mean, bias std]."""
    op, input_shape, weight_shape, bias = OPS[name]
    generator = torch.Generator().manual_seed(14)
    shapes = [input_shape, weight_shape, weight_shape, *([(bias,), (bias,)] if bias else [])]
    x, *rest = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    stds = [0.2 + part.abs() for part in rest[1::2]]
    return op, x, [rest[0], stds[0], *([rest[2], stds[1]] if bias else [None, None])]


@pytest.mark.parametrize("name", OPS)
def test_output_moments_against_weight_sampling(name: str) -> None:
    """20,000 draws of the weight; false failures below 3e-6 for each op. Noise x 0.9 must be seen."""
    op, x, parts = layer(name)
    truth = output_moments(op, x, *parts)
    weight_mean, weight_std, bias_mean, bias_std = parts
    generator = torch.Generator().manual_seed(15)

    def draw(mean: torch.Tensor, std: torch.Tensor, factor: float) -> torch.Tensor:
        noise = torch.randn((20_000, *mean.shape), generator=generator, dtype=torch.float64)
        return mean + factor * std * noise

    def outputs(factor: float) -> torch.Tensor:
        weights = draw(weight_mean, weight_std, factor)
        if bias_mean is None:
            return torch.vmap(lambda weight: op(x, weight, None))(weights)
        return torch.vmap(lambda weight, bias: op(x, weight, bias))(weights, draw(bias_mean, bias_std, factor))

    samples = outputs(1.0)
    assert_mean_close(samples, truth.mean)
    assert_variance_close(samples, truth.variance)
    assert_covariance_close(samples, truth.covariance)
    with pytest.raises(AssertionError, match="variance is off"):
        assert_variance_close(outputs(0.9), truth.variance)


def test_output_moments_of_a_dense_layer_by_hand() -> None:
    op, x, (weight_mean, weight_std, bias_mean, bias_std) = layer("linear")
    truth = output_moments(op, x, weight_mean, weight_std, bias_mean, bias_std)
    torch.testing.assert_close(truth.mean, x @ weight_mean.T + bias_mean)
    torch.testing.assert_close(truth.variance, x.square() @ weight_std.square().T + bias_std.square())
    between = ((x[0] * x[2]) @ weight_std.square().T + bias_std.square()).diag()
    torch.testing.assert_close(truth.example_covariance(0, 2), between)
    fixed_bias = output_moments(op, x, weight_mean, weight_std, bias_mean)
    torch.testing.assert_close(fixed_bias.variance, x.square() @ weight_std.square().T)


def test_output_moments_with_correlated_weights_by_hand() -> None:
    """A matrix-normal weight, vec(W) row by row ~ N(mean, U kron V): Cov(W x_i, W x_j) = U (x_i' V x_j)."""
    _, x, (weight_mean, *_) = layer("linear without bias")
    rows, columns = (torch.from_numpy(generic_gaussian(size, 16 + size)[1]) for size in weight_mean.shape)
    truth = output_moments_general(F.linear, x, weight_mean, torch.kron(rows, columns))
    torch.testing.assert_close(truth.covariance, torch.kron(x @ columns @ x.T, rows))


def test_output_moments_take_integer_inputs_and_refuse_what_is_not_affine() -> None:
    index, mean = torch.tensor([2, 0, 2]), torch.randn(4, 3, generator=torch.Generator().manual_seed(17))
    std = 0.1 + mean.abs()
    truth = output_moments(lambda x, w, b: F.embedding(x, w), index, mean, std)
    torch.testing.assert_close(truth.variance, std.double().square()[index])
    torch.testing.assert_close(truth.example_covariance(0, 2), std.double().square()[2].diag())
    with pytest.raises(ValueError, match="not affine"):
        output_moments(lambda x, w, b: F.linear(x, w).tanh(), torch.randn(2, 3), mean, std)
