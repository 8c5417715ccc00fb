"""A network whose weights have a distribution."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..core.errors import CompositionError, check_choice
from ..core.layout import Layout
from ..core.protocols import (
    EMPIRICAL,
    LINEARIZED,
    MEAN,
    MIXTURE,
    PREDICTIONS,
    SAMPLED,
    Inputs,
    LinearLayer,
    Posterior,
    Prior,
)
from ..core.random import standard_normal
from .description import Description, Row
from .dropout import DrawnDropout
from .functional import FunctionalNet, Output, output_tensor, unpack_inputs
from .linear import find_linear_layers
from .select import FROZEN, Selection
from .wiring import beside_magnitudes


class BayesianModule(nn.Module):
    """A network with a posterior in place of (some of) its weights.

    ``state_dict``, optimizers and ``.to()`` work as for any module. In training mode a call runs one drawn network, in
    evaluation mode the network at the posterior mean; it returns what the network returns, or what ``output`` makes of
    it. ``bayeswell.predict`` averages over draws. Several threads may call the model; they take turns.

    Args:
        net: the network; its Bayesian parameters are None between calls.
        selection: which parameters are Bayesian.
        posterior: q(w).
        prior: p(w).
        prediction: "sampled", "linearized" or "mean".
        output: a function of what the network returns, or None.
        function: the functional form of ``net``, shared between models of one network.
    """

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        posterior: Posterior,
        prior: Prior,
        prediction: str = SAMPLED,
        output: Output | None = None,
        function: FunctionalNet | None = None,
    ) -> None:
        super().__init__()
        # In this order: the posterior's mean is the first of all parameters.
        self.posterior = posterior
        self.prior = prior
        self.net = net
        self.selection, self.layout = selection, selection.layout
        self.prediction = prediction
        self.output = output
        self.linear_layers = _linear_layers(net, self.layout)
        self._function = FunctionalNet(net, self.layout) if function is None else function

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Hold it to change the modes or layers of the network while other threads may call the model."""
        return self._function.lock

    def train(self, mode: bool = True) -> BayesianModule:
        """Set the mode. With frozen other parameters, layers without Bayesian parameters stay in evaluation mode.

        BatchNorm then keeps its statistics (also where its scale is Bayesian), and ordinary dropout is off. Dropout
        that is drawn with the weights is part of the posterior and stays on.
        """
        with self.lock:
            super().train(mode)
            if mode and self.selection.other_params == FROZEN:
                names = [name for site in self.layout.sites for name in site.names]
                owners = {self.net.get_submodule(name.rpartition(".")[0]) for name in names}
                for module in self.net.modules():
                    drawn = module in owners or isinstance(module, DrawnDropout)
                    module.training = drawn and not isinstance(module, _NormBase)
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        drawn = self.training and self.posterior.noise_size > 0
        weights = self._drawn() if drawn else self.posterior.mean
        returned = self._function(self.layout.unflatten(weights), *args, **kwargs)
        return returned if self.output is None else output_tensor(returned, self.output)

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """Return the logits or means of the network with these tensors, by name, in place of its own.

        The model does not change, and ``vmap`` and ``grad`` over ``weights`` and ``inputs`` work. Besides Bayesian
        parameters, ``weights`` may hold other parameters, BatchNorm statistics and dropout masks.
        """
        if isinstance(inputs, Tensor):
            returned = self._function(weights, inputs)
        else:
            args, kwargs = unpack_inputs(inputs)
            returned = self._function(weights, *args, **kwargs)
        return output_tensor(returned, self.output)

    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: 1 is the prior, near 0 the network is deterministic."""
        with torch.no_grad():
            return float((self.posterior.std() / self.prior.std()).mean())

    def with_posterior(self, posterior: Posterior, prediction: str | None = None) -> BayesianModule:
        """Return the same network under another posterior; everything else is shared.

        A set of networks has no mean network, so ``prediction`` becomes "sampled" unless it is given.
        """
        if prediction is None:
            prediction = self.prediction if can_predict(posterior, self.prediction) else SAMPLED
        check_prediction(posterior, prediction)
        return self._copy(posterior, self.prior, prediction)

    def with_prior(self, prior: Prior) -> BayesianModule:
        """Return the same network and posterior under another prior; everything else is shared."""
        return self._copy(self.posterior, prior, self.prediction)

    def describe(self) -> Description:
        """Return a table of all parameters: posterior and prior, or why a parameter is deterministic."""
        stds = self.prior.std()
        rows = []
        for site in self.layout.sites:
            note = f"also {', '.join(site.names[1:])}" if len(site.names) > 1 else ""
            std = float(stds[self.layout.slices[site.name]].mean())
            rows.append(Row(site.name, site.shape, self.posterior.part.name, f"{std:.3g}", note))
        reasons = self.selection.deterministic
        for name, parameter in self.net.named_parameters():
            rows.append(Row(name, tuple(parameter.shape), "deterministic", "-", reasons.get(name, "")))
        return Description(tuple(rows))

    def __repr__(self) -> str:
        priors = ", ".join(dict.fromkeys(part.name for part in self.prior.parts)) or type(self.prior).__name__
        return (
            f"{type(self).__name__}({type(self.net).__name__}, {self.layout.size} Bayesian weights, "
            f"posterior={self.posterior.part.name}, prior={priors}, prediction={self.prediction})"
        )

    def _drawn(self) -> Tensor:
        like = next(self.posterior.parameters())
        return self.posterior.rsample(standard_normal((1, self.posterior.noise_size), like=like))[0]

    def _copy(self, posterior: Posterior, prior: Prior, prediction: str) -> BayesianModule:
        copied = BayesianModule(self.net, self.selection, posterior, prior, prediction, self.output, self._function)
        copied.training = self.training
        return copied


def can_predict(posterior: Posterior, prediction: str) -> bool:
    """Return whether a posterior has the mean network that a prediction needs (a mixture: one per component)."""
    refused = {SAMPLED: frozenset(), MEAN: frozenset({EMPIRICAL}), LINEARIZED: frozenset({EMPIRICAL, MIXTURE})}
    return not refused[prediction] & posterior.provides


def check_prediction(posterior: Posterior, prediction: str) -> None:
    check_choice("bayesian", "prediction", prediction, PREDICTIONS)
    if not can_predict(posterior, prediction):
        raise CompositionError(
            f"prediction = '{prediction}' needs a mean network, which posterior '{posterior.part.name}' does not have; "
            f"use '{SAMPLED}'"
        )


def trained_params(net: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters without a posterior that are trained, by name."""
    return {name: parameter for name, parameter in net.named_parameters() if parameter.requires_grad}


def _linear_layers(net: nn.Module, layout: Layout) -> Mapping[str, LinearLayer]:
    bayesian = {name for site in layout.sites for name in site.names}
    shared = {name for site in layout.sites if len(site.names) > 1 for name in site.names}
    return find_linear_layers(net, bayesian, shared | beside_magnitudes(bayesian, dict(net.named_parameters())))
