"""The one-call door."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayeswellWarning, SettingError, require_count
from ..lifting import BayesianModule, Where, save
from ..likelihoods import LikelihoodPart
from ..methods import Assembly, Method, assemble, find_method
from ..metrics.chains import ChainReport
from ..posteriors import Empirical, EmpiricalPosterior
from ..predictive import ClassPrediction, RealPrediction, predict
from ..random import derive_seed, make_generator
from ..types import POINT, Inputs
from .chains import function_space_report
from .data import Batches, as_batches, first_examples
from .ending import final_model
from .loop import History, Watcher, train

_DRAWS_PER_MEMBER = 10
_HARDLY_MOVED = 0.1


@dataclass(frozen=True)
class Result:
    """A trained network that predicts, saves and says what it is.

    ``chains`` tells, for samplers, whether the chains (one a member) agree in function space.
    """

    model: BayesianModule
    likelihood: LikelihoodPart
    method: Method
    histories: tuple[History, ...]
    seed: int
    chains: ChainReport | None = None

    def predict(
        self,
        inputs: Inputs,
        *,
        draws: int = 100,
        batch_size: int | None = None,
        seed: int = 0,
        keep_samples: bool = False,
    ) -> ClassPrediction | RealPrediction:
        """The prediction averaged over posterior draws, with its uncertainty."""
        return predict(
            self.model,
            inputs,
            self.likelihood,
            draws=draws,
            batch_size=batch_size,
            seed=seed,
            keep_samples=keep_samples,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to predict again to a folder; ``bayeswell.load`` brings it back."""
        save(path, self.model, self.likelihood)

    @property
    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: near 0 the network is deterministic, whatever it is called."""
        return self.model.std_ratio()


def fit(
    net: nn.Module,
    data: Any,
    method: str | Method = "bbb",
    likelihood: Any = "categorical",
    *,
    epochs: int = 20,
    batch_size: int = 100,
    seed: int = 0,
    where: Where = "all",
    watch: Watcher | None = None,
    **settings: Any,
) -> Result:
    """Train a network as a Bayesian one.

    Args:
        net: any ``nn.Module``; it is copied, not changed.
        data: ``(inputs, targets)`` as tensors or numpy arrays, a Dataset or a DataLoader.
        method: a name (``find_method``), or a ``Method``.
        likelihood: a name, ``{"name": ..., setting: value}`` or an object.
        epochs: passes over the data.
        batch_size: examples in a step; a DataLoader keeps its own.
        seed: decides the order of the data, all noise, dropout and starts.
        where: which parameters are Bayesian, as in ``bayesian``.
        watch: called with the record of every epoch.
        settings: any part of the method by name: posterior, prior, estimator, temperature, stepper, ...
    """
    require_count("fit", "epochs", epochs)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingError(f"seed = {seed!r}; it must be a whole number")
    chosen = find_method(method).changed(**settings)
    batches = as_batches(data, batch_size, _dtype_of(net))
    members = [
        _fit_member(net, batches, chosen, likelihood, epochs, derive_seed(seed, "member", m), where, watch)
        for m in range(chosen.members)
    ]
    models = [model for model, _, _ in members]
    likelihoods = [assembly.likelihood for _, assembly, _ in members]
    model = models[0] if len(models) == 1 else _gather(models, make_generator(derive_seed(seed, "gather")))
    one_likelihood = _mean_likelihood(likelihoods)
    chains = None
    if members[0][1].samples:
        chains = function_space_report(model, chosen.members, _some_inputs(batches), one_likelihood)
        for note in chains.warnings:
            warnings.warn(f"method '{chosen.name}': {note}", BayeswellWarning, stacklevel=2)
    return Result(model, one_likelihood, chosen, tuple(history for _, _, history in members), seed, chains)


def fit_member(
    net: nn.Module, data: Any, method: str | Method, likelihood: Any, member: int, *, epochs: int = 20,
    batch_size: int = 100, seed: int = 0, where: Where = "all", **settings: Any,
) -> BayesianModule:  # fmt: skip
    """One member of what ``fit`` with the same arguments would train, bit for bit, on its own."""
    chosen = find_method(method).changed(**settings)
    batches = as_batches(data, batch_size, _dtype_of(net))
    return _fit_member(net, batches, chosen, likelihood, epochs, derive_seed(seed, "member", member), where, None)[0]


def _fit_member(
    net: nn.Module, batches: Batches, method: Method, likelihood: Any, epochs: int, seed: int, where: Where,
    watch: Watcher | None,
) -> tuple[BayesianModule, Assembly, History]:  # fmt: skip
    # Starts, dropout masks and everything else that torch draws by itself; the caller's own stream is left alone.
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "global"))
        noise = make_generator(derive_seed(seed, "noise"))
        assembly = assemble(
            method, net, likelihood,
            dataset_size=batches.examples, batches=batches.count, epochs=epochs, where=where, generator=noise,
        )  # fmt: skip
        order = make_generator(derive_seed(seed, "order"))
        start = assembly.model.std_ratio()
        history = train(assembly, batches, epochs, order=order, noise=noise, watch=watch)
        _warn_of_stds_that_stood_still(assembly, history, start)
        return final_model(assembly, batches, noise), assembly, history


def _gather(models: list[BayesianModule], generator: torch.Generator) -> BayesianModule:
    """All members as one bank."""
    weights: list[Tensor] = []
    extras: dict[str, list[Tensor]] = {}
    for model in models:
        for tensors in _networks(model, generator):
            weights.append(model.layout.flatten(tensors))
            own = {**dict(model.net.named_parameters()), **dict(model.net.named_buffers())}
            for name, value in own.items():
                if name.endswith(".seed"):
                    continue
                extras.setdefault(name, []).append(tensors.get(name, value).detach().clone())
    stacked = {name: torch.stack(values) for name, values in extras.items()}
    first = models[0]
    posterior = EmpiricalPosterior(first.layout, torch.stack(weights), stacked)
    return first.with_posterior(Empirical(len(weights), tuple(stacked)), posterior)


def _dtype_of(net: nn.Module) -> torch.dtype | None:
    """The dtype of the network's real parameters, if it has any."""
    return next((p.dtype for p in net.parameters() if p.is_floating_point()), None)


def _warn_of_stds_that_stood_still(assembly: Assembly, history: History, start: float) -> None:
    """Say at the end if the stds are where they began: such a network is a deterministic one in disguise."""
    end = history.epochs[-1].std_ratio
    if start > 0 and abs(math.log(max(end, 1e-30) / start)) < _HARDLY_MOVED:
        note = f"the stds have hardly moved: from {start:.3g} to {end:.3g} of the prior std"
        advice = "raise std_multiplier or train longer"
        warnings.warn(f"method '{assembly.method.name}': {note}; {advice}", BayeswellWarning, stacklevel=4)


def _networks(model: BayesianModule, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    """What a member gives to the bank: a bank all it has, in order; a point itself; a distribution a few draws."""
    posterior = model.posterior
    if isinstance(posterior, EmpiricalPosterior):
        return (posterior.member(index) for index in range(len(posterior.weights)))
    return posterior.draws(1 if POINT in model.posterior_part.provides else _DRAWS_PER_MEMBER, generator)


def _some_inputs(batches: Batches, count: int = 64) -> Inputs:
    """A few training inputs, always the same."""
    inputs, _ = next(iter(batches.epoch(make_generator(0))))
    return first_examples(inputs, count)


def _mean_likelihood(likelihoods: list[Any]) -> Any:
    """One likelihood for all members: what they learned of the noise, averaged."""
    first = likelihoods[0]
    if len(likelihoods) > 1 and isinstance(first, nn.Module) and first.state_dict():
        states: list[Mapping[str, Tensor]] = [likelihood.state_dict() for likelihood in likelihoods]
        first.load_state_dict({name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]})
    return first
