"""The regularised incomplete beta function, which torch lacks: the CDFs of Student's t and of the negative binomial."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-300
_CLOSE = 1e-13
_MOST_TERMS = 20_000


def incomplete_beta(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """I_x(a, b) = int_0^x t^(a-1) (1-t)^(b-1) dt / B(a, b), in float64; ``rest`` is 1 - x, given for its digits.

    By the continued fraction of DLMF 8.17.22, evaluated as Lentz (1976) and Thompson & Barnett (1986) do. It converges
    fast for x < (a + 1) / (a + b + 2); beyond, I_x(a, b) = 1 - I_{1-x}(b, a).
    """
    a, b, x, rest = torch.broadcast_tensors(*(value.double() for value in (a, b, x, rest)))
    turned = x * (a + b + 2) > a + 1
    p, q = torch.where(turned, b, a), torch.where(turned, a, b)
    y, z = torch.where(turned, rest, x), torch.where(turned, x, rest)
    # 0 and 1 are answered at the end; here they stand aside.
    inside = (y > 0) & (z > 0)
    y, z = torch.where(inside, y, 0.5), torch.where(inside, z, 0.5)
    log_front = p * y.log() + q * z.log() + torch.lgamma(p + q) - torch.lgamma(p) - torch.lgamma(q) - p.log()
    small = torch.where(inside, log_front.exp() / _fraction(p, q, y), 0.0).clamp(0, 1)
    return torch.where(turned, 1 - small, small)


def _fraction(p: Tensor, q: Tensor, y: Tensor) -> Tensor:
    """1 + d_1/(1 + d_2/(1 + ...)): d_2m = m (q-m) y / ((p+2m-1)(p+2m)), d_2m+1 = -(p+m)(p+q+m) y / ((p+2m)(p+2m+1))."""
    value, upper, lower = torch.ones_like(y), torch.ones_like(y), torch.zeros_like(y)
    for term in range(1, _MOST_TERMS):
        m = term // 2
        if term % 2:
            step = -(p + m) * (p + q + m) * y / ((p + 2 * m) * (p + 2 * m + 1))
        else:
            step = m * (q - m) * y / ((p + 2 * m - 1) * (p + 2 * m))
        lower = _away_from_zero(1 + step * lower).reciprocal()
        upper = _away_from_zero(1 + step / upper)
        change = upper * lower
        value = value * change
        if term % 8 == 0 and bool(((change - 1).abs() < _CLOSE).all()):
            break
    return value


def _away_from_zero(value: Tensor) -> Tensor:
    return torch.where(value.abs() < _TINY, _TINY, value)
