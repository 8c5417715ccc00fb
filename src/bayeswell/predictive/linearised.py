"""Prediction through the network linearised in its weights.

    f(x; w) ~ f(x; m) + J(x) (w - m),   J = df/dw at the posterior's mean m,  w ~ q

(Immer et al. 2021, "Improving predictions of Bayesian neural nets via local linearization"). A Gaussian that was
fitted to the curvature at one point (Gauss-Newton: the curvature of the linearised network) is the posterior of this
model, not of the network itself: its draws leave the neighbourhood in which the network is as curved as there. For a
Gaussian q = N(m, S) the outputs are N(f(x; m), J S J'). Where J can be had layer by layer, ``function_space`` predicts
with it; here is what works for every network: a pass in forward mode for each draw, which costs several plain ones.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Mapping

from torch import Tensor
from torch.func import jvp

from ..errors import NetworkError, SettingError, nearest
from ..layers import plain_kernels
from ..outputs import require_tensor
from ..types import LINEARISED, MEAN, PREDICTIONS, SAMPLED, Inputs
from .contracts import Drawable, HasMean, Linearisable

_NO_FORWARD_MODE = ("forward AD", "forward mode AD", "jvp", "setup_context")
"""How torch says that an operation has no derivative in forward mode."""


def choose_prediction(model: Drawable, asked: str | None) -> str:
    """How to predict: as asked for, or else as the model says of itself (drawn networks if it says nothing)."""
    chosen: str = getattr(model, "prediction", SAMPLED) if asked is None else asked
    if chosen not in PREDICTIONS:
        raise SettingError(f"prediction = {chosen!r}; {nearest(str(chosen), PREDICTIONS)}")
    if chosen == LINEARISED and not isinstance(model, Linearisable):
        raise SettingError(
            f"prediction = '{LINEARISED}' needs a model with a centre to linearise at, which {type(model).__name__} is "
            f"not; use '{SAMPLED}'"
        )
    if chosen == MEAN and not isinstance(model, HasMean):
        raise SettingError(
            f"prediction = '{MEAN}' needs a model that knows its mean network, which {type(model).__name__} does not; "
            f"use '{SAMPLED}'"
        )
    return chosen


@functools.cache
def _load_forward_mode() -> None:
    """Torch compiles some derivatives as forward mode is first used, in a way that it itself calls deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
        importlib.import_module("torch._decomp.decompositions_for_jvp")


class LinearisedNetwork:
    """Outputs of a drawn network, to first order around the posterior's mean."""

    def __init__(self, model: Linearisable) -> None:
        self.model, self.centre = model, {name: tensor.detach() for name, tensor in model.centre().items()}

    def call(self, weights: Mapping[str, Tensor], inputs: Inputs) -> Tensor:
        """f(x; m) + J(x) (w - m); what is drawn besides weights (dropout masks) is used as it is."""
        _load_forward_mode()
        others = {name: tensor for name, tensor in weights.items() if name not in self.centre}
        away = {name: weights[name] - tensor for name, tensor in self.centre.items()}

        def network(bayesian: Mapping[str, Tensor]) -> Tensor:
            return require_tensor(self.model.call({**others, **bayesian}, inputs))

        try:
            # Fused kernels have no derivative in forward mode. And torch counts passes in forward mode in one number
            # for all threads: two at once would each end the other's.
            with plain_kernels(self.model):
                found: tuple[Tensor, ...] = jvp(network, (self.centre,), (away,))
        except (NotImplementedError, RuntimeError) as error:
            first_line = (str(error).splitlines() or [""])[0].rstrip(".")
            if not any(words in first_line for words in _NO_FORWARD_MODE):
                raise
            raise NetworkError(
                f"prediction = '{LINEARISED}' needs derivatives in forward mode, which an operation of this network "
                f"does not have ({first_line}); use prediction = '{SAMPLED}'"
            ) from error
        outputs, change = found
        return outputs + change
