"""The lifted network: an ordinary nn.Module whose weights have a distribution."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import BayeswellWarning, SettingError
from ..guards import guarded, together
from ..layers import find_linear_layers, without_fused_attention
from ..outputs import Output, apply, tensor_of
from ..priors import FlatPrior, LearnedPrior
from ..random import derived_generator
from ..types import (
    BANK,
    LINEARISED,
    MEAN,
    MIXTURE,
    POINT,
    SAMPLED,
    WITHOUT_CENTRE,
    Estimator,
    Inputs,
    LinearLayer,
    Posterior,
    PosteriorPart,
    Step,
)
from .description import Description, Row
from .dropout import DrawnDropout, draw_masks
from .freezing import keep_in_evaluation
from .laid_out import ChannelsLast, channels_last_kernels
from .lora import beside_magnitudes, is_lora
from .stacked import Stack, find_stack
from .swapping import Slots, forget_weights, padded_embeddings, with_padding
from .tiled import Tiled, find_tiled
from .where import FROZEN, TRAINED, Selection


class BayesianModule(nn.Module):
    """A network with a posterior in place of (some of) its weights.

    ``state_dict``, optimizers, ``.to()`` work as for any module. In training mode a call is one stochastic pass
    by the estimator; in evaluation mode it is the network at the posterior mean. For predictions with
    uncertainty use ``bayeswell.predict``, which does as ``prediction`` says: "sampled", "linearised" or "mean". Several
    threads may call it at once; they take turns (``guards``). ``rest`` says what becomes of parameters without a
    posterior: "trained", or "frozen" with everything else that is not Bayesian.

    Objectives and predictions see the one tensor in what the network returns: what ``output`` makes of it, or else the
    one that is known to be meant (``outputs.tensor_of``). A call of the module itself returns what the network does, or
    what ``output`` makes of it.
    """

    rest: str = TRAINED

    def __init__(
        self, net: nn.Module, selection: Selection, prior: FlatPrior | LearnedPrior, posterior: Posterior,
        posterior_part: PosteriorPart, estimator: Estimator, prediction: str = SAMPLED, output: Output | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output = output
        # In this order: the posterior's mean is the first of all parameters.
        self.posterior = posterior
        self.prior = prior
        self.net = net
        self.posterior_part = posterior_part
        self.estimator = estimator
        self.prediction = prediction
        self.layout = selection.layout
        self.deterministic = selection.deterministic
        self.rest = selection.rest
        bayesian = {name for site in self.layout.sites for name in site.names}
        shared = {name for site in self.layout.sites if len(site.names) > 1 for name in site.names}
        read_twice = beside_magnitudes(bayesian, (name for name, _ in net.named_parameters()))
        self.linear_layers = find_linear_layers(net, bayesian, shared | read_twice)
        self._recurrent = [module for module in net.modules() if isinstance(module, nn.RNNBase)]
        self._slots = Slots(net, self.layout)
        self._padded = padded_embeddings(net, self.layout)
        self._drops = any(isinstance(module, DrawnDropout) for module in net.modules())
        if self.rest == FROZEN:
            keep_in_evaluation(net, self.layout)

    @property
    def guarded_by(self) -> nn.Module:
        """Whose guard is held while the model is called: ``with_posterior`` shares the network, and so the guard."""
        return self.net

    def train(self, mode: bool = True) -> BayesianModule:
        """As in ``nn.Module``; waits for the calls of other threads."""
        with guarded(self):
            super().train(mode)
            if mode and self.rest == FROZEN:
                keep_in_evaluation(self.net, self.layout)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As in ``nn.Module``; waits for the calls of other threads, which put drawn weights into the network."""
        with guarded(self):
            return super().state_dict(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> BayesianModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        with guarded(self):  # no drawn weights of another thread
            copied.__setstate__(copy.deepcopy(self.__dict__, memo))
        return copied

    def __repr__(self) -> str:
        """What it is made of, and the network as it was given."""
        # A prior that was learned from earlier data has no parts: it is a posterior.
        priors = ", ".join(dict.fromkeys(part.name for part in self.prior.parts)) or "posterior"
        shapes = self.layout.views(torch.empty(self.layout.size, device="meta"))
        with guarded(self):
            before = self._slots.contents()
            self._slots.fill(shapes)  # else layers would say that they have no bias
            try:
                network = repr(self.net).replace("\n", "\n  ")
            finally:
                self._slots.restore(before)
        made_of = f"posterior={self.posterior_part.name}, prior={priors}, estimator={self.estimator.name}"
        return f"{type(self).__name__}(\n  {made_of}, Bayesian weights={self.layout.size}\n  (net): {network}\n)"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """One stochastic pass in training mode, the mean network in evaluation mode."""
        inputs = _pack(args, kwargs)
        with guarded(self):  # from here on: another thread that predicts has changed the mode
            as_returned: Any = _AsReturned(self)
            if not self.training:
                return as_returned.call(self.layout.unflatten(self.posterior.mean_vector()), inputs)
            step = Step(inputs)
            noise = self.estimator.noise(self, step)
            weights = None if noise is None else self.posterior.sample(noise)[0]
            return self.estimator.forward(as_returned, weights, step)

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The tensor of the network's outputs with these tensors as its Bayesian parameters."""
        return self._call(self.net, weights, inputs)

    def _call(self, part: nn.Module, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """The same of the network, or of its last modules."""
        found = self.returned(part, weights, inputs)
        return tensor_of(found) if self.output is None else apply(self.output, found)

    def returned(self, part: nn.Module, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """What the network, or some of its modules, returns with these tensors as its Bayesian parameters."""
        args, kwargs = _unpack(inputs)
        if self._padded:
            weights = {**weights, **{name: with_padding(weights[name], owner) for name, owner in self._padded.items()}}
        # The fused path of attention layers would skip dropout that is drawn.
        with guarded(self), without_fused_attention(self.net) if self._drops else nullcontext(), together():
            forget_weights(self._recurrent)
            before = self._slots.contents()
            try:
                others = self._slots.fill(weights)
                return functional_call(self.net, others, args, kwargs) if others else part(*args, **kwargs)
            finally:
                self._slots.restore(before)
                forget_weights(self._recurrent)

    def draws(self, count: int, generator: torch.Generator | None = None) -> Iterator[dict[str, Tensor]]:
        """Networks drawn from the posterior, one at a time: tensors by name for ``call``, without gradient."""
        return self._with_masks(self.posterior.draws(count, generator), generator)

    def passing_draws(self, count: int, generator: torch.Generator | None = None) -> Iterator[dict[str, Tensor]]:
        """As ``draws``, in less time: asking for the next may overwrite the one before."""
        if type(self).draws is not BayesianModule.draws or "draws" in vars(self):
            return self.draws(count, generator)
        return self._with_masks(self.posterior.passing_draws(count, generator), generator)

    def channels_last_draws(
        self, count: int, generator: torch.Generator | None, kernels: Collection[str]
    ) -> Iterator[dict[str, Tensor]]:
        """As ``passing_draws``; these kernels of convolutions may lie in ``torch.channels_last`` already."""
        own = BayesianModule.draws, BayesianModule.passing_draws
        if (type(self).draws, type(self).passing_draws) != own or {"draws", "passing_draws"} & vars(self).keys():
            return self.passing_draws(count, generator)
        return self._with_masks(self.posterior.channels_last_draws(count, generator, kernels), generator)

    def _with_masks(
        self, networks: Iterator[dict[str, Tensor]], generator: torch.Generator | None
    ) -> Iterator[dict[str, Tensor]]:
        # Masks have a generator of their own: a posterior may draw several networks before the first is given out.
        masks = derived_generator(generator) if self._drops else None
        for tensors in networks:
            for name, owner in self._padded.items():
                tensors[name] = with_padding(tensors[name], owner)
            if masks is not None:
                tensors.update(draw_masks(self.net, masks))
            yield tensors
            # So that the next draw can have the memory of this one, which is still in the caches.
            del tensors

    @property
    def _bayesian_names(self) -> set[str]:
        """All names of parameters that are drawn."""
        return {name for site in self.layout.sites for name in site.names}

    @property
    def _call_is_changed(self) -> bool:
        """By a derived class, or by hand: what it does with a network is not known."""
        return type(self).call is not BayesianModule.call or "call" in vars(self)

    def find_layout(self, inputs: Inputs, examples: int) -> ChannelsLast | None:
        """How to run draws on so many images like these with their channels last, if that takes less time.

        Not where ``output`` sees what the network returns before it is laid out as ever.
        """
        if self._call_is_changed or self.output is not None:
            return None
        kernels = channels_last_kernels(self.net, self._bayesian_names, inputs, examples)
        return None if kernels is None else ChannelsLast(kernels, self.channels_last_draws)

    def stack(self) -> Stack | Tiled | None:
        """How to run several draws at once, for predictions in evaluation mode; None where each has to go alone."""
        if self._call_is_changed or self._drops or self.posterior.extra_names:
            return None
        names = [name for site in self.layout.sites for name in site.names]
        if all(map(is_lora, names)):
            return find_tiled(self.net, names, self.linear_layers, self._call)
        return find_stack(self.net, self.layout.size, self._call)

    def layers_of_all_weights(self) -> list[LinearLayer] | None:
        """The layers that are linear in the Bayesian parameters, if these are all there is to draw; else None."""
        names = self._bayesian_names
        layers = list(self.linear_layers.values())
        known = {name for layer in layers for name in (layer.weight, layer.bias) if name is not None}
        return None if self._call_is_changed or self._drops or self.posterior.extra_names or names != known else layers

    def useful_draws(self, count: int) -> int:
        """How many of ``count`` draws say something new: one of a point, each member of a bank once, else all."""
        if self._drops:
            return count
        return 1 if POINT in self.posterior_part.provides else self.posterior.useful_draws(count)

    def draw(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """One network drawn from the posterior."""
        return next(self.draws(1, generator))

    def centre(self) -> dict[str, Tensor]:
        """The posterior's mean: tensors by name for ``call``."""
        if self.posterior_part.provides & WITHOUT_CENTRE:
            kind = "a bank of networks" if BANK in self.posterior_part.provides else "several distributions"
            raise SettingError(
                f"posterior '{self.posterior_part.name}' is {kind}, which has no centre to linearise at; "
                f"use prediction = '{SAMPLED}'"
            )
        return self.layout.unflatten(self.posterior.mean_vector())

    def mean_networks(self) -> list[dict[str, Tensor]]:
        """The network at the posterior's mean, dropout off; of a mixture that of each component, to be averaged.

        A bank of networks is refused: they may have been trained apart, and the mean of such weights fits nothing.
        """
        provides = self.posterior_part.provides
        if BANK in provides:
            raise SettingError(
                f"posterior '{self.posterior_part.name}' is a bank of networks, whose mean weights are no network that "
                f"was ever fitted; use prediction = '{SAMPLED}', which averages what they say"
            )
        if MIXTURE in provides:
            return list(self.posterior.centres())
        return [self.centre()]

    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: 1 is the prior, near 0 the network is a deterministic one."""
        with torch.no_grad():
            return float((self.posterior.std_vector() / self.prior.std_vector()).mean())

    @property
    def variational_parameters(self) -> int:
        """How many free numbers the posterior has, as papers count them (``Posterior.variational_parameters``)."""
        return self.posterior.variational_parameters

    def with_posterior(
        self, part: PosteriorPart, posterior: Posterior, estimator: Estimator | None = None
    ) -> BayesianModule:
        """The same network under another posterior; everything else is shared, nothing is copied.

        It predicts as before, but for a bank of networks: those are drawn, as there is no centre to linearise at, and
        no mean. (Of a mixture there is a mean network for each component.)
        """
        prediction = self.prediction
        needed = {SAMPLED: frozenset(), LINEARISED: WITHOUT_CENTRE, MEAN: frozenset({BANK})}[prediction]
        if part.provides & needed:
            prediction = SAMPLED
            kind = f"a bank of {posterior.members} networks" if BANK in part.provides else "several distributions"
            note = f"the posterior has become {kind}, which are drawn"
            warnings.warn(f"{note}; prediction = '{self.prediction}' is given up", BayeswellWarning, stacklevel=2)
        return self.with_parts(part, posterior, self.prior, estimator or self.estimator, prediction)

    def with_parts(
        self, part: PosteriorPart, posterior: Posterior, prior: FlatPrior | LearnedPrior, estimator: Estimator,
        prediction: str,
    ) -> BayesianModule:  # fmt: skip
        """The same network with all of these in place of its own; nothing is copied."""
        selection = Selection(self.layout, self.deterministic, self.rest)
        return BayesianModule(self.net, selection, prior, posterior, part, estimator, prediction, self.output)

    def with_output(self, output: Output | None) -> BayesianModule:
        """The same network with another hook for its outputs (None: without one); nothing is copied."""
        model = self.with_parts(self.posterior_part, self.posterior, self.prior, self.estimator, self.prediction)
        model.output = output
        return model.train(self.training)

    def describe(self) -> Description:
        """Which posterior, prior and estimator every parameter got, or that it is deterministic, and why.

        At its end how many numbers the posterior has, and whether the rest is trained or frozen.
        """
        with guarded(self):
            others = {name: tuple(parameter.shape) for name, parameter in self.net.named_parameters()}
        rows = []
        for site in self.layout.sites:
            note = f"also {', '.join(site.names[1:])}" if len(site.names) > 1 else ""
            estimator = self.estimator.explain(self, site)
            posterior = self.posterior.explain(site)
            rows.append(Row(site.name, site.shape, posterior, self.prior.explain(site), estimator, note))
        for name, shape in others.items():
            rows.append(Row(name, shape, "deterministic", "-", "-", self.deterministic.get(name, "")))
        return Description(tuple(rows), self.variational_parameters, self.rest)


class _AsReturned:
    """A lifted network whose ``call`` gives what the network returns, for whoever calls the module itself."""

    def __init__(self, model: BayesianModule) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Any:
        """Untouched, but for a hook."""
        model = self._model
        if model.output is not None:
            return model.call(weights, inputs)
        return model.returned(model.net, weights, inputs)


def _pack(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    if not kwargs:
        return args[0] if len(args) == 1 and not isinstance(args[0], tuple | Mapping) else args
    if not args:
        return kwargs
    return _Call(args, kwargs)


def _unpack(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, _Call):
        return inputs.args, inputs.kwargs
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs,), {}


class _Call:
    """Positional and keyword arguments together."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
