"""The training loop: the only place where anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from ..errors import DivergenceError
from ..methods import Assembly
from ..types import Progress, Terms
from .data import Batches


@dataclass(frozen=True)
class EpochRecord:
    """Means over the batches of one epoch."""

    epoch: int
    total: float
    nll: float
    kl: float
    std_ratio: float


@dataclass
class History:
    """What a run has learned of itself, epoch by epoch."""

    epochs: list[EpochRecord] = field(default_factory=list)


Watcher = Callable[[EpochRecord], None]


def train(
    assembly: Assembly,
    batches: Batches,
    epochs: int,
    *,
    order: torch.Generator | None,
    noise: torch.Generator | None,
    watch: Watcher | None = None,
) -> History:
    """Minimise the assembly's objective. ``order`` shuffles the data, ``noise`` draws weights."""
    model, optimizer = assembly.model, assembly.optimizer
    history, total_steps, step = History(), epochs * batches.count, 0
    model.train()
    for epoch in range(epochs):
        sums = torch.zeros(3, dtype=torch.float64)
        for batch, (inputs, targets) in enumerate(batches.epoch(order)):
            at = Progress(step, total_steps, batch, batches.count)
            assembly.before_step(at)
            optimizer.zero_grad(set_to_none=True)
            terms = assembly.objective(model, inputs, targets, at=at, generator=noise)
            terms.total.backward()
            assembly.after_backward(epoch)
            require_finite_gradients(model, step, assembly.method.clip_norm)
            optimizer.step()
            if assembly.collector is not None and assembly.may_collect(at):
                assembly.collector.observe(model, at)
            sums += _numbers(terms)
            step += 1
        total, nll, kl = (sums / batches.count).tolist()
        record = EpochRecord(epoch, total, nll, kl, assembly.std_ratio())
        history.epochs.append(record)
        assembly.after_epoch({"total": record.total, "nll": record.nll, "kl": record.kl})
        if watch is not None:
            watch(record)
    return history


def require_finite_gradients(model: nn.Module, step: int, clip_norm: float | None) -> None:
    """Stop before the step if a gradient is not finite, naming it; else clip to the given norm."""
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm([gradient for _, gradient in named])
    if not bool(norm.isfinite()):
        bad = next((name for name, gradient in named if not bool(gradient.isfinite().all())), named[0][0])
        raise DivergenceError(
            f"step {step}: the gradient of '{bad}' is not finite; no step was taken; lower the learning rate"
        )
    if clip_norm is not None:
        nn.utils.clip_grads_with_norm_(list(model.parameters()), clip_norm, norm)


def _numbers(terms: Terms) -> torch.Tensor:
    values = torch.stack([terms.total.detach(), terms.nll, terms.kl])
    return values.double().cpu()
