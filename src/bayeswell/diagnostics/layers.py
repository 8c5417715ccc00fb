"""Layer by layer: how wide q is against the prior, and what of the KL it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..lifting import BayesianModule
from ..random import make_generator, standard_normal
from ..types import ENTROPY, FACTORISED, POINT
from .records import Record

_AT_ONCE = 2**20
"""How many weights are drawn together."""


@dataclass(frozen=True)
class LayerRow(Record):
    """One Bayesian parameter of the network.

    ``std_ratio`` is posterior std / prior std over its weights: 1 is the prior, near 0 deterministic. ``kl`` is the
    divergence of the weights' marginals from the prior in nats, None where q has no density.
    """

    layer: str
    shape: tuple[int, ...]
    weights: int
    std_ratio_mean: float
    std_ratio_median: float
    std_ratio_min: float
    std_ratio_max: float
    kl: float | None
    kl_per_weight: float | None


@dataclass(frozen=True)
class LayerReport(Record):
    """All layers. The ``kl`` of the layers and ``correlation`` together are ``kl``, the model's KL(q || p) in nats.

    The prior's weights are independent, so KL(q || p) = sum_i KL(q_i || p_i) + (sum_i H[q_i] - H[q]): the last bracket,
    the total correlation, is what correlated weights cost and belongs to no layer alone; it is 0 for independent ones.
    ``kl_by`` says how: "analytic", "monte_carlo" (a prior without a closed form), "point" (-log p(w), as in the MAP
    objective) or "none" (a bank of networks, or a prior that is not a product over weights).
    """

    layers: tuple[LayerRow, ...]
    kl: float | None
    correlation: float | None
    kl_by: str


@torch.no_grad()
def layer_report(model: BayesianModule, *, draws: int = 1000, seed: int = 0) -> LayerReport:
    """Std ratios and KL of every Bayesian parameter; ``draws`` and ``seed`` only serve priors without a closed form."""
    mean, std = (vector.double() for vector in (model.posterior.mean_vector(), model.posterior.std_vector()))
    ratio = std / model.prior.std_vector().double()
    kl_by = _way(model)
    rows, total = [], 0.0
    for site, part in zip(model.layout.sites, model.layout.slices.values(), strict=True):
        kl = None if kl_by == "none" else _kl(kl_by, model.prior.at(site), mean[part], std[part], draws, seed)
        here = ratio[part]
        per_weight = None if kl is None else kl / site.size
        low, high = float(here.min()), float(here.max())
        average, middle = float(here.mean()), float(np.median(here.cpu()))
        rows.append(LayerRow(site.name, site.shape, site.size, average, middle, low, high, kl, per_weight))
        total += kl or 0.0
    if kl_by == "none":
        return LayerReport(tuple(rows), None, None, kl_by)
    correlation = 0.0
    if FACTORISED not in model.posterior_part.provides and kl_by != "point":
        marginal = float(std.log().sum()) + 0.5 * len(std) * math.log(2 * math.pi * math.e)
        correlation = marginal - float(model.posterior.entropy())
    return LayerReport(tuple(rows), total + correlation, correlation, kl_by)


def _way(model: BayesianModule) -> str:
    provides = model.posterior_part.provides
    if POINT in provides:
        return "point"
    if ENTROPY not in provides or not model.prior.independent:
        return "none"
    return "analytic" if model.prior.analytic else "monte_carlo"


def _kl(kl_by: str, prior: Any, mean: Tensor, std: Tensor, draws: int, seed: int) -> float:
    if kl_by == "point":
        return -float(prior.log_prob(mean))
    # As in the k-tied posterior: a std that underflowed has a finite logarithm.
    logs = std.clamp_min(torch.finfo(torch.float32).tiny).log()
    entropy = logs.sum() + 0.5 * len(std) * math.log(2 * math.pi * math.e)
    if kl_by == "analytic":
        return -float(entropy + prior.expected_log_prob(mean, std))
    generator = make_generator(seed, mean.device)
    total, at_once = 0.0, max(1, _AT_ONCE // len(mean))
    for start in range(0, draws, at_once):
        noise = standard_normal((min(at_once, draws - start), len(mean)), like=mean, generator=generator)
        total += float(prior.log_prob(mean + std * noise).sum())
    return -float(entropy) - total / draws
