"""From a method to the parts of one run; whatever cannot work together is refused here, before any work."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..composition import check_likelihood
from ..errors import BayeswellWarning, CompositionError, SettingError, nearest
from ..lifting import (
    TRAINED,
    BayesianModule,
    Trained,
    Where,
    bayesian,
    continued,
    looks_trained,
    moving_statistics,
    put_in_dropout,
    with_drawn_dropout,
)
from ..likelihoods import LIKELIHOODS, labels_of
from ..objectives import ELBO
from ..optimizers import (
    STDS,
    Alternating,
    Plateau,
    PlateauState,
    hold_inactive,
    set_rates,
    std_convergence_warning,
)
from ..optimizers.groups import names_of
from ..outputs import Output
from ..priors import FlatPrior
from ..samplers.fitting import FittedSampler
from ..types import Collector, FitsItself, KLWeight, Objective, PostHocPart, Progress, Rate, Stepper
from .grouping import built, gradient_factor, groups_of, rate_of, require_groups
from .method import DISPERSED, OWN_DROPOUT, Method
from .resolved import HELD_OUT, ResolvedMethod, resolve
from .tempering import SETTLED, Tempering, scale_prior


@dataclass
class Assembly:
    """The parts of one run, and the little that changes besides them: where each plateau stands."""

    method: Method
    model: BayesianModule
    objective: Objective
    likelihood: Any
    optimizer: torch.optim.Optimizer
    collector: Collector | None
    post_hoc: PostHocPart | None
    rate: Rate
    plateaus: dict[str, Plateau]
    alternating: Alternating | None
    may_collect: Callable[[Progress], bool]
    samples: bool
    fixed_temperature: float
    tempering: Tempering | None = None
    fitting: FitsItself | None = None
    std_rate: Rate | None = None
    gradient_factor: float = 1.0
    plateau_states: dict[str, PlateauState] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)

    @property
    def temperature(self) -> float:
        """That of the posterior that training aims at, now."""
        return self.fixed_temperature if self.tempering is None else self.tempering.temperature

    def meet(self, targets: Tensor, epoch: int) -> None:
        """Look at the targets of a whole batch, before its step; an empty one is the objective's to refuse."""
        if self.tempering is not None and epoch == 0 and targets.numel():
            self.tempering.targets.observe(labels_of(self.likelihood, targets))

    def before_step(self, at: Progress) -> None:
        """Learning rates of this step: each group's own, times the schedule, times its plateau."""
        if not self.plateau_states and self.std_rate is None:
            set_rates(self.optimizer, self.rate.factor(at))
            return
        names = dict.fromkeys(group["name"] for group in self.optimizer.param_groups)
        factors = {name: rate_of(name, self.rate, self.std_rate).factor(at) for name in names}
        set_rates(self.optimizer, {name: factors[name] * self._plateau_state(name).factor for name in names})

    def learning_rates(self) -> dict[str, float]:
        """That of the last step by group; a sampler's by its own account, as it has a schedule of its own."""
        groups = self.optimizer.param_groups
        own = getattr(self.optimizer, "taken_rates", None) or getattr(self.optimizer, "learning_rates", None)
        rates = [group["lr"] for group in groups] if own is None else own()
        return dict(zip(names_of(groups), map(float, rates), strict=True))

    def after_backward(self, epoch: int) -> None:
        """Bring the gradients to the scale of the loss that was asked for; hold the groups whose turn it is not."""
        if self.gradient_factor != 1:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(self.gradient_factor)
        if self.alternating is not None:
            hold_inactive(self.optimizer, self.alternating.active(epoch))

    def after_epoch(self, metrics: Mapping[str, float], epoch: int, done: float, scores: Mapping[str, float]) -> None:
        """Let each plateau whose group has not rested look at its metric, and the temperature at the fit.

        ``epoch`` is the one that has ended, ``done`` the share of training.
        """
        if self.tempering is not None:
            self.tempering.after_epoch(done, metrics["nll"], scores)
        resting = frozenset[str]() if self.alternating is None else self.alternating.resting(epoch)
        for name, plateau in self.plateaus.items():
            if name in resting:
                continue
            value = metrics.get(plateau.metric)
            if value is None:
                value = self._held_out(plateau.metric)
            self.plateau_states[name] = plateau.update(self._plateau_state(name), value)

    def _held_out(self, metric: str) -> float:
        """A score on the validation data after the epoch that has ended; lower is better."""
        score = metric.removeprefix(HELD_OUT)
        if score not in self.validation:
            there = sorted(self.validation)
            said = nearest(score, there) if there else "there are no validation data: give some (validation=...)"
            raise SettingError(f"plateau: metric = '{metric}'; {said}")
        return -self.validation[score] if score == "accuracy" else self.validation[score]

    def state_dict(self) -> dict[str, Any]:
        """Everything here that training changes."""
        return {
            "model": dict(self.model.state_dict()),
            "likelihood": dict(self.likelihood.state_dict()) if isinstance(self.likelihood, nn.Module) else {},
            "optimizer": self.optimizer.state_dict(),
            "collector": None if self.collector is None else self.collector.state_dict(),
            "plateaus": {name: dataclasses.asdict(state) for name, state in self.plateau_states.items()},
            "tempering": None if self.tempering is None else self.tempering.state_dict(),
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
        if self.tempering is not None:
            self.tempering.load_state_dict(state["tempering"])

    def _plateau_state(self, name: str) -> PlateauState:
        return self.plateau_states.get(name, PlateauState())


def assemble(
    method: Method | ResolvedMethod,
    net: nn.Module | Trained,
    likelihood: Any,
    *,
    dataset_size: int,
    batches: int,
    epochs: int,
    where: Where = "all",
    generator: torch.Generator,
    member: int = 0,
    output: Output | None = None,
) -> Assembly:
    """Build every part of a run of ``epochs`` epochs of ``batches`` batches.

    ``member`` counts the runs of one method from 0; starts that are drawn come from torch's global stream. A network is
    lifted; a trained model goes on from where it is (``lifting.continued``). ``output`` as in ``bayesian``; without it
    a trained model keeps its own.
    """
    parts = method if isinstance(method, ResolvedMethod) else resolve(method)
    total_steps = max(1, epochs * batches)  # a run of no epochs has an optimizer too, which never steps
    chosen, stepper = parts.method, parts.planned(parts.stepper, total_steps)
    std_stepper = None if parts.std_stepper is None else parts.planned(parts.std_stepper, total_steps)
    model = _lifted(parts, net, where, member)
    model = model if output is None else model.with_output(output)
    if parts.tempers_itself:
        scale_prior(model.prior, parts.first_temperature)
    elif chosen.prior_weight is not None:
        _weigh_prior(model, chosen.prior_weight, parts.first_temperature)
    # A copy: what is learned of the noise belongs to this run, not to the object that was given.
    own_likelihood = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    check_likelihood(own_likelihood, "estimator", parts.estimator)
    if parts.sharpness is not None:
        parts.sharpness.check(model)
    if parts.post_hoc is not None:
        check_likelihood(own_likelihood, "post_hoc", parts.post_hoc)
        parts.post_hoc.check(model)
    elbo = ELBO(
        own_likelihood,
        dataset_size,
        divergence=parts.divergence,
        kl_weight=parts.kl_weight,
        temperature=parts.objective_temperature,
        shown_temperature=parts.shown_temperature,
    )
    elbo.to(model.posterior.mean_vector().device)  # what is learned of the noise lives where the weights do
    elbo.divergence_for(model)
    groups = groups_of(chosen, model, elbo, stepper, std_stepper)
    require_groups(parts.plateaus, groups)
    _warn_of_std_convergence(
        model, groups, std_stepper or stepper, parts.std_rate or parts.rate, elbo.kl_weight, total_steps, batches
    )
    context = {
        "dataset_size": dataset_size,
        "generator": generator,
        "total_steps": total_steps,
        "prior": model.prior,
    }
    optimizer = built(groups, stepper, std_stepper, context)
    fitting = optimizer if isinstance(optimizer, FitsItself) else None
    if isinstance(optimizer, FittedSampler):
        optimizer.finds_temperature = parts.tempers_itself
    may_collect = stepper.sampling if fitting is None else lambda at: fitting.collects(at.step)
    collector = None if parts.collector is None else parts.collector.build(model, total_steps, batches)
    require_offered = getattr(collector, "require_offered", None)
    if stepper.samples and require_offered is not None:
        require_offered(lambda step: may_collect(Progress(step, total_steps, step % batches, batches)))
    return Assembly(
        method=chosen,
        model=model,
        objective=elbo if parts.sharpness is None else parts.sharpness.wrap(elbo),
        likelihood=elbo.likelihood,
        optimizer=optimizer,
        collector=collector,
        post_hoc=parts.post_hoc,
        rate=parts.rate,
        plateaus=dict(parts.plateaus),
        alternating=parts.alternating,
        may_collect=may_collect,
        samples=stepper.samples,
        fixed_temperature=parts.first_temperature,
        tempering=_tempering(parts, elbo, model, optimizer),
        fitting=fitting,
        std_rate=parts.std_rate,
        gradient_factor=gradient_factor(chosen, stepper, batches),
    )


def _weigh_prior(model: BayesianModule, weight: float, temperature: float) -> None:
    """Stds times sqrt(T / weight): T times the divergence then has -log p with the weight that was asked for."""
    prior = model.prior
    if not isinstance(prior, FlatPrior) or prior.inverse_variance is None:
        raise CompositionError(
            f"prior_weight = {weight!r} needs a Gaussian prior for every weight; use prior 'normal', 'kaiming' or "
            "'xavier', or leave it out"
        )
    prior.set_scale(math.sqrt(temperature / weight))


def _tempering(
    parts: ResolvedMethod, elbo: ELBO, model: BayesianModule, optimizer: torch.optim.Optimizer
) -> Tempering | None:
    if not parts.tempers_itself:
        return None
    # After the last epoch nothing would be trained at a new temperature; a post-hoc part, though, is made with it.
    until = 1.0 if parts.post_hoc is not None else math.nextafter(1.0, 0.0) if parts.collector is None else SETTLED
    in_objective = not parts.stepper.handles_divergence
    dropout = [] if parts.method.dropout != OWN_DROPOUT else put_in_dropout(model.net)
    return Tempering(elbo, model.prior, optimizer, dropout, in_objective=in_objective, until=until)


def _lifted(parts: ResolvedMethod, net: nn.Module | Trained, where: Where, member: int) -> BayesianModule:
    chosen = parts.method
    if isinstance(net, Trained):
        return continued(net, parts.posterior, parts.prior, parts.estimator, chosen.prediction)
    network = net if chosen.dropout is None else with_drawn_dropout(net, chosen.dropout_chance)
    _warn_of_moving_statistics(chosen, net, member)
    return bayesian(
        network,
        parts.posterior,
        parts.prior,
        parts.estimator,
        where,
        rest=chosen.rest,
        means=_start(chosen, net, member),
        prediction=chosen.prediction,
    )


def _warn_of_moving_statistics(method: Method, net: nn.Module, member: int) -> None:
    """Say once if layers that look frozen would change all the same."""
    moving = moving_statistics(net) if method.rest == TRAINED and member == 0 else []
    if moving:
        warnings.warn(
            f"method '{method.name}': the parameters of {len(moving)} BatchNorm layers ('{moving[0]}' first) are "
            "frozen (requires_grad=False), but training moves their statistics; rest='frozen' keeps both",
            BayeswellWarning,
            stacklevel=6,
        )


def _start(method: Method, net: nn.Module, member: int) -> str:
    """Of this member; say once if others than the first lose what the given weights have learned."""
    if method.means != DISPERSED:
        return method.means
    ratio = looks_trained(net) if member == 1 else None
    if ratio is not None:
        warnings.warn(
            f"method '{method.name}': the network's weights look trained (the largest singular values of its matrices "
            f"are {ratio:.2g} times those of the same numbers shuffled), but only the first of {method.members} "
            "members starts from them; means='network' lets all do so",
            BayeswellWarning,
            stacklevel=6,
        )
    return "network" if member == 0 else "redrawn"


def _warn_of_std_convergence(
    model: BayesianModule,
    groups: list[dict[str, Any]],
    stepper: Stepper,
    rate: Rate,
    kl_weight: KLWeight,
    total_steps: int,
    batches: int,
) -> None:
    """Say with numbers if the stds cannot get where they belong in the planned steps."""
    stds = next((group for group in groups if group["name"] == STDS), None)
    if stds is None or stepper.handles_divergence:
        return
    plan = (rate, kl_weight, total_steps, batches)
    note = std_convergence_warning(model.posterior, model.prior, stds["lr"], stepper.step_bound, *plan)
    if note is not None:
        warnings.warn(note, BayeswellWarning, stacklevel=6)
