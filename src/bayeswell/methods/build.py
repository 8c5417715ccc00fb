"""From a method and a network to the state of a training run."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..core.errors import BayeswellWarning, CompositionError, SettingError
from ..core.protocols import (
    EMPIRICAL,
    FACTORIZED,
    LINEARIZED,
    LOG_STD,
    MIXTURE,
    POINT,
    SAMPLED,
    WEIGHT_SAMPLE,
    Likelihood,
    OptimizerContext,
    OptimizerPart,
    Progress,
)
from ..likelihoods import LIKELIHOODS
from ..nn import BayesianModule, added_dropout, bayesian, drawn_dropout
from ..objectives import ELBO
from ..optim import Alternating, LearningRates, build_optimizer, gradient_factor, parameter_groups
from ..priors import PosteriorPrior, build_prior
from ..sampling import AutoTunedSampler
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
    likelihood = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    check_parts(method, likelihood)
    model = _model(method, net, member, output, generator)
    likelihood.to(model.posterior.mean.device)
    elbo = _elbo(method, model, likelihood, dataset_size)
    for message in method.estimator.warnings_for(model.net) if member == 0 else ():
        warnings.warn(message, BayeswellWarning, stacklevel=2)
    total_steps = max(1, epochs * batches)
    part = _planned(method, method.optimizer, total_steps)
    std_part = None if method.std_optimizer is None else _planned(method, method.std_optimizer, total_steps)
    context = OptimizerContext(
        dataset_size, total_steps, batches, generator, prior=elbo.prior_for(model), temperature=elbo.temperature
    )
    optimizer = build_optimizer(part, _groups(method, model, likelihood, part, std_part), context, std_part)
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
        auto_temperature=_auto_temperature(method, elbo, optimizer, model) if _adapts(method) else None,
        auto_tuned=optimizer if isinstance(optimizer, AutoTunedSampler) else None,
        gradient_factor=gradient_factor(method.gradient_scale, batches),
    )


def _model(method: Method, net: nn.Module, member: int, output: Any, generator: torch.Generator) -> BayesianModule:
    if isinstance(net, BayesianModule):
        return _continued(method, net)
    if method.dropout is not None:
        net = drawn_dropout(net, None if isinstance(method.dropout, str) else method.dropout)
    return bayesian(
        net,
        method.posterior,
        method.prior,
        method.where,
        other_params=method.other_params,
        init=("network" if member == 0 else "reinit") if method.init == "auto" else method.init,
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
        # A prior that is not Gaussian cannot be scaled: the temperature then scales the whole KL.
        scalable = _adapts(method) and model.prior.gaussian is not None
        temperature, prior_weight = COLD_START if _adapts(method) else PRIOR_WEIGHT, PRIOR_WEIGHT if scalable else None
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
) -> AutoTemperature:
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


def check_parts(method: Method, likelihood: Likelihood) -> None:
    """Raise CompositionError for parts that cannot work together; the ELBO checks those of its own.

    Capabilities are compared, never classes.
    """
    for conflicts in (_conflicts_of_training(method), _conflicts_of_the_end(method, likelihood)):
        for message in conflicts:
            raise CompositionError(message)


def _conflicts_of_training(method: Method) -> Iterator[str]:
    optimizer, std_optimizer, estimator = method.optimizer, method.std_optimizer, method.estimator
    provides, posterior = method.posterior.provides, f"posterior '{method.posterior.name}'"
    who, point = f"'{optimizer.name}'", POINT in provides
    if method.sharpness is not None and method.sharpness.rho > 0:
        if not estimator.uses_weight_gradient:
            yield f"sharpness needs estimator 'weight_sampling': '{estimator.name}' takes no gradient in the weights"
        if method.sharpness.geometry == "mean_over_std" and FACTORIZED not in provides:
            yield f"geometry 'mean_over_std' needs independent Gaussian weights; with {posterior} use 'identity'"
    for part in () if std_optimizer is None else (optimizer, std_optimizer):
        if part.samples or part.handles_kl:
            yield f"`std_optimizer`: '{part.name}' moves all weights together; use 'sgd' or 'adam' for both"
    if optimizer.samples and not point:
        yield f"sampler {who} needs one weight vector, which {posterior} does not have; use posterior 'delta'"
    if optimizer.samples and method.averaging is None:
        yield f"sampler {who} needs averaging that keeps its draws; use averaging 'bank'"
    if optimizer.samples and optimizer.lr is None and method.std_lr is not None:
        yield f"`std_lr` = {method.std_lr:g}: sampler {who} finds its own learning rate; give it `lr` too"
    if method.alternate is not None and (point or optimizer.handles_kl):
        yield f"`alternate` cannot train means and stds in turn with {posterior} and {who}; use 'mean_field' and 'adam'"
    if method.gradient_scale is not None and (optimizer.samples or optimizer.handles_kl):
        yield f"`gradient_scale` would change the target of {who}, which reads the scale of the gradient; leave it out"
    if not optimizer.handles_kl:
        return
    if LOG_STD not in provides:
        yield f"optimizer {who} needs posterior 'mean_field' in its log std form, got {posterior}"
    if WEIGHT_SAMPLE not in estimator.provides or not estimator.uses_weight_gradient:
        yield f"optimizer {who} needs weights drawn in each step; replace '{estimator.name}' by 'weight_sampling'"
    for setting in ("std_lr", "std_schedule"):
        if getattr(method, setting) is not None:
            yield f"`{setting}` has no use: optimizer {who} moves means and stds together; leave it out"


def _conflicts_of_the_end(method: Method, likelihood: Likelihood) -> Iterator[str]:
    averaging, post_hoc, prediction = method.averaging, method.post_hoc, method.prediction
    provides, posterior = method.posterior.provides, f"posterior '{method.posterior.name}'"
    if post_hoc is not None:
        if averaging is not None:
            yield f"averaging '{averaging.name}' and post_hoc '{post_hoc.name}' both make the posterior; choose one"
        if POINT not in provides:
            yield f"post_hoc '{post_hoc.name}' needs one weight vector, which {posterior} does not have; use 'delta'"
        for need in sorted(post_hoc.likelihood_needs):
            if not likelihood.supports(need):
                name = likelihood.name or type(likelihood).__name__
                yield f"likelihood '{name}' has no `{need}`, which post_hoc '{post_hoc.name}' needs; use another one"
    if averaging is not None:
        for need in sorted(averaging.needs - provides):
            remedy = "delta" if need == POINT else "mean_field"
            yield f"averaging '{averaging.name}' does not work with {posterior}; use posterior '{remedy}'"
        cycles, own = getattr(averaging, "cycles", None), getattr(method.schedule, "cycles", None)
        if cycles is not None and own is not None and own != cycles:
            schedule = f"schedule '{method.schedule.name}' has {own}"
            yield f"averaging '{averaging.name}' keeps {cycles} cycles, but {schedule}; use the same number for both"
    if prediction != SAMPLED:
        several = f"`prediction` = '{prediction}' needs one mean network, but {{}} a set of networks; use '{SAMPLED}'"
        if averaging is not None and EMPIRICAL in averaging.provides:
            yield several.format(f"averaging '{averaging.name}' makes")
        points = POINT in provides and averaging is None and post_hoc is None
        if method.members > 1 and (points or prediction == LINEARIZED):
            yield several.format(f"`members` = {method.members} make")
