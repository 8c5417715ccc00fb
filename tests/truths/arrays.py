"""What the truths share: conversion of torch or numpy arguments to float64, and generic regression inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# All arrays hold float64; the looser name spares a cast around each call into linalg and scipy.
Array = npt.NDArray[Any]
ArrayLike = npt.ArrayLike | torch.Tensor


def float64(value: ArrayLike) -> Array:
    """`value` as a float64 numpy array; torch tensors are detached and brought to the CPU."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)


def correlated_inputs(generator: np.random.Generator, count: int, dimension: int, mixing: float) -> Array:
    """Rows with unequal scales, non-zero means and correlated columns, exactly representable in float32.

    x = z A' + m, A = diagonal + `mixing` * (a generic lower triangle). Rounding to float32 keeps the truth
    the same whether the code under test computes in float32 or float64.
    """
    factor = np.diag(generator.uniform(0.6, 1.2, dimension))
    factor += mixing * np.tril(generator.uniform(0.5, 1.0, (dimension, dimension)), -1)
    rows = generator.standard_normal((count, dimension)) @ factor.T + generator.normal(0.0, 0.3, dimension)
    return rows.astype(np.float32).astype(np.float64)


def design_matrix(inputs: Array, with_bias: bool) -> Array:
    """The columns that multiply (weights, bias): a column of ones is appended last when there is a bias."""
    return np.hstack([inputs, np.ones((len(inputs), 1))]) if with_bias else inputs


def generic_gaussian(size: int, seed: int, scale: float = 0.3) -> tuple[Array, Array]:
    """A mean and a covariance with nothing special about them."""
    generator = np.random.default_rng(seed)
    factor = scale * (generator.standard_normal((size, size)) + np.eye(size))
    return generator.standard_normal(size), factor @ factor.T
