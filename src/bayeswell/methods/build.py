"""From a method and a network to the state of a training run."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import torch
from torch import nn

from ..core.errors import BayeswellWarning, CompositionError, SettingError
from ..core.protocols import EMPIRICAL, MIXTURE, POINT, Likelihood, OptimizerContext, OptimizerPart, Progress
from ..likelihoods import LIKELIHOODS
from ..nn import BayesianModule, added_dropout, bayesian, drawn_dropout
from ..objectives import ELBO
from ..optim import (
    Alternating,
    LearningRates,
    build_optimizer,
    counted_steps,
    gradient_factor,
    parameter_groups,
    std_convergence_warning,
)
from ..priors import PosteriorPrior, build_prior
from ..sampling import AutoTunedSampler
from .checks import check_parts
from .method import OWN_DROPOUT, Method
from .state import TrainState
from .temperature import AUTO, COLD_START, PRIOR_WEIGHT, SETTLED, AutoTemperature

_NOISY_SHARE = 4 / 9
_WIDE = 0.1


def build(
    method: Method,
    net: nn.Module,
    likelihood: Any,
    *,
    dataset_size: int,
    batches: int,
    epochs: int,
    generator: torch.Generator,
    member: int = 0,
    output: Any = None,
) -> TrainState:
    """Build every part of a run of ``epochs`` epochs of ``batches`` batches; refuse parts that cannot work together.

    Args:
        net: a network, or a ``BayesianModule`` whose training continues (on a copy).
        likelihood: a name, a mapping or an object; the run gets a copy.
        generator: of all random numbers of the run.
        member: 0 for the first network of an ensemble (see ``Method.init``).
        output: what a network with several outputs returns for the likelihood, as in ``bayesian``.
    """
    check_parts(method)
    likelihood = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    _check_post_hoc(method, likelihood)
    model = _model(method, net, member, output, generator)
    likelihood.to(model.posterior.mean.device)
    elbo = _elbo(method, model, likelihood, dataset_size)
    total_steps = max(1, epochs * batches)
    part = _planned(method, method.optimizer, total_steps)
    std_part = None if method.std_optimizer is None else _planned(method, method.std_optimizer, total_steps)
    groups = _groups(method, model, likelihood, part, std_part)
    context = OptimizerContext(
        dataset_size, total_steps, batches, generator, prior=elbo.prior_for(model), temperature=elbo.temperature
    )
    optimizer = build_optimizer(part, groups, context, std_part)
    _warn_of_slow_stds(method, model, groups, std_part or part, context)
    alternating = None if method.alternate is None else Alternating(method.alternate)
    return TrainState(
        method=method,
        model=model,
        elbo=elbo,
        objective=elbo if method.sharpness is None else method.sharpness.wrap(elbo),
        likelihood=likelihood,
        optimizer=optimizer,
        part=part,
        learning_rates=LearningRates(optimizer, method.schedule, method.std_schedule, method.plateau, alternating),
        progress=Progress(0, total_steps, 0, batches),
        generator=generator,
        averager=None if method.averaging is None else method.averaging.build(model, total_steps, batches),
        post_hoc=method.post_hoc,
        auto_temperature=_auto_temperature(method, elbo, optimizer, model),
        auto_tuned=optimizer if isinstance(optimizer, AutoTunedSampler) else None,
        gradient_factor=gradient_factor(method.gradient_scale, batches),
    )


def _check_post_hoc(method: Method, likelihood: Likelihood) -> None:
    for need in () if method.post_hoc is None else sorted(method.post_hoc.likelihood_needs):
        if not likelihood.supports(need):
            name = likelihood.name or type(likelihood).__name__
            raise CompositionError(
                f"likelihood '{name}' has no `{need}`, which post_hoc '{method.post_hoc.name}' needs; use another one"
            )


def _model(method: Method, net: nn.Module, member: int, output: Any, generator: torch.Generator) -> BayesianModule:
    if isinstance(net, BayesianModule):
        return _continued(method, net)
    chance = None if isinstance(method.dropout, str) else method.dropout
    init = ("network" if member == 0 else "reinit") if method.init == "auto" else method.init
    return bayesian(
        net if method.dropout is None else drawn_dropout(net, chance),
        method.posterior,
        method.prior,
        method.where,
        other_params=method.other_params,
        init=init,
        prediction=method.prediction,
        output=output,
        generator=generator,
    )


def _continued(method: Method, trained: BayesianModule) -> BayesianModule:
    """Return a copy to train further: the same posterior continues, another family starts at its mean.

    ``prior="posterior"`` makes the trained posterior the prior (sequential Bayes).
    """
    model = copy.deepcopy(trained)
    old = model.posterior
    if old.provides & {EMPIRICAL, MIXTURE}:
        raise CompositionError(f"posterior '{old.part.name}' has no mean network to continue from; train a new network")
    mean = old.mean.detach()
    prior = PosteriorPrior(old) if method.prior == "posterior" else build_prior(method.prior, model.layout, mean)
    posterior = old if old.part == method.posterior else method.posterior.build(model.layout, prior, mean, None)
    return model.with_posterior(posterior, method.prediction).with_prior(prior)


def _elbo(method: Method, model: BayesianModule, likelihood: Likelihood, dataset_size: int) -> ELBO:
    temperature, prior_weight = method.temperature, method.prior_weight
    if temperature == AUTO:
        adapts = _adapts(method)
        temperature, prior_weight = (COLD_START, PRIOR_WEIGHT) if adapts else (PRIOR_WEIGHT, None)
    if prior_weight is not None and method.temperature != AUTO and model.prior.gaussian is None:
        raise CompositionError(
            f"`prior_weight` = {prior_weight:g} needs a Gaussian prior such as 'normal' or 'kaiming', got "
            f"{type(model.prior).__name__}"
        )
    elbo = ELBO(
        likelihood,
        dataset_size,
        estimator=method.estimator,
        divergence=method.divergence,
        kl_weight=method.kl_weight,
        temperature=float(temperature),
        prior_weight=prior_weight,
        handles_kl=method.optimizer.handles_kl,
    )
    elbo.divergence_for(model)
    return elbo


def _adapts(method: Method) -> bool:
    # Without any spread there is nothing that a temperature could set.
    spread = POINT not in method.posterior.provides or method.optimizer.samples or method.post_hoc is not None
    return method.temperature == AUTO and (spread or method.dropout == OWN_DROPOUT)


def _auto_temperature(
    method: Method, elbo: ELBO, optimizer: torch.optim.Optimizer, model: BayesianModule
) -> AutoTemperature | None:
    if not _adapts(method):
        return None
    # Nothing is trained after the last epoch, but a post-hoc part is made with the temperature found there.
    end = SETTLED if method.averaging is not None else math.nextafter(1.0, 0.0)
    dropout = added_dropout(model.net) if method.dropout == OWN_DROPOUT else []
    return AutoTemperature(elbo, optimizer, dropout, until=end if method.post_hoc is None else 1.0)


def _planned(method: Method, part: OptimizerPart, total_steps: int) -> OptimizerPart:
    """Return the optimizer with a learning rate for the length of the run.

    At a given temperature of 0.1 or more most of a gradient is the noise of the draw, and the steps of Adam mostly go
    back and forth; they get the length of a run of 4/9 of the steps.
    """
    wide = method.temperature != AUTO and float(method.temperature) >= _WIDE
    noisy = wide and POINT not in method.posterior.provides and not part.handles_kl
    return part.planned(max(1, round(total_steps * _NOISY_SHARE)) if noisy else total_steps)


def _groups(
    method: Method, model: BayesianModule, likelihood: Likelihood, part: OptimizerPart, std_part: OptimizerPart | None
) -> list[dict[str, Any]]:
    std_lr = method.std_lr
    if std_lr is None and std_part is not None:
        std_lr = std_part.lr
    # Without a learning rate a sampler finds its own, and ``lr`` is a factor on it.
    groups = parameter_groups(model, likelihood, lr=part.lr or 1.0, std_lr=std_lr, std_multiplier=method.std_multiplier)
    unused = [name for name in ("std_lr", "std_schedule") if getattr(method, name) is not None]
    if unused and not {"stds", "noise"} & {group["name"] for group in groups}:
        raise SettingError(f"{method.name}: `{unused[0]}` has no use: this run trains no stds")
    return groups


def _warn_of_slow_stds(
    method: Method,
    model: BayesianModule,
    groups: list[dict[str, Any]],
    part: OptimizerPart,
    context: OptimizerContext,
) -> None:
    stds = next((group for group in groups if group["name"] == "stds"), None)
    if stds is None or part.handles_kl:
        return
    schedule = method.std_schedule or method.schedule
    steps = counted_steps(schedule, method.kl_weight, context.total_steps, context.batches)
    note = std_convergence_warning(model.posterior, model.prior, stds["lr"], steps, part.step_bound)
    if note is not None:
        warnings.warn(note, BayeswellWarning, stacklevel=3)
