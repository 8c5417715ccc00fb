"""Adam's step as a proposal: how a sampler gets to where the posterior is, and what moves parameters without noise."""

from __future__ import annotations

import torch
from torch import Tensor

BETAS = (0.9, 0.999)

EPS = 1e-8
KEYS = ("average", "average_square", "step")


def adam_step(
    params: list[Tensor], grads: list[Tensor], lr: float, state: dict[str, list[Tensor]]
) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
    """New values and new state; Kingma & Ba 2015, algorithm 1."""
    counts = [count + 1 for count in state["step"]]
    average = torch._foreach_lerp(state["average"], grads, 1 - BETAS[0])
    square = torch._foreach_mul(state["average_square"], BETAS[1])
    torch._foreach_addcmul_(square, grads, grads, value=1 - BETAS[1])
    size = torch._foreach_div(square, [1 - BETAS[1] ** float(count) for count in counts])
    torch._foreach_sqrt_(size)
    torch._foreach_add_(size, EPS)
    torch._foreach_mul_(size, [1 - BETAS[0] ** float(count) for count in counts])
    values = torch._foreach_addcdiv(params, average, size, value=-lr)
    return list(values), {"average": list(average), "average_square": list(square), "step": counts}


def unbiased_squares(square: Tensor, count: Tensor) -> Tensor:
    """The average of squared gradients, without its start at zero."""
    return square.div(1 - BETAS[1] ** float(count))
