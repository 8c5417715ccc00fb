"""Networks that were trained elsewhere become Bayesian without further training: Laplace and SWAG."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..averaging import SWAG, SWAGDiagonal
from ..core.errors import (
    BayeswellWarning,
    CompositionError,
    DataError,
    FileError,
    NetworkError,
    SettingError,
    check_choice,
)
from ..core.layout import Site
from ..core.protocols import LINEARIZED, Inputs, Likelihood, Prior, Progress
from ..core.pytree import tree_map
from ..core.random import derive_seed, make_generator
from ..laplace import Curvature, Laplace, at_end_of_range, maximize, same_factor
from ..likelihoods import LIKELIHOODS
from ..nn import FROZEN, BayesianModule, Where, bayesian, has_statistics
from ..prediction import Predictor, predictive_nll
from ..priors import Normal, PriorChoice, build_prior
from .as_given import mean_outputs, settle_noise
from .check import check_network
from .columns import Columns
from .data import Data, as_data
from .devices import device_of
from .finalize import with_statistics

HELD_OUT, EVIDENCE, BY_LAYER = "held_out", "marginal_likelihood", "by_layer"


@dataclass(frozen=True)
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
    prior_precision: str | float | None = None,
    held_out: Any = None,
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
        prior_precision: the factor a: a number; "marginal_likelihood"; "by_layer"; "held_out" (by the NLL of held-out
            data); "prior" (1). None: by held-out data if there are any, else by marginal likelihood.
        held_out: data that the network was not trained on.
        temperature: T; below 1 is a cold posterior.
        settings: further settings of ``Laplace``.
    """
    check_network(net)
    choice = (HELD_OUT if held_out is not None else EVIDENCE) if prior_precision is None else prior_precision
    if (choice == HELD_OUT) != (held_out is not None):
        need = "needs" if held_out is None else f"has no use with `prior_precision` = {choice!r}; it needs"
        raise SettingError(f"laplace: `held_out` data {need} prior_precision='held_out', and the other way around")
    part = Laplace(structure, prior_precision="prior" if choice == HELD_OUT else choice, **settings)
    model = _point_model(net, where, prior, chosen=choice in (EVIDENCE, BY_LAYER, HELD_OUT))
    own = copy.deepcopy(LIKELIHOODS.resolve(likelihood)).to(device_of(model))
    batches = _data(net, data, batch_size)
    settle_noise(own, *mean_outputs(model, _pass(model, batches)))
    generator = make_generator(derive_seed(seed, "directions"), device_of(model))
    curvature = part.curvature(
        model, own, _pass(model, batches), dataset_size=batches.examples, temperature=temperature, generator=generator
    )
    if choice == HELD_OUT:
        factors = same_factor(_best_on(_data(net, held_out, 1000), model, own, curvature, seed))
    else:
        factors = curvature.factors(part.prior_precision)
    names = [site.name for site in model.layout.sites]
    by_site = {name: factors["" if structure == "full" else name] for name in names}
    if choice in (EVIDENCE, BY_LAYER, HELD_OUT) and all(at_end_of_range(factor) for factor in by_site.values()):
        warnings.warn(
            f"laplace: the best prior precision is at the end of its range (factor {by_site[names[0]]:.3g}), so the "
            "data do not tell it; give `held_out` data or a number",
            BayeswellWarning,
            stacklevel=2,
        )
    scaled = model.with_prior(_with_precision(model, by_site))
    evidence = curvature.log_evidence(factors)
    return PostHoc(scaled.with_posterior(curvature.posterior(factors), LINEARIZED), own, log_evidence=evidence)


def _point_model(net: nn.Module, where: Where, prior: PriorChoice | None, *, chosen: bool) -> BayesianModule:
    model = bayesian(net, "delta", Normal(1.0) if prior is None else prior, where, other_params=FROZEN)
    size = float(model.posterior.mean.detach().double().square().mean().sqrt())
    if prior is None and chosen and size > 0:
        return bayesian(net, "delta", Normal(size), where, other_params=FROZEN)
    return model


def _with_precision(model: BayesianModule, factors: Mapping[str, float]) -> Prior:
    """Return the model's Gaussian prior with each site's precision multiplied by its factor."""
    stds = model.layout.unflatten(model.prior.std())
    parts: Any = model.prior.parts
    centers = {site.name: part.center for site, part in zip(model.layout.sites, parts, strict=True)}

    def part(site: Site) -> Normal:
        return Normal(float(stds[site.name].flatten()[0]) * factors[site.name] ** -0.5, centers[site.name])

    return build_prior(part, model.layout, model.posterior.mean.detach())


def _data(net: nn.Module, data: Any, batch_size: int) -> Data:
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), None)
    return as_data(data, Columns(net), dtype, batch_size=batch_size)


def _pass(model: BayesianModule, data: Data) -> Iterator[tuple[Inputs, Tensor]]:
    device = device_of(model)
    for inputs, targets, weight in data.epoch(0):
        if weight is not None:
            raise CompositionError("a post-hoc posterior takes no example weights; repeat the examples instead")
        yield tree_map(lambda tensor: tensor.to(device), inputs), targets.to(device)


def _best_on(data: Data, model: BayesianModule, likelihood: Likelihood, curvature: Curvature, seed: int) -> float:
    """Return the factor under which held-out data are predicted best, with the same noise for each."""

    def log_likelihood(factor: float) -> float:
        tried = model.with_posterior(curvature.posterior(same_factor(factor)), LINEARIZED)
        batches = _pass(model, data)
        return -sum(float(predictive_nll(tried, x, y, likelihood, draws=50, seed=seed).sum()) for x, y in batches)

    return maximize(log_likelihood, 9, 0.2)


Checkpoint = Mapping[str, Tensor] | nn.Module | str | os.PathLike[str]


def swag(
    net: nn.Module,
    checkpoints: Sequence[Checkpoint],
    data: Any = None,
    likelihood: Any = "categorical",
    *,
    structure: str = "low_rank",
    rank: int | None = None,
    scale: float | None = None,
    where: Where = "all",
    prior: PriorChoice = "kaiming",
    batch_size: int = 100,
    seed: int = 0,
) -> PostHoc:
    """Return a Gaussian around the checkpoints of a training that is over (Maddox et al. 2019).

    Args:
        net: the network; its own weights do not matter.
        checkpoints: at least two snapshots of late training, in order: state dicts, networks, or .safetensors files.
        data: the training data, for BatchNorm statistics and learned noise.
        structure: "low_rank" or "diagonal".
        rank: last deviations that are kept; None: 20, or all.
        scale: of the covariance; None: 1/2 (the paper's), 1 for "diagonal".
        prior: what the spread is compared with.
    """
    check_network(net)
    check_choice("swag", "structure", structure, ("low_rank", "diagonal"))
    given = list(checkpoints)
    if len(given) < 2:
        raise SettingError(f"swag: {len(given)} checkpoints; a spread needs at least two")
    own = copy.deepcopy(LIKELIHOODS.resolve(likelihood))
    if data is None and any(p.requires_grad for p in own.parameters()):
        raise SettingError("swag: the likelihood learns its noise, which checkpoints do not tell; give `data`")
    every = {"start": 0.0, "cycle": 1, **({} if scale is None else {"scale": scale})}
    part = SWAG(rank=rank, **every) if structure == "low_rank" else SWAGDiagonal(**every)  # type: ignore[arg-type]
    model = bayesian(net, "delta", prior, where)
    averager = part.build(model, len(given), 1)
    for step, found in enumerate(_networks(net, given)):
        _load(model, found)
        averager.after_step(model, Progress(step, len(given), 0, 1))
    model = model.with_posterior(averager.finalize(model))
    with torch.no_grad():
        for name, value in averager.other_params().items():
            model.net.get_parameter(name).copy_(value)
    if data is not None:
        batches = _data(net, data, batch_size)
        settle_noise(own, *mean_outputs(model, _pass(model, batches)))
        generator = make_generator(derive_seed(seed, "draws"), device_of(model))
        model = with_statistics(model, lambda: (x for x, _ in _pass(model, batches)), generator, each_draw=True)
    elif has_statistics(model.net):
        warnings.warn(
            "swag: BatchNorm statistics belong to the weights they were gathered with; give `data` to re-estimate them",
            BayeswellWarning,
            stacklevel=2,
        )
    return PostHoc(model, own)


def _load(model: BayesianModule, net: nn.Module) -> None:
    """Set the weights, other parameters and buffers of the model to those of a plain network."""
    found = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    with torch.no_grad():
        model.posterior.mean.copy_(model.layout.flatten(found))
        own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
        for name, tensor in own.items():
            if name in found:
                tensor.copy_(found[name])


def _networks(net: nn.Module, checkpoints: Sequence[Checkpoint]) -> Iterator[nn.Module]:
    own = copy.deepcopy(net)
    for number, checkpoint in enumerate(checkpoints):
        name, state = f"checkpoint {number}", checkpoint
        if isinstance(checkpoint, nn.Module):
            state = checkpoint.state_dict()
        elif isinstance(checkpoint, str | os.PathLike):
            state = _from_file(name, Path(checkpoint))
        if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
            raise DataError(f"{name} must be a state dict, a network or the path of a .safetensors file")
        try:
            own.load_state_dict(dict(state))
        except RuntimeError as error:
            raise NetworkError(f"{name} does not fit the network: {' '.join(str(error).split())[:200]}") from error
        yield own


def _from_file(name: str, path: Path) -> dict[str, Tensor]:
    if path.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl"):
        raise FileError(
            f"{name}: {str(path)!r} is a pickle, which can run code; read it with torch.load(path, weights_only=True) "
            "and give the state dict"
        )
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise FileError(f"{name}: {str(path)!r} cannot be read: {error}") from error
