"""From a method to the parts of one run; whatever cannot work together is refused here, before any work."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..averaging import AVERAGING
from ..errors import BayeswellWarning, CompositionError, SettingError, nearest
from ..lifting import BayesianModule, Where, bayesian, with_drawn_dropout
from ..likelihoods import LIKELIHOODS
from ..objectives import ELBO
from ..optimizers import (
    OPTIMIZERS,
    RATES,
    STDS,
    Alternating,
    Plateau,
    PlateauState,
    Rate,
    hold_inactive,
    parameter_groups,
    set_rates,
    std_convergence_warning,
)
from ..post_hoc import POST_HOC
from ..samplers import SAMPLERS
from ..types import FACTORISED, POINT, Collector, KLWeight, Objective, Progress
from .method import Method

EPOCH_METRICS = ("total", "nll", "kl")
"""What a plateau may listen to: means over an epoch."""


@dataclass
class Assembly:
    """The parts of one run, and the little that changes besides them: where each plateau stands."""

    method: Method
    model: BayesianModule
    objective: Objective
    likelihood: Any
    optimizer: torch.optim.Optimizer
    collector: Collector | None
    post_hoc: Any | None
    rate: Rate
    plateaus: dict[str, Plateau]
    alternating: Alternating | None
    may_collect: Callable[[Progress], bool]
    samples: bool
    plateau_states: dict[str, PlateauState] = field(default_factory=dict)

    def before_step(self, at: Progress) -> None:
        """Learning rates of this step: each group's own, times the schedule, times its plateau."""
        factor = self.rate.factor(at)
        names = [group["name"] for group in self.optimizer.param_groups]
        set_rates(self.optimizer, {name: factor * self._plateau_state(name).factor for name in names})

    def after_backward(self, epoch: int) -> None:
        """Hold the groups whose turn it is not."""
        if self.alternating is not None:
            hold_inactive(self.optimizer, self.alternating.active(epoch))

    def after_epoch(self, metrics: Mapping[str, float]) -> None:
        """Let each plateau look at its metric."""
        for name, plateau in self.plateaus.items():
            value = metrics[plateau.metric]
            self.plateau_states[name] = plateau.update(self._plateau_state(name), value)

    def state_dict(self) -> dict[str, Any]:
        """Everything here that training changes."""
        return {
            "model": dict(self.model.state_dict()),
            "likelihood": dict(self.likelihood.state_dict()) if isinstance(self.likelihood, nn.Module) else {},
            "optimizer": self.optimizer.state_dict(),
            "collector": None if self.collector is None else self.collector.state_dict(),
            "plateaus": {name: dataclasses.asdict(state) for name, state in self.plateau_states.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of ``state_dict``, for an assembly of the same method."""
        self.model.load_state_dict(state["model"])
        if isinstance(self.likelihood, nn.Module):
            self.likelihood.load_state_dict(state["likelihood"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.collector is not None:
            self.collector.load_state_dict(state["collector"])
        self.plateau_states = {name: PlateauState(**own) for name, own in state["plateaus"].items()}

    def _plateau_state(self, name: str) -> PlateauState:
        return self.plateau_states.get(name, PlateauState())


def assemble(
    method: Method,
    net: nn.Module,
    likelihood: Any,
    *,
    dataset_size: int,
    batches: int,
    epochs: int,
    where: Where = "all",
    generator: torch.Generator,
) -> Assembly:
    """Build every part of a run of ``epochs`` epochs of ``batches`` batches."""
    sharp = method.sharpness_part
    stepper = _tempered(resolve_stepper(method.stepper), method.temperature)
    network = net if method.dropout is None else with_drawn_dropout(net, method.dropout_chance)
    model = bayesian(
        network,
        method.posterior,
        method.prior,
        method.estimator,
        where,
        means=method.means,
        prediction=method.prediction,
    )
    _check(method, model, stepper)
    if sharp is not None:
        sharp.check(model)
    post_hoc = None
    if method.post_hoc is not None:
        post_hoc = _tempered(POST_HOC.resolve(method.post_hoc), method.temperature)
        post_hoc.check(model)
    elbo = ELBO(
        # A copy: what is learned of the noise belongs to this run, not to the object that was given.
        copy.deepcopy(LIKELIHOODS.resolve(likelihood)),
        dataset_size,
        divergence=method.divergence,
        kl_weight=method.kl_weight,
        # A stepper that knows the prior takes care of the divergence itself.
        temperature=0.0 if "prior" in _wants(stepper) else method.temperature,
    )
    elbo.to(model.posterior.mean_vector().device)  # what is learned of the noise lives where the weights do
    elbo.divergence_for(model)
    total_steps = epochs * batches
    rate = RATES.resolve(method.rate)
    groups = _groups(method, model, elbo, stepper)
    _warn_of_short_reach(model, groups, stepper, rate, elbo.kl_weight, total_steps, batches)
    context = {
        "dataset_size": dataset_size,
        "generator": generator,
        "total_steps": total_steps,
        "prior": model.prior,
    }
    collector = None
    if method.collector is not None:
        collector = AVERAGING.resolve(method.collector).build(model, total_steps, batches)
    return Assembly(
        method=method,
        model=model,
        objective=elbo if sharp is None else sharp.wrap(elbo),
        likelihood=elbo.likelihood,
        optimizer=stepper.build(groups, **{name: context[name] for name in _wants(stepper)}),
        collector=collector,
        post_hoc=post_hoc,
        rate=rate,
        plateaus=_plateaus(method, groups),
        alternating=None if method.alternate is None else Alternating(method.alternate),
        may_collect=stepper.sampling if _is_sampler(stepper) else _always,
        samples=_is_sampler(stepper),
    )


def resolve_stepper(choice: Any) -> Any:
    """An optimizer or a sampler, from either registry."""
    named = choice if isinstance(choice, str) else choice.get("name") if isinstance(choice, Mapping) else None
    name = getattr(choice, "name", choice) if named is None else named
    key = str(name).replace("-", "_")
    if key in SAMPLERS:
        return SAMPLERS.resolve(choice)
    if key in OPTIMIZERS:
        return OPTIMIZERS.resolve(choice)
    raise SettingError(f"unknown stepper '{name}'; {nearest(key, [*OPTIMIZERS, *SAMPLERS])}")


def _tempered(stepper: Any, temperature: float) -> Any:
    """A stepper or post-hoc part with a spread of its own, at the method's temperature.

    A sampler of temperature T draws from exp(-N total / T); with T in the objective's prior term too, the likelihood
    counts 1/T and the prior 1: the same tempered posterior that a variational method aims at.
    """
    if not hasattr(stepper, "temperature"):
        return stepper
    return dataclasses.replace(stepper, temperature=stepper.temperature * temperature)


def _wants(stepper: Any) -> frozenset[str]:
    """What a stepper asks to be built with besides its parameter groups."""
    if _is_sampler(stepper):
        return frozenset({"dataset_size", "generator", "total_steps"})
    wants: frozenset[str] = getattr(stepper, "wants", frozenset())
    return wants


def _is_sampler(stepper: Any) -> bool:
    return stepper.name in SAMPLERS


def _groups(method: Method, model: BayesianModule, elbo: ELBO, stepper: Any) -> list[dict[str, Any]]:
    """Means, stds and, for a sampler, the parameters that take no noise, as groups of their own."""
    noise = list(elbo.parameters())
    has_stds = any(name != "mean" for name, _ in model.posterior.named_parameters())
    multiplier = method.std_multiplier if has_stds or noise else 1.0
    groups = parameter_groups(model, stepper.lr, multiplier, noise)
    if not _is_sampler(stepper):
        return groups
    means = groups[0]
    drawn = {**means, "params": means["params"][:1]}
    rest = [{**group, "noise": False} for group in groups[1:]]
    if len(means["params"]) > 1:
        rest.append({**means, "name": "deterministic", "params": means["params"][1:], "noise": False})
    return [drawn, *rest]


def _plateaus(method: Method, groups: list[dict[str, Any]]) -> dict[str, Plateau]:
    names = [group["name"] for group in groups]
    found = {}
    for name, choice in (method.plateau or {}).items():
        if name not in names:
            raise SettingError(f"plateau: there is no parameter group '{name}'; {nearest(name, names)}")
        plateau = choice if isinstance(choice, Plateau) else _plateau(choice)
        if plateau.metric not in EPOCH_METRICS:
            raise SettingError(f"plateau: metric = '{plateau.metric}'; {nearest(plateau.metric, EPOCH_METRICS)}")
        found[name] = plateau
    return found


def _plateau(settings: Mapping[str, Any]) -> Plateau:
    allowed = [f.name for f in dataclasses.fields(Plateau)]
    for key in settings:
        if key not in allowed:
            raise SettingError(f"plateau has no setting '{key}'; {nearest(key, allowed)}")
    if "metric" not in settings:
        raise SettingError(f"plateau: which metric? allowed: {', '.join(EPOCH_METRICS)}")
    return Plateau(**settings)


def _warn_of_short_reach(
    model: BayesianModule,
    groups: list[dict[str, Any]],
    stepper: Any,
    rate: Rate,
    kl_weight: KLWeight,
    total_steps: int,
    batches: int,
) -> None:
    """Say with numbers if the stds cannot get where they belong in the planned steps."""
    stds = next((group for group in groups if group["name"] == STDS), None)
    if stds is None:
        return
    bound = getattr(stepper, "step_bound", None)
    plan = (rate, kl_weight, total_steps, batches)
    note = std_convergence_warning(model.posterior, model.prior, stds["lr"], bound, *plan)
    if note is not None:
        warnings.warn(note, BayeswellWarning, stacklevel=6)


def _always(at: Progress) -> bool:
    return True


def _check(method: Method, model: BayesianModule, stepper: Any) -> None:
    """Refuse pairs that only show at this level: a sampler moves points, an ensemble needs its own starts."""
    point = POINT in model.posterior_part.provides
    if _is_sampler(stepper) and not point:
        raise CompositionError(
            f"sampler '{stepper.name}' moves one weight vector, but posterior '{model.posterior_part.name}' is a "
            "distribution; use posterior 'delta'"
        )
    if _is_sampler(stepper) and method.collector is None:
        raise CompositionError(f"sampler '{stepper.name}' needs a collector that keeps its draws; use collector 'bank'")
    if "prior" in _wants(stepper) and not (FACTORISED in model.posterior_part.provides and _has_log_std(model)):
        raise CompositionError(
            f"optimizer '{stepper.name}' moves means and log stds, which posterior '{model.posterior_part.name}' does "
            "not have in that form; use posterior 'mean_field' with parameter 'log_std'"
        )
    if "prior" in _wants(stepper) and model.estimator.name != "weight_sampling":
        raise CompositionError(
            f"optimizer '{stepper.name}' reads the curvature off drawn weights, which estimator "
            f"'{model.estimator.name}' does not share with it; use estimator 'weight_sampling'"
        )
    if method.alternate is not None and "prior" in _wants(stepper):
        raise CompositionError(
            f"optimizer '{stepper.name}' moves means and stds together: alternate = {method.alternate} has no use; "
            "use another optimizer"
        )
    if method.alternate is not None and point:
        raise CompositionError(
            f"alternate = {method.alternate} trains means and stds in turn, but posterior "
            f"'{model.posterior_part.name}' has no stds; use posterior 'mean_field' or 'k_tied'"
        )
    if method.post_hoc is not None and not point:
        raise CompositionError(
            f"post_hoc '{method.post_hoc}' starts from one weight vector, but posterior "
            f"'{model.posterior_part.name}' is a distribution; use posterior 'delta'"
        )
    if method.post_hoc is not None and method.collector is not None:
        raise CompositionError(
            f"collector '{method.collector}' and post_hoc '{method.post_hoc}' would both make the posterior; choose one"
        )


def _has_log_std(model: BayesianModule) -> bool:
    return [name for name, _ in model.posterior.named_parameters()] == ["mean", "log_std"]
