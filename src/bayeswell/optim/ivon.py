"""IVON: natural-gradient variational inference at the cost of Adam."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..core.errors import CompositionError
from ..core.protocols import OptimizerContext, OptimizerPart, Prior
from .groups import MEANS, STDS, JointOptimizer
from .torch_optimizers import check_below_one, check_positive, planned_lr

_NOISE_MEMORY = 0.99
_SHORTEST_MEMORY, _MEMORY_SHARE = 100, 0.1
_AUTO_RATES = ("other_lr", "adam_lr")


class IVONOptimizer(Optimizer):
    """The improved variational online Newton method on the ``mean`` and ``log_std`` of a mean-field Gaussian.

    With N data, temperature T, prior std s, ess = N/T, decay = T / (N s^2), h the running estimate of the diagonal
    Hessian of the mean NLL and std^2 = 1 / (ess (h + decay)), one step is::

        h^   = d NLL / d log_std / std^2                                   # Price: E[h^] = E_q[Hessian diagonal]
        h    <- b2 h + (1 - b2) h^ + (1 - b2)^2 (h - h^)^2 / (2 (h + decay))
        mom  <- b1 mom + (1 - b1) d NLL / d mean
        mean <- mean - lr (h_0 + decay) clip((mom / (1 - b1^t) + decay mean) / (h + decay))
        std  <- 1 / sqrt(ess (h + decay))

    so the first step is one of SGD with rate lr (without ``rescale_lr`` the factor h_0 + decay is 1). With ``adam_lr``
    the Newton step is damped by noise: the divisor is h + decay + sqrt(v) / adam_lr, v the debiased running mean of
    (d NLL / d mean - mom / (1 - b1^t))^2, and clip is adam_lr at most. For one weight draw w = mean + std eps with
    gradient g, d NLL / d log_std = g std eps, and h^ = g eps / std as published. Gradients must be those of the NLL
    alone: the prior is in ``decay``.

    h^ has a variance of E[g^2] ess (h + decay), most of it the batch's noise, and the last term of h's update makes
    that a bias: precision settles (1 - b2) ess E[g^2] / 2 too high. At T = 1 that is little; a cold posterior
    (T = 0.001) would have stds ten times too small. In antithetic pairs the batch's noise cancels.

    The fixed point is the optimum of mean NLL + T KL / N. On a quadratic loss that is the exact mean and
    std_i = 1 / sqrt(precision_ii). The state is ``precision`` = h + decay, which a step multiplies by
    1 + x + x^2/2 >= 1/2 with x = (1 - b2) (h^ - h) / (h + decay): the published update without cancellation.
    A changed group["ess"] (an adapted temperature) keeps ``decay``, the weight of the prior on the means.
    """

    def __init__(
        self, groups: Sequence[dict[str, Any]], prior: Prior, dataset_size: int, temperature: float, part: IVON
    ) -> None:
        settings = {name: getattr(part, name) for name in ("lr", "beta1", "beta2", "clip", "adam_lr")}
        ess = dataset_size / temperature
        super().__init__([dict(group) for group in groups], {**settings, "ess": ess})
        mean, log_std = self._mean_and_log_std()
        with torch.no_grad():
            decay = prior.std().to(mean).square().reciprocal_().div_(ess)
            if part.hess_init is not None:
                log_std.copy_((ess * (part.hess_init + decay)).log().mul_(-0.5))
            precision = (-2 * log_std).exp_().div_(ess)
        scale = precision.clone() if part.rescale_lr else torch.ones_like(precision)
        momentum, square = torch.zeros_like(mean), torch.zeros_like(mean)
        tensors = {"precision": precision, "momentum": momentum, "decay": decay, "scale": scale, "square": square}
        self.state[mean] = {"step": 0, **tensors}

    def _mean_and_log_std(self) -> tuple[Tensor, Tensor]:
        found = {group["name"]: group["params"] for group in self.param_groups}
        means, stds = found.get(MEANS, []), found.get(STDS, [])
        if len(means) != 1 or len(stds) != 1 or means[0].shape != stds[0].shape:
            shapes = [tuple(tensor.shape) for tensor in stds]
            raise CompositionError(
                f"optimizer 'ivon' needs one log std for each mean, as posterior 'mean_field' has; got stds {shapes}"
            )
        return means[0], stds[0]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None if closure is None else torch.enable_grad()(closure)()
        mean, log_std = self._mean_and_log_std()
        if mean.grad is not None and log_std.grad is not None:
            group = next(group for group in self.param_groups if group["name"] == MEANS)
            self._update(group, mean, log_std, mean.grad, log_std.grad)
        elif (mean.grad is None) != (log_std.grad is None):
            raise CompositionError("optimizer 'ivon' moves means and stds together, but one of them has no gradient")
        return loss

    def _update(self, group: dict[str, Any], mean: Tensor, log_std: Tensor, grad: Tensor, log_std_grad: Tensor) -> None:
        state, ess = self.state[mean], group["ess"]
        state["step"] += 1
        precision, momentum, decay, square = (state[key] for key in ("precision", "momentum", "decay", "square"))
        # (h^ - h) / (h + decay), where h^ = d NLL / d log_std * ess (h + decay): std^2 needs no exponential.
        change = (decay / precision).add_(log_std_grad, alpha=ess).sub_(1).mul_(_curvature_gain(group, state["step"]))
        precision.mul_(change.square().mul_(0.5).add_(change).add_(1))
        momentum.lerp_(grad, 1 - group["beta1"])
        average = momentum / (1 - group["beta1"] ** state["step"])
        divisor, clip = precision, math.inf if group["clip"] is None else group["clip"]
        if group["adam_lr"] is not None:
            square.lerp_((grad - average).square_(), 1 - _NOISE_MEMORY)
            noise = (square / (1 - _NOISE_MEMORY ** state["step"])).sqrt_()
            divisor, clip = noise.div_(group["adam_lr"]).add_(precision), min(clip, group["adam_lr"])
        step = average.addcmul_(decay, mean).div_(divisor).clamp_(-clip, clip)
        mean.addcmul_(step, state["scale"], value=-group["lr"])
        torch.mul(precision, ess, out=log_std).log_().mul_(-0.5)


def _curvature_gain(group: dict[str, Any], step: int) -> float:
    """Return 1 - b2; with b2 None the estimate remembers the last tenth of the steps so far, but 100 at least."""
    return 1 / max(_SHORTEST_MEMORY, _MEMORY_SHARE * step) if group["beta2"] is None else 1 - group["beta2"]


@dataclass(frozen=True)
class IVON(OptimizerPart):
    """Natural-gradient variational inference: Adam's cost, its second moment replaced by the posterior's precision.

    For posterior ``mean_field`` in log-std form and a Gaussian prior centered at zero. The objective is the NLL alone.
    Parameters without a posterior and learned noise are moved by Adam.

    Args:
        lr: of the means. The stds need none.
        beta1: momentum.
        beta2: memory of the Hessian: stds follow over 1 / (1 - beta2) steps. The paper's 0.99999 is for 10^5 steps and
            more. None: it grows with the run, 1 - b2 = min(0.01, 10 / t).
        hess_init: first Hessian diagonal of the mean NLL, which sets the starting stds; None: keep the posterior's.
            Too high is the risky side: while h falls, means move by up to h_0 / h times lr.
        clip: bound on the Newton step (mom + decay mean) / (h + decay) of each mean.
        rescale_lr: multiply lr by h_0 + decay, as the authors' code does. Without it, lr is the share of the Newton
            step that is taken.
        other_lr: learning rate of Adam for the other parameters; "auto": planned by the length of the run.
        adam_lr: keep the Newton step within that of Adam at this rate, and damp it where gradients are mostly noise;
            a number or "auto".
    """

    lr: float = 0.2
    beta1: float = 0.9
    beta2: float | None = 0.999
    hess_init: float | None = 0.003
    clip: float | None = None
    rescale_lr: bool = True
    other_lr: float | str = "auto"
    adam_lr: float | str | None = None

    name: ClassVar[str] = "ivon"
    paper: ClassVar[str] = "Shen et al. 2024"
    handles_kl: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rates = [name for name in _AUTO_RATES if getattr(self, name) != "auto"]
        check_positive(self, "lr", "hess_init", "clip", *rates)
        check_below_one(self, "beta1", *(["beta2"] if self.beta2 is not None else []))

    def planned(self, total_steps: int) -> IVON:
        auto = [name for name in _AUTO_RATES if getattr(self, name) == "auto"]
        changes: dict[str, Any] = dict.fromkeys(auto, planned_lr(total_steps))
        return dataclasses.replace(self, **changes)

    def build(self, groups: Sequence[dict[str, Any]], context: OptimizerContext) -> Optimizer:
        """Return the optimizer; ``context.prior`` is the prior of the objective (already scaled)."""
        part, prior = self.planned(context.total_steps), context.prior
        if prior is None or prior.gaussian is None or prior.gaussian.center is not None:
            raise CompositionError(
                "optimizer 'ivon' needs a Gaussian prior centered at zero; use prior 'normal', 'kaiming' or 'xavier'"
            )
        posterior = [group for group in groups if group["name"] in (MEANS, STDS)]
        ivon = IVONOptimizer(posterior, prior, context.dataset_size, context.temperature, part)
        others = []
        for group in groups:
            if group["name"] not in (MEANS, STDS):
                rate = float(part.other_lr) * group["lr"] / self.lr  # the multiplier of the stds stays
                others.append({**group, "lr": rate, "base_lr": rate})
        return JointOptimizer([ivon, torch.optim.Adam(others)]) if others else ivon
