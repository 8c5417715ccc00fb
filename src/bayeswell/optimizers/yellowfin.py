"""YellowFin: SGD with momentum that tunes its own rate and momentum from the gradients it sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT
from torch.optim.sgd import sgd

from ..errors import DivergenceError, SettingError, require_count, require_positive
from ..native import Addresses, gradient_norms, momentum_step
from ..types import ParamGroups, Stepper
from .checks import fused_for, own, require_at_least_zero, require_below_one
from .stepping import Columns, DenseOptimizer, Group, decayed, gradients, mark_changed, shared_out

_EPS = 1e-6
_PROTECT = 100.0  # statistics never see a squared norm above this multiple of the largest curvature
_LARGEST_MOVE = 100.0  # of rate times gradient norm
_SLOW_START = 10  # windows over which the rate rises to its tuned value


@dataclass(frozen=True)
class Statistics:
    """What YellowFin has seen in ``steps`` steps, of all parameters together. Averages are not debiased.

    ``norm`` averages |g|, ``square`` |g|^2, ``distance`` their ratio; ``log_largest`` and ``log_smallest`` the
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

    def observe(self, norm: float, mean_norm: float, beta: float, width: int) -> Statistics:
        """With one gradient more: its norm, and the norm of the averaged gradient that includes it."""
        squared, keep = norm * norm, 1 - beta
        window = (*self.window, squared)[-width:]
        norm_average = beta * self.norm + keep * norm
        square = beta * self.square + keep * squared
        debias = 1 - beta ** (self.steps + 1)
        return Statistics(
            steps=self.steps + 1,
            norm=norm_average,
            square=square,
            distance=beta * self.distance + keep * norm_average / (square + _EPS),
            log_largest=beta * self.log_largest + keep * math.log(max(window) + _EPS),
            log_smallest=beta * self.log_smallest + keep * math.log(min(window) + _EPS),
            variance=max(square / debias - (mean_norm / debias) ** 2, _EPS),
            window=window,
        )

    def curvatures(self, beta: float) -> tuple[float, float]:
        """Smallest and largest curvature h, the geometric averages of the window's extremes of |g|^2."""
        debias = 1 - beta**self.steps
        return math.exp(self.log_smallest / debias), math.exp(self.log_largest / debias)

    def tuned(self, beta: float, width: int) -> tuple[float, float]:
        """The rate and momentum for the step of the last gradient observed (from the second on)."""
        smallest, largest = self.curvatures(beta)
        distance = self.distance / (1 - beta**self.steps)
        noise_free = (distance + _EPS) ** 2 * (smallest + _EPS) ** 2 / (2 * (self.variance + _EPS))
        condition = max((largest + _EPS) / (smallest + _EPS), 1 + _EPS)
        robust = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
        root = max(momentum_root(noise_free), robust)
        slow_start = min(1.0, self.steps / (_SLOW_START * width))
        return slow_start * (1 - root) ** 2 / (smallest + _EPS), root**2


def momentum_root(p: float) -> float:
    """x = sqrt(momentum), the minimum over [0, 1] of x^2 D^2 + (1 - x)^4 C / h^2, with p = D^2 h^2 / (2 C).

    x = 1 + y with y^3 + p y + p = 0, whose one real root is -2 sqrt(p/3) sinh(asinh(3/2 sqrt(3/p)) / 3). The
    authors use Vieta's formula with an epsilon in a denominator: up to 1e-6 away, and a difference of large
    numbers for large p; this form is exact to rounding for all p > 0. p -> inf gives 0, p -> 0 gives 1.
    """
    minus_y = 2 * math.sqrt(p / 3) * math.sinh(math.asinh(1.5 * math.sqrt(3 / p)) / 3)
    # 1 + y = -y^3 / p by the equation itself: no difference of nearly equal numbers where x is small.
    return minus_y**3 / p if p > 1 else 1 - minus_y


class YellowFinOptimizer(DenseOptimizer):
    """YellowFin (Zhang & Mitliagkas 2017) as a torch optimizer.

    Over all parameters of all groups together, with < > the moving average with ``beta``, debiased::

        h_min, h_max = exp <log min>, exp <log max> of |g|^2 over the last ``window`` steps
        C = max(<|g|^2> - |<g>|^2, eps)            D = < <|g|> / <|g|^2> >  (the inner two not debiased)
        x  minimises  x^2 D^2 + (1 - x)^4 C / h_min^2
        sqrt(momentum) = max(x, (sqrt(h_max/h_min) - 1) / (sqrt(h_max/h_min) + 1))
        rate = (1 - sqrt(momentum))^2 / h_min, rising to it in a straight line over the first 10 windows
        buffer <- momentum buffer + g;  w <- w - rate buffer

    Adaptive clipping: from the third step |g|^2 <= 100 h_max before anything else, from the second the step
    takes |g|^2 <= h_max (statistics do not); rate |g| <= 100. h_max is the previous step's.

    The first step has the group's own ``lr`` and ``momentum``; they matter in no other way. After it a group
    moves with the tuned rate times lr / common_lr, common_lr being the optimizer's own ``lr``: so a group with
    ten times that lr moves ten times as fast, and a schedule on ``lr`` scales the tuned rate (what the authors
    call lr_factor). ``tuned`` tells the values in use. The statistics live in the first group under
    ``tuner``, as plain numbers, so a state dict has all of it.

    As in the authors' code (b87aed1) the tuned values are used as they are, not averaged again. We differ:
    the cubic is solved exactly (``momentum_root``); the L2 penalty ``weight_decay`` enters the gradient before
    the statistics (their line for it has no effect, so only their step had it); a gradient that is not finite is
    refused and nothing is changed, where they go back to a copy made up to 1000 steps before. The rate goes as
    1/|g|^2: it depends on the scale of the loss and on how parameters are written. A step waits twice for the
    device, as tuning is done in Python numbers.
    """

    label: ClassVar[str] = "yellowfin"

    def __init__(
        self, params: ParamsT, lr: float = 1e-4, momentum: float = 0.0, beta: float = 0.999, window: int = 20,
        adaptive_clipping: bool = True, weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        defaults = {
            "lr": lr, "momentum": momentum, "beta": beta, "window": window,
            "adaptive_clipping": adaptive_clipping, "weight_decay": weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its lr relative to the optimizer's own is kept as a factor on the tuned rate."""
        _check({**self.defaults, **param_group})
        if self.param_groups:
            for setting in ("beta", "window", "adaptive_clipping"):
                value, common = param_group.get(setting, self.defaults[setting]), self.param_groups[0][setting]
                if value != common:
                    raise SettingError(f"yellowfin: {setting} = {value!r} in one group, {common!r} in another")
        else:
            param_group.setdefault("tuner", dict(vars(Statistics())))
        param_group.setdefault("common_lr", self.defaults["lr"])
        super().add_param_group(param_group)

    @property
    def statistics(self) -> Statistics:
        """What has been seen so far."""
        kept = self.param_groups[0]["tuner"]
        return Statistics(**{**kept, "window": tuple(kept["window"])})

    @property
    def tuned(self) -> tuple[float, float] | None:
        """The rate and momentum that the last step used (before a group's factor); None before the second step."""
        statistics, common = self.statistics, self.param_groups[0]
        return statistics.tuned(common["beta"], common["window"]) if statistics.steps > 1 else None

    def update(self, found: list[tuple[Group, list[Tensor]]]) -> None:
        """Observe the gradient, tune, and step."""
        if not found:
            return
        common, before = self.param_groups[0], self.statistics
        beta, clipping = common["beta"], common["adaptive_clipping"]
        fresh: dict[Tensor, dict[str, Tensor]] = {}
        shares = [(group, share) for group, params in found for share in self._shares(group, params, fresh)]
        norm = math.hypot(*(share.norm(beta) for _, share in shares))
        if not math.isfinite(norm):
            raise DivergenceError(f"yellowfin: step {before.steps}: the gradient's norm is {norm}; no step was taken")
        highest = before.curvatures(beta)[1] if before.steps else math.inf
        shrink = _shrink(norm, _PROTECT * highest) if clipping and before.steps > 1 else 1.0
        norm *= shrink
        self.state.update(fresh)
        mean_norm = math.hypot(*(share.average(beta, shrink) for _, share in shares))
        now = before.observe(norm, mean_norm, beta, common["window"])
        # A new dict in each step: a state dict taken earlier stays as it was.
        common["tuner"] = dict(vars(now))
        rate, momentum = now.tuned(beta, common["window"]) if before.steps else (None, None)
        gain = (1 - beta) * shrink
        if clipping and norm * norm >= highest:
            shrink *= _shrink(norm, highest)
        for group, share in shares:
            lr = group["lr"] if rate is None else rate * (group["lr"] / group["common_lr"])
            if clipping and lr * norm >= _LARGEST_MOVE:
                lr = _LARGEST_MOVE / math.sqrt(norm * norm + _EPS)
            share.move(lr, group["momentum"] if momentum is None else momentum, shrink, beta, gain)

    def _shares(
        self, group: Group, params: list[Tensor], fresh: dict[Tensor, dict[str, Tensor]]
    ) -> list[_Compiled | _Eager]:
        """The group's parameters by who moves them; states that do not exist yet go to ``fresh``."""
        for parameter in params:
            if not self.state.get(parameter):
                fresh[parameter] = {key: torch.zeros_like(parameter) for key in ("grad_avg", "momentum_buffer")}
        states = [fresh.get(parameter) or self.state[parameter] for parameter in params]
        averages, buffers = ([state[key] for state in states] for key in ("grad_avg", "momentum_buffer"))
        compiled, others = shared_out([params, gradients(params), averages, buffers])
        shares: list[_Compiled | _Eager] = []
        if compiled is not None:
            shares.append(_Compiled(compiled, group["weight_decay"]))
        if others[0]:
            shares.append(_Eager(others, decayed(group, *others[:2])))
        return shares


class _Compiled:
    """Parameters of a group that move in two passes over memory: norms, then everything that is written."""

    def __init__(self, tensors: Addresses, decay: float) -> None:
        self.tensors, self.decay = tensors, decay
        self._unclipped = math.nan

    def norm(self, beta: float) -> float:
        """|g|; on the way also what ``average`` will be asked for, if nothing is clipped."""
        norm, self._unclipped = self._norms(beta, 1 - beta)
        return norm

    def average(self, beta: float, shrink: float) -> float:
        """|<g>| of the average that ``move`` writes."""
        return self._unclipped if shrink == 1 else self._norms(beta, (1 - beta) * shrink)[1]

    def move(self, lr: float, momentum: float, shrink: float, beta: float, gain: float) -> None:
        """The averages and torch's SGD step, with the gradient times ``shrink``."""
        momentum_step(self.tensors, decay=self.decay, keep=beta, gain=gain, momentum=momentum, shrink=shrink, rate=lr)
        mark_changed(self.tensors.columns[0])

    def _norms(self, keep: float, gain: float) -> tuple[float, float]:
        return gradient_norms(self.tensors, decay=self.decay, keep=keep, gain=gain)


class _Eager:
    """The same by torch's operations."""

    def __init__(self, columns: Columns, grads: list[Tensor]) -> None:
        self.params, _, self.averages, self.buffers = columns
        self.grads = grads

    def norm(self, beta: float) -> float:
        """|g|."""
        return float(get_total_norm(self.grads))

    def average(self, beta: float, shrink: float) -> float:
        """Take the gradient into the averages; |<g>| then."""
        if shrink == 1:
            torch._foreach_lerp_(self.averages, self.grads, 1 - beta)
        else:
            torch._foreach_mul_(self.averages, beta)
            torch._foreach_add_(self.averages, self.grads, alpha=(1 - beta) * shrink)
        return float(get_total_norm(self.averages))

    def move(self, lr: float, momentum: float, shrink: float, beta: float, gain: float) -> None:
        """torch's SGD step with the gradient times ``shrink``."""
        if momentum == 0:
            # As in torch's SGD the buffer is left alone, so the first gradient leaves no trace in it.
            torch._foreach_add_(self.params, self.grads, alpha=-lr * shrink)
            return
        buffers: list[Tensor | None] = [*self.buffers]
        # torch's fused kernels go through memory as it lies, also where a gradient lies in another order.
        alike = all(p.stride() == g.stride() for p, g in zip(self.params, self.grads, strict=True))
        # Dampening multiplies the gradient by 1 - dampening: clipping costs no pass of its own.
        sgd(
            self.params, self.grads, buffers, fused=fused_for(self.params) if alike else None, weight_decay=0.0,
            momentum=momentum, lr=lr, dampening=1 - shrink, nesterov=False, maximize=False,
        )  # fmt: skip


def _shrink(norm: float, largest_square: float) -> float:
    """The factor that brings a norm down to the square root of this, in the words of torch's clip_grad_norm_."""
    return min(1.0, (math.sqrt(largest_square) + _EPS) / (norm + _EPS))


def _check(settings: dict[str, Any]) -> None:
    require_positive("yellowfin", "lr", settings["lr"])
    require_below_one("yellowfin", "momentum", settings["momentum"])
    require_below_one("yellowfin", "beta", settings["beta"])
    require_count("yellowfin", "window", settings["window"])
    require_at_least_zero("yellowfin", "weight_decay", settings["weight_decay"])


@dataclass(frozen=True)
class YellowFin(Stepper):
    """SGD that keeps its rate and momentum in the robust region of the curvatures it has seen.

    ``lr`` and ``momentum`` are for the first step alone (the authors' paper starts at lr 1); afterwards the
    tuner decides: equations at ``YellowFinOptimizer``. ``weight_decay`` is L2.
    """

    lr: float = 1e-4
    momentum: float = 0.0
    beta: float = 0.999
    window: int = 20
    adaptive_clipping: bool = True
    weight_decay: float = 0.0

    name: ClassVar[str] = "yellowfin"
    paper: ClassVar[str] = "Zhang & Mitliagkas 2017; Book 2020, appendix C"
    tunes_rate: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(vars(self))

    def build(self, param_groups: ParamGroups) -> Optimizer:
        """The torch optimizer."""
        return YellowFinOptimizer(own(param_groups), **vars(self))
