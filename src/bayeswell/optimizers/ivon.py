"""IVON: natural-gradient variational inference; with one draw a step at the cost of Adam, with a pair at twice that."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import CompositionError, SettingError, require_count, require_positive
from ..native import newton_step, takes
from ..types import ParamGroups, Prior, Stepper
from .checks import own, require_below_one
from .groups import MEANS, STDS
from .standard import rate_for
from .stepping import DenseOptimizer, Group, cache_blocks, mark_changed


class IVONOptimizer(DenseOptimizer):
    """The improved variational online Newton method on the ``mean`` and ``log_std`` of a mean-field Gaussian.

    With N data, temperature T, prior std s, ess = N/T, decay = T / (N s^2), h the running estimate of the diagonal
    Hessian of the mean NLL and std^2 = 1 / (ess (h + decay)), one step is::

        h^   = d NLL / d log_std / std^2                                   # Price: E[h^] = E_q[Hessian diagonal]
        h    <- b2 h + (1 - b2) h^ + (1 - b2)^2 (h - h^)^2 / (2 (h + decay))
        mom  <- b1 mom + (1 - b1) d NLL / d mean
        mean <- mean - lr (h_0 + decay) clip((mom / (1 - b1^t) + decay mean) / (h + decay))
        std  <- 1 / sqrt(ess (h + decay))

    so the first step is one of SGD with rate lr (without ``rescale_lr`` the factor h_0 + decay is 1). With ``adam_lr``
    the Newton step is damped by noise: the divisor is h + decay + sqrt(v) / adam_lr, v the debiased running mean of (d
    NLL / d mean - mom / (1 - b1^t))^2, and clip is adam_lr at most. For one weight draw w = mean + std eps with
    gradient g, d NLL / d log_std = g std eps, and h^ = g eps / std as published; several draws are averaged by the
    objective. Gradients must be those of the NLL alone (``ELBO`` with temperature 0): the prior is in ``decay``. Any
    estimator with an unbiased gradient in ``log_std`` will do, but h^ has a variance of E[g^2] ess (h + decay), most of
    it the batch's noise, and the last term of h's update makes that a bias: precision settles (1 - b2) ess E[g^2] / 2
    too high, at the optimum of a good model by a factor of about (1 - b2) ess / (2 B) with batches of B. At ess = N and
    ordinary b2 that is little; a cold posterior (T = 0.001) would have stds ten times too small, and steps too short by
    the square of that. In antithetic pairs the batch's noise cancels: (g(+eps) - g(-eps)) eps / (2 std) has the
    curvature's own variance, at every temperature.

    The published decay is that of a prior with precision ess * decay; from the model's prior it follows as above,
    so that the fixed point is the optimum of mean NLL + T KL / N. On a quadratic loss that is the exact mean and
    std_i = 1 / sqrt(precision_ii).

    What is kept is ``precision`` = h + decay, which a step multiplies by 1 + x + x^2/2 >= 1/2 with
    x = (1 - b2) (h^ - h) / (h + decay): the published update, without its cancellation where h is near -decay. All
    of it, step count included, is ordinary optimizer state and survives ``state_dict``; the authors' code forgets its
    step count there, and with it the bias correction.
    """

    label: ClassVar[str] = "ivon"

    def __init__(
        self, param_groups: Sequence[Mapping[str, Any]], inverse_prior_variance: Tensor, dataset_size: int,
        lr: float, beta1: float, beta2: float | None, hess_init: float | None, clip: float | None, temperature: float,
        rescale_lr: bool = True, rest_lr: float | None = None, adam_lr: float | None = None,
    ) -> None:  # fmt: skip
        ess = dataset_size / temperature
        rates = {"lr": lr, "rest_lr": rest_lr, "adam_lr": adam_lr}
        super().__init__(own(param_groups), {**rates, "beta1": beta1, "beta2": beta2, "clip": clip, "ess": ess})
        mean, log_std = self._mean_and_log_std()
        with torch.no_grad():
            decay = (temperature / dataset_size * inverse_prior_variance.to(mean)).expand_as(mean).clone()
            if hess_init is not None:
                log_std.copy_((ess * (hess_init + decay)).log().mul_(-0.5))
            precision = (-2 * log_std).exp_().div_(ess)
        self.state[mean] = {
            "step": torch.tensor(0.0),
            "precision": precision,
            "momentum": torch.zeros_like(mean),
            "decay": decay,
            "scale": precision.clone() if rescale_lr else torch.ones_like(precision),
        }
        if adam_lr is not None:
            self.state[mean]["square"] = torch.zeros_like(mean)

    def _mean_and_log_std(self) -> tuple[Tensor, Tensor]:
        """The two vectors of the posterior: the only one among the stds, and the one of its shape among the means."""
        found = {group.get("name"): group["params"] for group in self.param_groups}
        for name in (MEANS, STDS):
            if name not in found:
                raise SettingError(f"ivon: no parameter group is named '{name}'; there are {sorted(map(str, found))}")
        stds = found[STDS]
        means = [tensor for tensor in found[MEANS] if len(stds) == 1 and tensor.shape == stds[0].shape]
        if not means or stds[0].dim() != 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in stds)
            raise CompositionError(
                "optimizer 'ivon' needs one log_std for each mean, which only posterior 'mean_field' has (its "
                f"parameter 'log_std'); the stds have shape {shapes}"
            )
        if len(means) > 1:
            raise CompositionError(
                f"optimizer 'ivon' cannot tell the posterior's mean from a deterministic parameter of the same shape "
                f"{tuple(means[0].shape)}; give deterministic parameters a group of their own"
            )
        return means[0], stds[0]

    def update(self, found: list[tuple[Group, list[Tensor]]]) -> None:
        """One step: the posterior's vectors by IVON, every other parameter by Adam or SGD with the same momentum."""
        mean, log_std = self._mean_and_log_std()
        if (mean.grad is None) != (log_std.grad is None):
            held = "means" if mean.grad is None else "stds"
            raise CompositionError(f"optimizer 'ivon' moves means and stds together, but the {held} have no gradient")
        for group, params in found:
            for parameter in params:
                if parameter is mean:
                    self._update_posterior(group, mean, log_std)
                elif parameter is not log_std:
                    self._update_deterministic(group, parameter)

    def _update_posterior(self, group: Group, mean: Tensor, log_std: Tensor) -> None:
        state = self.state[mean]
        state["step"] += 1
        lr, clip, rate = group["lr"], group["clip"], _curvature_rate(group, float(state["step"]))
        correction = 1 - group["beta1"] ** float(state["step"])
        damped, unbias = "square" in state, 1 / (1 - _NOISE_MEMORY ** float(state["step"]))
        assert mean.grad is not None
        assert log_std.grad is not None
        vectors = [mean, mean.grad, log_std, log_std.grad, *(state[key] for key in _VECTORS if key in state)]
        damping = 1 / group["adam_lr"] if damped else 0.0
        clip = min(math.inf if clip is None else clip, group["adam_lr"] if damped else math.inf)
        if takes(*vectors):
            newton_step(
                *vectors, ess=group["ess"], rate=rate, gain=1 - group["beta1"], correction=correction,
                clip=clip, lr=lr, gain2=1 - _NOISE_MEMORY, unbias=unbias, damping=damping,
            )  # fmt: skip
            mark_changed([mean, log_std])
            return
        for block in cache_blocks(*([vector] for vector in vectors)):
            (mean_, grad, log_std_, log_std_grad, precision, momentum, decay, scale, *square) = (
                part[0] for part in block
            )
            # (h^ - h) / (h + decay), where h^ = d NLL / d log_std * ess (h + decay): std^2 needs no exponential.
            change = (decay / precision).add_(log_std_grad, alpha=group["ess"]).sub_(1).mul_(rate)
            precision.mul_(change.square().mul_(0.5).add_(change).add_(1))
            momentum.lerp_(grad, 1 - group["beta1"])
            divisor = precision
            for running in square:
                running.lerp_((grad - momentum / correction).square_(), 1 - _NOISE_MEMORY)
                divisor = (running * unbias).sqrt_().mul_(damping).add_(precision)
            move = (momentum / correction).addcmul_(decay, mean_).div_(divisor)
            if clip < math.inf:
                move.clamp_(-clip, clip)
            mean_.addcmul_(move, scale, value=-lr)
            torch.mul(precision, group["ess"], out=log_std_).log_().mul_(-0.5)

    def _first_rate(self) -> float:
        """The rate that the means began with: the unit of ``rest_lr``."""
        means = next(group for group in self.param_groups if group.get("name") == MEANS)
        return float(means.get("base_lr", self.defaults["lr"]))

    def _update_deterministic(self, group: Group, parameter: Tensor) -> None:
        state, rest_lr = self.state[parameter], group["rest_lr"]
        if not state:
            state.update(step=torch.tensor(0.0), momentum=torch.zeros_like(parameter))
            if rest_lr is not None:
                state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        assert parameter.grad is not None
        state["momentum"].lerp_(parameter.grad, 1 - group["beta1"])
        correction = 1 - group["beta1"] ** float(state["step"])
        if rest_lr is None:
            parameter.add_(state["momentum"], alpha=-group["lr"] / correction)
            return
        state["square"].lerp_(parameter.grad.square(), 1 - _SQUARE_MEMORY)
        rate = rest_lr * group["lr"] / self._first_rate()  # along with the schedule, noise at its multiple
        size = (state["square"] / (1 - _SQUARE_MEMORY ** float(state["step"]))).sqrt_().add_(1e-8)
        parameter.addcdiv_(state["momentum"], size, value=-rate / correction)


_VECTORS = ("precision", "momentum", "decay", "scale", "square")
_SQUARE_MEMORY, _NOISE_MEMORY = 0.999, 0.99
_AUTO, _UNPLANNED = "auto", 0.001
_SHORTEST_MEMORY, _MEMORY_SHARE = 100, 0.1
_ADAMS = ("rest_lr", "adam_lr")
"""Rates of Adam, which may be "auto"."""


def _curvature_rate(group: Group, step: float) -> float:
    """1 - b2: with b2 None the estimate remembers the last tenth of the steps so far, but 100 at least."""
    if group["beta2"] is None:
        return 1 / max(_SHORTEST_MEMORY, _MEMORY_SHARE * step)
    return float(1 - group["beta2"])


@dataclass(frozen=True)
class IVON(Stepper):
    """Natural-gradient variational inference: Adam's cost, its second moment replaced by the posterior's precision.

    For posterior ``mean_field`` with parameter ``log_std``, a Gaussian prior, and an objective at temperature 0 (the
    prior is in the optimizer). ``temperature`` is that of the ELBO: mean NLL + temperature KL / N.

    ``beta2`` is the memory of the Hessian estimate: stds follow over 1 / (1 - beta2) steps. They have no rate of their
    own; the ``lr`` of their group is not used. The paper's 0.99999 is for runs of 10^5 steps and more. None: the memory
    grows with the run, 1 - b2 = min(0.01, 10 / t), so that a run of any length adapts its stds.
    ``hess_init`` is the first Hessian diagonal of the mean NLL and sets the starting stds; None takes the posterior's
    stds as they are. Too high is the risky side: while h falls from there, means move by up to h_0 / h times lr.
    ``clip`` bounds the Newton step (mom + decay mean) / (h + decay) of each mean: a step that is too long is cut there.
    (A method's ``clip_norm`` cuts the gradients, and with them the curvature: stds come out too wide.)
    ``rescale_lr`` multiplies lr by h_0 + decay, as the authors' code does. False leaves it out: lr is then the share of
    the Newton step that is taken, which needs no knowledge of the problem's curvature.
    ``rest_lr`` is the rate of whatever has no posterior (normalisation layers, learned noise), moved by Adam while the
    means' is ``lr``; a group whose rate is a multiple of theirs (noise: ``std_multiplier``) has that multiple of it.
    None: by SGD, at the lr of its group.
    ``adam_lr`` keeps the Newton step within what Adam does at this rate: never longer, and damped where gradients are
    mostly noise. Where a weight's curvature is small, noise alone would make it as long as ``clip`` allows, with any
    sign.
    "auto" in these two is the rate that Adam takes for a run of this length (``rate_for``; 0.001 without a plan).
    """

    lr: float = 0.2
    beta1: float = 0.9
    beta2: float | None = 0.999
    hess_init: float | None = 0.003
    clip: float | None = None
    temperature: float = 1.0
    rescale_lr: bool = True
    rest_lr: float | str | None = None
    adam_lr: float | str | None = None

    name: ClassVar[str] = "ivon"
    paper: ClassVar[str] = "Shen et al. 2024"
    wants: ClassVar[frozenset[str]] = frozenset({"dataset_size", "prior"})
    handles_divergence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive("ivon", "lr", self.lr)
        require_below_one("ivon", "beta1", self.beta1)
        if self.beta2 is not None:
            require_below_one("ivon", "beta2", self.beta2)
        for setting in ("hess_init", "clip", "rest_lr", "adam_lr"):
            value = getattr(self, setting)
            if value is not None and not (setting in _ADAMS and value == _AUTO):
                require_positive("ivon", setting, value)
        require_positive("ivon", "temperature", self.temperature)

    def planned(self, total_steps: int) -> IVON:
        """With the rates of Adam that fit so many steps, where they are "auto"."""
        return self._with_adams(rate_for(total_steps))

    def _with_adams(self, rate: float) -> IVON:
        rates: dict[str, Any] = {name: rate for name in _ADAMS if getattr(self, name) == _AUTO}
        return dataclasses.replace(self, **rates)

    def tempered(self, temperature: float) -> IVON:
        """Its temperature is that of the ELBO."""
        return dataclasses.replace(self, temperature=self.temperature * temperature)

    def build(
        self, param_groups: ParamGroups, *, dataset_size: int | None = None, prior: Prior | None = None
    ) -> IVONOptimizer:
        """The optimizer over the groups "means" and "stds" (``parameter_groups``). ``hess_init`` also sets the stds.

        Whatever else is in a group (deterministic parameters, learned noise) takes steps of Adam or SGD (``rest_lr``).
        """
        if dataset_size is None or prior is None:
            raise SettingError("ivon: build needs dataset_size= (how many examples there are) and prior= (model.prior)")
        require_count("ivon", "dataset_size", dataset_size)
        if prior.inverse_variance is None:
            raise CompositionError(
                "optimizer 'ivon' needs a Gaussian prior for every weight; use prior 'normal', 'kaiming' or 'xavier'"
            )
        if prior.centre is not None:
            raise CompositionError(
                "optimizer 'ivon' draws weights towards zero, but the prior is centred elsewhere; use another one"
            )
        settings = vars(self._with_adams(_UNPLANNED))
        return IVONOptimizer(param_groups, prior.inverse_variance, dataset_size, **settings)
