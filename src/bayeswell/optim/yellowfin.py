"""YellowFin: SGD with momentum that tunes its learning rate and momentum from its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from ..core.errors import DivergenceError
from ..core.protocols import OptimizerContext, OptimizerPart
from .torch_optimizers import GradientOptimizer, check_below_one, check_positive

_EPS = 1e-6
_PROTECT = 100.0
"""Statistics never see a squared norm above this multiple of the largest curvature."""
_LARGEST_MOVE = 100.0
"""Of learning rate times gradient norm."""
_SLOW_START = 10
"""Windows over which the learning rate rises to its tuned value."""


@dataclass(frozen=True)
class Statistics:
    """Running estimates over ``steps`` gradients of all parameters together; averages are not debiased.

    ``norm`` averages |g|, ``square`` |g|^2, ``distance`` their ratio; ``log_largest`` and ``log_smallest`` average the
    extremes of log |g|^2 over the ``window``; ``variance`` is C, the debiased variance of g.
    """

    steps: int = 0
    norm: float = 0.0
    square: float = 0.0
    distance: float = 0.0
    log_largest: float = 0.0
    log_smallest: float = 0.0
    variance: float = 0.0
    window: tuple[float, ...] = ()

    def update(self, norm: float, mean_norm: float, beta: float, width: int) -> Statistics:
        """Return the estimates with one more gradient: its norm, and the norm of the averaged gradient with it."""
        squared, gain = norm * norm, 1 - beta
        window = (*self.window, squared)[-width:]
        average, square = beta * self.norm + gain * norm, beta * self.square + gain * squared
        debias = 1 - beta ** (self.steps + 1)
        return Statistics(
            steps=self.steps + 1,
            norm=average,
            square=square,
            distance=beta * self.distance + gain * average / (square + _EPS),
            log_largest=beta * self.log_largest + gain * math.log(max(window) + _EPS),
            log_smallest=beta * self.log_smallest + gain * math.log(min(window) + _EPS),
            variance=max(square / debias - (mean_norm / debias) ** 2, _EPS),
            window=window,
        )

    def curvatures(self, beta: float) -> tuple[float, float]:
        """Return the smallest and largest curvature: geometric averages of the window's extremes of |g|^2."""
        debias = 1 - beta**self.steps
        return math.exp(self.log_smallest / debias), math.exp(self.log_largest / debias)

    def tuned(self, beta: float, width: int) -> tuple[float, float]:
        """Return learning rate and momentum for the step of the last gradient (from the second on)."""
        smallest, largest = self.curvatures(beta)
        distance = self.distance / (1 - beta**self.steps)
        p = (distance + _EPS) ** 2 * (smallest + _EPS) ** 2 / (2 * (self.variance + _EPS))
        condition = math.sqrt(max((largest + _EPS) / (smallest + _EPS), 1 + _EPS))
        root = max(momentum_root(p), (condition - 1) / (condition + 1))
        slow_start = min(1.0, self.steps / (_SLOW_START * width))
        return slow_start * (1 - root) ** 2 / (smallest + _EPS), root**2


def momentum_root(p: float) -> float:
    """Return x = sqrt(momentum), the minimum over [0, 1] of x^2 D^2 + (1 - x)^4 C / h^2, with p = D^2 h^2 / (2 C).

    x = 1 + y with y^3 + p y + p = 0, whose one real root is -2 sqrt(p/3) sinh(asinh(3/2 sqrt(3/p)) / 3). The authors
    use Vieta's formula, up to 1e-6 away; this form is exact to rounding. p -> inf gives 0, p -> 0 gives 1.
    """
    minus_y = 2 * math.sqrt(p / 3) * math.sinh(math.asinh(1.5 * math.sqrt(3 / p)) / 3)
    # 1 + y = -y^3 / p by the equation itself, without cancellation where x is small.
    return minus_y**3 / p if p > 1 else 1 - minus_y


class YellowFinOptimizer(GradientOptimizer):
    """YellowFin (Zhang & Mitliagkas 2017) as a torch optimizer.

    Over all parameters of all groups together, with < > the moving average with ``beta``, debiased::

        h_min, h_max = exp <log min>, exp <log max> of |g|^2 over the last ``window`` steps
        C = max(<|g|^2> - |<g>|^2, eps)            D = < <|g|> / <|g|^2> >  (the inner two not debiased)
        x  minimizes  x^2 D^2 + (1 - x)^4 C / h_min^2
        sqrt(momentum) = max(x, (sqrt(h_max/h_min) - 1) / (sqrt(h_max/h_min) + 1))
        rate = (1 - sqrt(momentum))^2 / h_min, rising linearly over the first 10 windows
        buffer <- momentum buffer + g;  w <- w - rate buffer

    Clipping: from the third step |g|^2 <= 100 h_max before anything else, from the second the step takes
    |g|^2 <= h_max (statistics do not); rate |g| <= 100. h_max is that of the previous step.

    The first step has the group's own ``lr`` and ``momentum``. Afterwards a group moves with the tuned rate times
    lr / common_lr, common_lr being the optimizer's ``lr``: a schedule on ``lr`` scales the tuned rate. The statistics
    are plain numbers in the first group under ``tuner``, so a state dict has them.

    This is the authors' code (b87aed1): tuned values are used without further averaging. We differ: the cubic is
    solved exactly; the L2 penalty enters the gradient before the statistics; a gradient that is not finite is refused.
    The rate goes as 1/|g|^2, so it depends on the scale of the loss. The thesis' (C.0.9) to (C.0.11) are misprints.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], part: YellowFin) -> None:
        super().__init__([dict(group) for group in groups], {**vars(part), "common_lr": part.lr})
        self.param_groups[0].setdefault("tuner", asdict(Statistics()))

    @property
    def statistics(self) -> Statistics:
        saved = self.param_groups[0]["tuner"]
        return Statistics(**{**saved, "window": tuple(saved["window"])})

    def update(self, found: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]]) -> None:
        common, before = self.param_groups[0], self.statistics
        beta, width = common["beta"], common["window"]
        flat = [grad for _, _, grads in found for grad in grads]
        norm = float(get_total_norm(flat))
        if not math.isfinite(norm):
            raise DivergenceError(f"yellowfin: the norm of the gradient is {norm} in step {before.steps}")
        highest = before.curvatures(beta)[1] if before.steps else math.inf
        shrink = _shrink(norm, _PROTECT * highest) if before.steps > 1 else 1.0
        norm *= shrink
        averages = [self._state(parameter)["grad_avg"] for _, params, _ in found for parameter in params]
        torch._foreach_mul_(averages, beta)
        torch._foreach_add_(averages, flat, alpha=(1 - beta) * shrink)
        now = before.update(norm, float(get_total_norm(averages)), beta, width)
        common["tuner"] = asdict(now)
        tuned = now.tuned(beta, width) if before.steps else None
        if norm * norm >= highest:
            shrink *= _shrink(norm, highest)
        for group, params, grads in found:
            lr, momentum = group["lr"], group["momentum"]
            if tuned is not None:
                lr, momentum = tuned[0] * lr / group["common_lr"], tuned[1]
            if lr * norm >= _LARGEST_MOVE:
                lr = _LARGEST_MOVE / math.sqrt(norm * norm + _EPS)
            self._move(params, grads, lr, momentum, shrink)

    def _move(self, params: list[Tensor], grads: list[Tensor], lr: float, momentum: float, shrink: float) -> None:
        if momentum == 0:  # as in torch's SGD, the gradient leaves no trace in the buffer
            torch._foreach_add_(params, grads, alpha=-lr * shrink)
            return
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in params]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, grads, alpha=shrink)
        torch._foreach_add_(params, buffers, alpha=-lr)

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state.update(grad_avg=torch.zeros_like(parameter), momentum_buffer=torch.zeros_like(parameter))
        return state


def _shrink(norm: float, largest_square: float) -> float:
    """Return the factor that brings a norm down to the root of this, as torch's clip_grad_norm_."""
    return min(1.0, (math.sqrt(largest_square) + _EPS) / (norm + _EPS))


@dataclass(frozen=True)
class YellowFin(OptimizerPart):
    """SGD that keeps its learning rate and momentum in the robust region of the curvatures it has seen.

    ``lr`` and ``momentum`` are for the first step alone; afterwards the tuner decides (``YellowFinOptimizer``).
    """

    lr: float = 1e-4
    momentum: float = 0.0
    beta: float = 0.999
    window: int = 20
    weight_decay: float = 0.0

    name: ClassVar[str] = "yellowfin"
    paper: ClassVar[str] = "Zhang & Mitliagkas 2017; Book 2020, appendix C"
    tunes_lr: ClassVar[bool] = True
    """A learning-rate range test has no use."""

    def __post_init__(self) -> None:
        check_positive(self, "lr", "window")
        check_below_one(self, "momentum", "beta")

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Optimizer:
        return YellowFinOptimizer(groups, self)
