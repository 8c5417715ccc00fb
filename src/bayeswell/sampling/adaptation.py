"""Samplers that find their own step size: a descent, an estimate of the gradient noise there, and a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import SettingError
from ..core.protocols import OptimizerContext, Progress
from ..optim.torch_optimizers import planned_lr
from .sampler import Sampler, TemperatureEstimate, gradients

Gradient = Callable[[], Any]
"""Puts the gradient at the present weights into ``grad``."""
OPTIMIZE, ESTIMATE, DRAW = "optimize", "estimate", "draw"
MIN_DESCENT_STEPS = 1500
"""Steps that a descent needs to end near an optimum."""
MAX_EXCESS_TEMPERATURE = 0.5
"""Minibatch noise may add so much, times T, to the temperature T: stds are at most 1.22 times too wide."""
NOISE_LR_MULTIPLIER = 10.0
"""Learned noise moves further than weights (its log std to -3), in as many steps."""
_DAMPING = 0.03
_BETAS = (0.9, 0.999)
_MOST_ROLLBACKS = 20
_PRODUCTS = 12


@dataclass(frozen=True)
class Plan:
    """A descent without noise, gradients at one point, then a chain; in each of ``cycles`` cycles of equal length.

    The descent ends at the fraction ``descent`` of a cycle; draws may be kept from the fraction ``collection``. Between
    them the chain burns in and its rate is fitted. With several cycles the rate falls like a cosine along each.
    """

    length: int
    cycles: int
    descent: float
    collection: float

    @property
    def num_estimation_batches(self) -> int:
        """Batches at which the chain stands still; none in a run of a few steps."""
        steps = self.length / self.cycles
        return 0 if steps < 20 else max(4, min(40, round(0.025 * steps)))

    def first_draw(self, step: int) -> int:
        return self._step_at(step, self.descent) + self.num_estimation_batches

    def first_kept(self, step: int) -> int:
        return max(self._step_at(step, self.collection), self.first_draw(step))

    def stage(self, step: int) -> str:
        start = self.first_draw(step)
        return DRAW if step >= start else ESTIMATE if step >= start - self.num_estimation_batches else OPTIMIZE

    def measures(self, step: int) -> bool:
        """Return whether curvature and temperature are measured before this step: at the start and in burn-in."""
        start, end = self.first_draw(step), self.first_kept(step)
        later = {start + (end - start) * quarter // 4 for quarter in (1, 2, 3)} | {max(start, end - 1)}
        return step == start or (self.cycles == 1 and step in later)

    def burned_in(self, step: int) -> float:
        """Return the part of the burn-in that is over, 1 at its last step; always 1 with several cycles."""
        start, last = self.first_draw(step), self.first_kept(step) - 1
        return 1.0 if self.cycles > 1 or last <= start else min(1.0, (step - start) / (last - start))

    def lr_factor(self, step: int) -> float:
        if self.cycles > 1:
            return 0.5 * (math.cos(math.pi * (step * self.cycles % self.length) / self.length) + 1.0)
        if self.stage(step) != OPTIMIZE:
            return 1.0
        done = step / self._step_at(step, self.descent)
        return min(1.0, 0.1 + 10 * done) * (0.55 + 0.45 * math.cos(math.pi * done))

    def _step_at(self, step: int, fraction: float) -> int:
        if self.cycles == 1:
            return math.floor(fraction * self.length)
        return math.ceil((step * self.cycles // self.length + fraction) * self.length / self.cycles)


def one_chain(total_steps: int) -> Plan:
    """Return the plan of one chain: 75 percent descent of up to 1500 steps, 40 of 5300 or more; then 10 of burn-in."""
    if total_steps < 60:
        return Plan(total_steps, 1, 0.25, 0.5)
    descent = max(0.4, min(0.75, 0.75 * math.sqrt(MIN_DESCENT_STEPS / total_steps)))
    return Plan(total_steps, 1, descent, descent + 0.1)


@dataclass
class TunerState:
    """``max_lr`` is what minibatch noise allows. ``max_loss`` and ``rollback_loss`` are those of the ESTIMATE stage."""

    lr: float = 0.0
    max_lr: float = math.inf
    curvature: float = 0.0
    rollbacks: int = 0
    max_loss: float = -math.inf
    rollback_loss: float = math.inf


class AutoTunedSampler(Sampler):
    """A sampler whose learning rate was left open (``lr=None``). Along a ``Plan`` it

    - descends without noise, by Adam, to where the posterior is;
    - stands still for some batches and estimates the variance of their gradients;
    - takes a preconditioner G from the descent (scale-adapted SGHMC, Springenberg et al. 2016), and lr =
      stability_factor / (largest eigenvalue of G^1/2 H G^1/2) by power iteration on the curvature H;
    - lowers lr until minibatch noise adds at most ``MAX_EXCESS_TEMPERATURE`` T to the temperature T: by the variance
      at first, then by the temperature measured in burn-in. Along the burn-in the limit falls from that for T = 1.
      Small T needs small steps and a long run; at T = 0 the chain stands still after the burn-in;
    - draws by BAOAB, as ``sghmc``, with lr G in place of lr; momentum 0 is the Langevin step of Leimkuhler & Matthews.

    From the first draw that may be kept on, all of it is fixed. A step in burn-in after which the loss is far above
    that of the descent, or not finite, is undone: the chain goes back to the end of the descent, at half the rate.
    Parameters without noise are moved by Adam throughout. ``lr`` of a group is a factor on the fitted rate.

    State of the weights: ``average`` and ``square`` (Adam), then ``velocity``, ``scale`` (G), ``grad_variance`` (over
    batches) and ``descent_end``, where the descent ended.

    Args:
        stability_factor: lr times the largest curvature (a quadratic is stable below 4).
        preconditioned: False: G = 1.
        momentum: fit a momentum to the length of the run; False: 0.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        context: OptimizerContext,
        plan: Plan,
        stability_factor: float,
        *,
        preconditioned: bool = True,
        momentum: bool = False,
    ) -> None:
        super().__init__(groups, {"lr": 1.0}, context)
        if len(self.drawn()) != 1:
            raise SettingError(f"sampler: lr = None needs one flat vector of weights, got {len(self.drawn())} tensors")
        self.weights = self.drawn()[0]
        self.plan, self.tuner = plan, TunerState()
        self.stability_factor, self.preconditioned = stability_factor, preconditioned
        draws = plan.length / plan.cycles * (1 - plan.collection)
        # Small friction for slow directions, but 60 memories 1 / (1 - momentum) in the draws kept.
        self.momentum = 1 - min(0.2, max(0.03, 60 / max(1.0, draws))) if momentum else 0.0

    def may_sample(self, progress: Progress) -> bool:
        return progress.step >= self.plan.first_kept(progress.step)

    def adds_noise(self) -> bool:
        return self.plan.stage(self.steps) == DRAW

    def before_step(self, loss: float, gradient: Gradient) -> bool:
        """Check the loss and the gradients before a step; False if the step is not to be taken."""
        step, plan, stage = self.steps, self.plan, self.plan.stage(self.steps)
        if stage == OPTIMIZE and step and plan.stage(step - 1) == DRAW:
            self.state[self.weights] = {}
        if stage == ESTIMATE:
            self._add_gradient(loss, first=step == 0 or plan.stage(step - 1) != ESTIMATE)
        if stage != DRAW:
            return True
        if plan.measures(step):
            # The probes leave gradients of displaced weights in every parameter; the step takes those of the batch.
            every = [parameter for group in self.param_groups for parameter in group["params"]]
            kept = [None if parameter.grad is None else parameter.grad.clone() for parameter in every]
            if step == plan.first_draw(step):
                self._begin_chain(gradient)
            self._measure_curvature(gradient)
            for parameter, grad in zip(every, kept, strict=True):
                parameter.grad = grad
        finite = self.weights.grad is None or bool(self.weights.grad.isfinite().all())
        return (loss <= self.tuner.rollback_loss and finite) or not self.rollback()

    @torch.no_grad()
    def rollback(self) -> bool:
        """Return to the end of the descent and halve the rate; False if draws are being kept already."""
        tuner, burning_in = self.tuner, self.adds_noise() and self.steps < self.plan.first_kept(self.steps)
        if not burning_in or "descent_end" not in self.state[self.weights] or tuner.rollbacks >= _MOST_ROLLBACKS:
            return False
        tuner.rollbacks += 1
        self._set_lr()
        self.weights.copy_(self.state[self.weights]["descent_end"])
        self.state[self.weights]["velocity"].zero_()
        self.steps += 1
        return True

    def update(self, group: dict[str, Any], params: list[Tensor], lr: float, noise: list[Tensor] | None) -> None:
        plan, stage, descent_lr = self.plan, self.plan.stage(self.steps), lr * planned_lr(self.plan.length)
        if not group["noise"]:
            faster = NOISE_LR_MULTIPLIER if group.get("name") == "noise" else 1.0
            fall = 0.55 + 0.45 * math.cos(math.pi * min(1.0, self.steps / plan.length))
            self._adam(params, faster * fall * descent_lr)
        elif stage == OPTIMIZE:
            self._adam(params, plan.lr_factor(self.steps) * descent_lr)
        elif stage == DRAW:
            if "descent_end" not in self.state[self.weights]:
                raise SettingError("sampler: lr = None is fitted by the training loop; give `lr` a number")
            self._chain_step(group, lr * self._present_lr(), noise)

    def _chain_step(self, group: dict[str, Any], lr: float, noise: list[Tensor] | None) -> None:
        weights, beta, state = self.weights, self.momentum, self.state[self.weights]
        velocity, scale = state["velocity"], state["scale"]
        velocity.addcmul_(weights.grad, scale, value=-lr)
        weights.add_(velocity, alpha=0.5)
        velocity.mul_(beta)
        if noise is not None:
            std = math.sqrt((1 - beta**2) * lr * group["temperature"] / group["dataset_size"])
            velocity.addcmul_(noise[0], scale.sqrt(), value=std)
        weights.add_(velocity, alpha=0.5)

    def measure(self) -> None:
        """Measure the kinetic temperature after the kick, with lr G in place of lr (see ``SGHMC``)."""
        group, state, beta, lr = self._group(), self.state[self.weights], self.momentum, self._present_lr()
        if "velocity" not in state or not lr:
            return
        kicked = state["velocity"] - lr * group["lr"] * state["scale"] * self.weights.grad
        mean = float((kicked.square() / state["scale"]).mean())
        excess = group["dataset_size"] * mean / (lr * group["lr"]) - group["temperature"]
        self.estimate.add(group["temperature"] + excess * (1 + beta) ** 2 / 4)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "plan": asdict(self.plan), "tuner": asdict(self.tuner)}

    def load_state_dict(self, state_dict: Any) -> None:
        """Load a state; the plan is the loaded one, so a chain that is trained for longer keeps its rate."""
        super().load_state_dict(state_dict)
        self.plan, self.tuner = Plan(**state_dict["plan"]), TunerState(**state_dict["tuner"])

    def _group(self) -> dict[str, Any]:
        return next(group for group in self.param_groups if group["noise"])

    def _present_lr(self) -> float:
        return self.tuner.lr * self.plan.lr_factor(self.steps)

    def _adam(self, params: list[Tensor], lr: float) -> None:
        for parameter, grad in zip(params, gradients(params), strict=True):
            state = self.state[parameter]
            if "count" not in state:
                state.update(count=0, average=torch.zeros_like(grad), square=torch.zeros_like(grad))
            state["count"] += 1
            state["average"].lerp_(grad, 1 - _BETAS[0])
            state["square"].mul_(_BETAS[1]).addcmul_(grad, grad, value=1 - _BETAS[1])
            size = (state["square"] / (1 - _BETAS[1] ** state["count"])).sqrt_().add_(1e-8)
            parameter.addcdiv_(state["average"], size, value=-lr / (1 - _BETAS[0] ** state["count"]))

    def _add_gradient(self, loss: float, first: bool) -> None:
        state, (grad,) = self.state[self.weights], gradients([self.weights])
        self.tuner.max_loss = loss if first else max(loss, self.tuner.max_loss)
        state["sum"] = grad.clone() if first else state["sum"] + grad
        state["squares"] = grad.square() if first else state["squares"] + grad.square()

    def _begin_chain(self, gradient: Gradient) -> None:
        """Keep the variance of gradients over batches, the preconditioner and the point to go back to.

        G = 1 / (sqrt(V) + damping), with a mean of 1 / G of one and V of Adam. Where all data are in each batch,
        squared gradients vanish along the descent: V is then that of gradients around the end of the descent.
        """
        weights, tuner, count, group = self.weights, self.tuner, self.plan.num_estimation_batches, self._group()
        old, zeros = self.state[weights], torch.zeros_like(weights)
        grad_variance = (old["squares"] - old["sum"].square() / count).clamp_(min=0) / (count - 1) if count else zeros
        square = old["square"] / (1 - _BETAS[1] ** old["count"]) if "square" in old else grad_variance
        if self.preconditioned and grad_variance.sum() <= 1e-6 * square.sum():
            square = hessian_row_norms_squared(weights, gradient, self.generator)
        size = square.sqrt() + _DAMPING * square.mean().sqrt() + torch.finfo(square.dtype).tiny
        scale = size.mean() / size if self.preconditioned else torch.ones_like(size)
        fixed = {"scale": scale, "grad_variance": grad_variance, "descent_end": weights.detach().clone()}
        self.state[weights] = {"velocity": zeros.clone(), **fixed}
        # At temperature T a chain of P weights stands about T P / (2 N) above the mode.
        height = group["temperature"] * weights.numel() / (2 * group["dataset_size"])
        tuner.rollback_loss = 2 * max(0.0, tuner.max_loss) + 5 * (1 + height) if count else math.inf
        tuner.curvature, tuner.max_lr = 0.0, math.inf

    def _measure_curvature(self, gradient: Gradient) -> None:
        tuner, state = self.tuner, self.state[self.weights]
        found = largest_curvature(self.weights, state["scale"], gradient, self.generator)
        tuner.curvature = max(tuner.curvature, found)
        excess, allowed = self.estimate.value - self._group()["temperature"], self._allowed_excess()
        if self.estimate.count >= 5 and excess > allowed and bool(state["grad_variance"].any()):
            tuner.max_lr = tuner.lr * allowed / excess
            self.estimate = TemperatureEstimate()
        self._set_lr()

    def _allowed_excess(self) -> float:
        cooled: float = self._group()["temperature"] ** self.plan.burned_in(self.steps)
        return MAX_EXCESS_TEMPERATURE * cooled

    def _set_lr(self) -> None:
        """Set lr by the curvature, and lower where minibatch noise would heat the chain.

        Noise of variance c^2 in a gradient adds lr N c^2 (1 + beta) / (4 (1 - beta)) to the temperature.
        """
        tuner, state, group, beta = self.tuner, self.state[self.weights], self._group(), self.momentum
        lr = self.stability_factor / max(tuner.curvature, 1e-30) * 0.5**tuner.rollbacks
        excess_temperature = lr * group["dataset_size"] * (1 + beta) / (4 * (1 - beta))
        excess_temperature *= float((state["grad_variance"] * state["scale"]).mean())
        excess_temperature *= self.plan.lr_factor(self.plan.first_kept(self.steps))
        if excess_temperature > 0:
            lr *= min(1.0, self._allowed_excess() / excess_temperature)
        tuner.lr = min(lr, tuner.max_lr)


def largest_curvature(
    weights: Tensor, scale: Tensor, gradient: Gradient, generator: torch.Generator | None, count: int = _PRODUCTS
) -> float:
    """Return the largest |eigenvalue| of S^1/2 H S^1/2 by power iteration; S is ``scale``, H the second derivative."""
    product, root, found = hessian_product(weights, gradient), scale.sqrt(), 0.0
    direction = torch.randn(weights.shape, dtype=weights.dtype, device=weights.device, generator=generator)
    for _ in range(count):
        direction = root * product(root * direction / direction.norm().clamp_min(1e-30))
        found = float(direction.norm())
    return found if math.isfinite(found) else math.inf


def hessian_row_norms_squared(
    weights: Tensor, gradient: Gradient, generator: torch.Generator | None, count: int = _PRODUCTS
) -> Tensor:
    """Return for each weight i the mean of (H z)_i^2 over z ~ N(0, I): about sum_j H_ij^2."""
    product, total = hessian_product(weights, gradient), torch.zeros_like(weights)
    for _ in range(count):
        noise = torch.randn(weights.shape, dtype=weights.dtype, device=weights.device, generator=generator)
        total += product(noise).square() / count
    return total


def hessian_product(weights: Tensor, gradient: Gradient) -> Callable[[Tensor], Tensor]:
    """Return v -> H v ~ (g(w + h v) - g(w)) / h."""
    start = weights.detach().clone()
    # Far above float32 rounding, and across the kinks of a ReLU.
    epsilon = 3e-3 * max(float(start.norm()), 1e-3 * math.sqrt(start.numel()))
    gradient()  # again: random numbers of the network are then the same here and there
    here = gradients([weights])[0].detach().clone()

    def product(direction: Tensor) -> Tensor:
        step = epsilon / max(float(direction.norm()), 1e-30)
        with torch.no_grad():
            weights.copy_(start + step * direction)
            with torch.enable_grad():
                gradient()
            weights.copy_(start)
        return (gradients([weights])[0] - here) / step

    return product
