"""The learning-rate range test: raise the rate step by step and see where the loss falls and where it breaks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import DataError, DivergenceError, SettingError, require_count
from ..lifting import Where
from ..methods import Method, assemble, find_method, resolve
from ..optimizers import set_rates
from ..random import derive_seed, make_generator
from ..types import Progress
from .data import as_batches, dtype_of
from .loop import require_finite_gradients

_SMOOTHING = 0.9
_BREAK = 4.0


@dataclass(frozen=True)
class RateRange:
    """Rates tried (of the means; stds move with them), the smoothed objective at each, and what they suggest.

    ``suggestion`` is a tenth of the rate at which the smoothed objective was lowest: smoothing lags behind, so by then
    the rate may already be too high to stay at. ``broke_at`` is the rate at
    which the objective left the range it had fallen through, or None.
    """

    rates: tuple[float, ...]
    objectives: tuple[float, ...]
    suggestion: float
    broke_at: float | None


def rate_range(
    net: nn.Module,
    data: Any,
    method: str | Method = "bbb",
    likelihood: Any = "categorical",
    *,
    lowest: float = 1e-5,
    highest: float = 1.0,
    steps: int = 100,
    batch_size: int | None = None,
    seed: int = 0,
    where: Where = "all",
    **settings: Any,
) -> RateRange:
    """Train for ``steps`` steps while the rate grows geometrically from ``lowest`` to ``highest`` (Smith 2017).

    The objective is smoothed by a debiased moving average; the test ends when it has risen to four times the range it
    fell through, or is no longer finite. The network is copied, not changed.
    """
    require_count("rate_range", "steps", steps)
    if not 0 < lowest < highest < math.inf:
        raise SettingError(f"rate_range: lowest = {lowest!r}, highest = {highest!r}; need 0 < lowest < highest")
    chosen = find_method(method).changed(**settings)
    collector = "bank" if resolve(chosen).stepper.samples else None
    chosen = chosen.changed(rate="constant", collector=collector, post_hoc=None, members=1)
    batches = as_batches(data, batch_size, dtype_of(net))
    epochs = math.ceil(steps / batches.count)
    rates: list[float] = []
    smoothed: list[float] = []
    broke_at = None
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global"))
        noise = make_generator(derive_seed(seed, "noise"))
        size = {"dataset_size": batches.examples, "batches": batches.count, "epochs": epochs}
        assembly = assemble(chosen, net, likelihood, **size, where=where, generator=noise)
        model, average = assembly.model.train(), 0.0
        named = {**dict(model.named_parameters()), **dict(assembly.likelihood.named_parameters())}
        base = next(group["base_lr"] for group in assembly.optimizer.param_groups)
        stream = (batch for epoch in range(epochs) for batch in batches.epoch(derive_seed(seed, "order", epoch)))
        for step, (inputs, targets) in zip(range(steps), stream, strict=False):
            rate = lowest * (highest / lowest) ** (step / max(1, steps - 1))
            set_rates(assembly.optimizer, rate / base)
            assembly.optimizer.zero_grad(set_to_none=True)
            at = Progress(step, epochs * batches.count, step % batches.count, batches.count)
            try:
                terms = assembly.objective(model, inputs, targets, at=at, generator=noise)
                terms.total.backward()
                require_finite_gradients(assembly, named, step)
                assembly.optimizer.step()
            except (DataError, DivergenceError):
                if step == 0:
                    raise
                broke_at = rate
                break
            average = _SMOOTHING * average + (1 - _SMOOTHING) * float(terms.total.detach())
            rates.append(rate)
            smoothed.append(average / (1 - _SMOOTHING ** (step + 1)))
            if smoothed[-1] > min(smoothed) + _BREAK * max(smoothed[0] - min(smoothed), abs(smoothed[0]) * 0.01):
                broke_at = rate
                break
    best = rates[min(range(len(smoothed)), key=smoothed.__getitem__)]
    return RateRange(tuple(rates), tuple(smoothed), best / 10, broke_at)
