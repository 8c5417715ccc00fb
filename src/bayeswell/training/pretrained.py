"""Networks that were trained elsewhere become Bayesian without further training: Laplace and SWAG."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..averaging import SWAG, SWAGDiagonal
from ..core.errors import BayeswellWarning, CompositionError, NetworkError, SettingError, check_choice
from ..core.layout import Site
from ..core.protocols import LINEARIZED, Inputs, Prior, Progress
from ..core.pytree import tree_map
from ..core.random import derive_seed, make_generator
from ..laplace import POST_HOC, at_end_of_range
from ..likelihoods import LIKELIHOODS
from ..methods import build
from ..nn import FROZEN, BayesianModule, Where, bayesian, has_statistics
from ..prediction import Predictor
from ..priors import Normal, PriorChoice, build_prior
from .as_given import mean_outputs, settle_noise
from .check import check_before_training, check_network
from .data import Data
from .devices import device_of
from .finalize import averaged_model
from .fit import make_plan
from .members import Plan


@dataclass(frozen=True, repr=False)
class PostHoc(Predictor):
    """A network that was made Bayesian without training.

    ``log_evidence`` is log p(data) under the Laplace approximation, in nats; None for SWAG.
    """

    log_evidence: float | None = field(default=None, kw_only=True)


def laplace(
    net: nn.Module,
    data: Any,
    likelihood: Any = "categorical",
    *,
    structure: str = "kronecker",
    where: Where = "all",
    prior: PriorChoice | None = None,
    prior_precision: str | float = "marginal_likelihood",
    temperature: float = 1.0,
    batch_size: int = 100,
    seed: int = 0,
    **settings: Any,
) -> PostHoc:
    """Return N(w, P^-1) at the weights w of a trained network, P = (N/T) F + a P0 (see ``Laplace``).

    Learned noise of the likelihood is set to its maximum-likelihood value.

    Args:
        net: a network trained in any way; it is copied. Layers are in evaluation mode.
        data: the training data, as in ``fit``.
        structure: "kronecker", "diagonal" or "full".
        where: the Bayesian parameters, as in ``bayesian``; all others stay.
        prior: Gaussian, as in ``bayesian``; None: N(0, 1), or, where its precision is chosen, N(0, mean square of w).
        prior_precision: the factor a: a number, "marginal_likelihood", "by_layer", or "prior" (1).
        temperature: T; below 1 is a cold posterior.
        settings: further settings of ``Laplace``.
    """
    _check_untrained("laplace", net)
    options = {"structure": structure, "prior_precision": prior_precision, **settings}
    part: Any = POST_HOC.resolve({"name": "laplace", **options})
    chosen = isinstance(prior_precision, str) and prior_precision != "prior"
    plan = _checked_plan(net, data, "laplace", likelihood, batch_size, seed)
    model, batches = _point_model(plan.net, where, prior, chosen), plan.data
    own = copy.deepcopy(plan.likelihood).to(device_of(model))
    settle_noise(own, *mean_outputs(model, _pass(model, batches)))
    generator = make_generator(derive_seed(seed, "directions"), device_of(model))
    curvature = part.curvature(
        model, own, _pass(model, batches), dataset_size=batches.examples, temperature=temperature, generator=generator
    )
    factors = curvature.factors(prior_precision)
    by_site = {site.name: factors["" if structure == "full" else site.name] for site in model.layout.sites}
    if chosen and all(map(at_end_of_range, by_site.values())):
        factor = next(iter(by_site.values()))
        message = f"laplace: the data do not tell the prior precision (best factor {factor:.3g}, an end of its range)"
        warnings.warn(f"{message}; give `prior_precision` a number", BayeswellWarning, stacklevel=2)
    model = model.with_prior(_with_precision(model, by_site))
    evidence = curvature.log_evidence(factors)
    model = model.with_posterior(curvature.posterior(factors), LINEARIZED)
    return PostHoc(model, own, plan.preparation, log_evidence=evidence)


def _point_model(net: nn.Module, where: Where, prior: PriorChoice | None, chosen: bool) -> BayesianModule:
    model = bayesian(net, "delta", Normal(1.0) if prior is None else prior, where, other_params=FROZEN)
    size = float(model.posterior.mean.detach().double().square().mean().sqrt())
    if prior is None and chosen and size > 0:
        return bayesian(net, "delta", Normal(size), where, other_params=FROZEN)
    return model


def _with_precision(model: BayesianModule, factors: Mapping[str, float]) -> Prior:
    stds = model.layout.unflatten(model.prior.std())
    parts: Any = model.prior.parts
    centers = {site.name: part.center for site, part in zip(model.layout.sites, parts, strict=True)}

    def part(site: Site) -> Normal:
        return Normal(float(stds[site.name].flatten()[0]) * factors[site.name] ** -0.5, centers[site.name])

    return build_prior(part, model.layout, model.posterior.mean.detach())


def _check_untrained(owner: str, net: Any) -> None:
    if not isinstance(net, nn.Module) or isinstance(net, BayesianModule):
        raise NetworkError(f"{owner} takes an nn.Module, got {type(net).__name__}")
    check_network(net)


def _checked_plan(net: nn.Module, data: Any, method: str, likelihood: Any, batch_size: int, seed: int) -> Plan:
    plan = make_plan(net, data, method, likelihood, {}, epochs=0, batch_size=batch_size, seed=seed)
    sizes = {"dataset_size": plan.data.examples, "batches": plan.data.batches, "epochs": 0}
    device = next((parameter.device for parameter in plan.net.parameters()), "cpu")
    state = build(plan.method, plan.net, plan.likelihood, **sizes, generator=make_generator(seed, device))
    check_before_training(state, plan.data, None, trains=False)
    return plan


def _pass(model: BayesianModule, data: Data) -> Iterator[tuple[Inputs, Tensor]]:
    device = device_of(model)
    for inputs, targets, weight in data.epoch(0):
        if weight is not None:
            raise CompositionError("a post-hoc posterior takes no example weights; repeat the examples instead")
        yield tree_map(lambda tensor: tensor.to(device), inputs), targets.to(device)


def swag(
    net: nn.Module,
    checkpoints: Sequence[Mapping[str, Tensor] | nn.Module],
    data: Any = None,
    likelihood: Any = "categorical",
    *,
    structure: str = "low_rank",
    where: Where = "all",
    prior: PriorChoice = "kaiming",
    batch_size: int = 100,
    seed: int = 0,
    **settings: Any,
) -> PostHoc:
    """Return a Gaussian around the checkpoints of a training that is over (Maddox et al. 2019).

    Args:
        net: the network; its own weights do not matter.
        checkpoints: at least two snapshots of late training, in order: state dicts or networks.
        data: the training data, for BatchNorm statistics and learned noise.
        structure: "low_rank" or "diagonal".
        prior: what the spread is compared with.
        settings: ``rank`` and ``scale`` of ``SWAG``.
    """
    _check_untrained("swag", net)
    check_choice("swag", "structure", structure, ("low_rank", "diagonal"))
    given = list(checkpoints)
    if len(given) < 2:
        raise SettingError(f"swag: {len(given)} checkpoints; a spread needs at least two")
    own = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    if data is None and any(p.requires_grad for p in own.parameters()):
        raise SettingError("swag: the likelihood learns its noise, which checkpoints do not tell; give `data`")
    kind = SWAG if structure == "low_rank" else SWAGDiagonal
    model = bayesian(net, "delta", prior, where)
    averager = kind(start=0.0, cycle=1, **settings).build(model, len(given), 1)
    for step, snapshot in enumerate(_snapshots(net, given)):
        model = bayesian(snapshot, "delta", prior, where)
        averager.after_step(model, Progress(step, len(given), 0, 1))
    generator = make_generator(derive_seed(seed, "draws"), device_of(model))
    if data is None:
        if has_statistics(model.net):
            message = "swag: the BatchNorm statistics are those of the last checkpoint; give `data` to find new ones"
            warnings.warn(message, BayeswellWarning, stacklevel=2)
        return PostHoc(averaged_model(model, averager, None, generator), own)
    plan = _checked_plan(net, data, "map", likelihood, batch_size, seed)
    batches, own = plan.data, copy.deepcopy(plan.likelihood)
    settle_noise(own, *mean_outputs(averaged_model(model, averager, None, generator), _pass(model, batches)))
    inputs = lambda: (inputs for inputs, _ in _pass(model, batches))  # noqa: E731
    return PostHoc(averaged_model(model, averager, inputs, generator), own, plan.preparation)


def _snapshots(net: nn.Module, checkpoints: Sequence[Any]) -> Iterator[nn.Module]:
    own = copy.deepcopy(net)
    for number, checkpoint in enumerate(checkpoints):
        state = checkpoint.state_dict() if isinstance(checkpoint, nn.Module) else checkpoint
        if not isinstance(state, Mapping):
            raise SettingError(f"checkpoint {number} must be a state dict or a network, got {checkpoint!r}")
        try:
            own.load_state_dict(dict(state))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise NetworkError(f"checkpoint {number} does not fit the network: {reason}") from error
        yield own
