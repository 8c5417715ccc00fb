"""Stds that are products of factors, as the compiled formulas take them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeswell import native
from native.formulas import numbers


def tied_factors(rows: int, columns: int, rank: int) -> tuple[Tensor, Tensor]:
    """Factors whose products are from about 0.01 to 1."""
    left = numbers(rows * rank, 11, 0.6, -1.3).exp().view(rows, rank)
    return left, numbers(rank * columns, 12, 0.6, -1.3).exp().view(rank, columns)


def as_site(left: Tensor, right: Tensor) -> tuple[Tensor, int, Tensor, None]:
    """One matrix that is tied, as the compiled formulas take it: sites, rank, factors (row by row), log stds."""
    (rows, rank), columns = left.shape, right.shape[1]
    sites = torch.tensor([[0, rows * columns, columns, 0, rows * rank]])
    return sites, rank, torch.cat([left.reshape(-1), right.T.reshape(-1)]), None


def tied_draw_and_kl(left: Tensor, right: Tensor, *others: Any) -> tuple[Tensor | None, float]:
    """For one matrix."""
    return native.tied_draw_and_kl(*as_site(left, right), *others)


def tied_slopes(left: Tensor, right: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """For one matrix: of the mean, and of the factors."""
    of_mean, of_factors, _ = native.tied_slopes(*as_site(left, right), *others)
    return of_mean, of_factors[: left.numel()].view_as(left), of_factors[left.numel() :].view_as(right.T).T
