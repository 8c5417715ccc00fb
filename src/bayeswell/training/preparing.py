"""The arguments of ``fit`` as the loop takes them: data frames become tensors, a trained model is taken apart."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from ..core.errors import DataError, SettingError
from ..core.protocols import Inputs, Likelihood
from ..core.pytree import tree_index, tree_map
from ..core.random import derive_seed
from ..likelihoods import LIKELIHOODS
from ..methods import Method
from ..nn import BayesianModule, evaluation_mode, unpack_inputs
from ..prediction import Predictor
from ..tables import CLASSES, REAL, Preparation, is_frame
from .check import check_network
from .columns import Columns
from .options import FitOptions


@dataclass(frozen=True)
class Ready:
    """Prepared arguments of ``fit``.

    Args:
        module: a network, or the ``BayesianModule`` to continue from.
        preparation: None if nothing was done to the data.
        previous: the model that ``fit`` was given in place of a network.
    """

    module: nn.Module
    data: Any
    validation: Any
    likelihood: Likelihood
    preparation: Preparation | None = None
    previous: Any = None

    @property
    def dtype(self) -> torch.dtype | None:
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), None)

    @property
    def method(self) -> Method | None:
        return getattr(self.previous, "method", None)

    @property
    def predicts_classes(self) -> bool:
        return self.likelihood.supports("probabilities")

    def columns(self, target: str | None) -> Columns:
        net = self.module.net if isinstance(self.module, BayesianModule) else self.module
        return Columns(net, target)

    def continues(self, method: Method) -> bool:
        """Return whether training continues, because a result of the same method was given."""
        return method == self.method and bool(getattr(self.previous, "states", ()))


def prepare(net: Any, data: Any, likelihood: Any, options: FitOptions) -> Ready:
    """Learn from the training data what is done to them, and do it; a trained model keeps what it has learned."""
    previous = net if isinstance(net, Predictor) else None
    module = net
    if previous is not None:
        sequential = options.settings.get("prior") == "posterior"
        module = previous.model if sequential else getattr(previous, "trained", None) or previous.model
    check_network(module)
    likelihood = previous.likelihood if likelihood is None and previous is not None else likelihood
    part = LIKELIHOODS.resolve("categorical" if likelihood is None else likelihood)
    own = None if previous is None else previous.preparation
    if options.standardize and isinstance(module, BayesianModule):
        raise SettingError("`standardize` belongs to the first training: the model was trained on other numbers")
    if own is None:
        own = _learned(module, data, part, options)
        if own is not None and own.target_scaling is not None:
            part = part.for_scaled_targets(own.target_scaling.std.flatten().tolist())
    if own is None:
        return Ready(module, data, options.validation, part, None, previous)
    validation = None if options.validation is None else _prepared(own, options.validation, "validation")
    return Ready(module, _prepared(own, data, "data"), validation, part, own, previous)


def _learned(net: nn.Module, data: Any, likelihood: Likelihood, options: FitOptions) -> Preparation | None:
    """Return what has to be done to the data; None if they can be used as they are."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        if options.standardize or is_frame(data):
            what = "`standardize` works on" if options.standardize else "a data frame has no targets; give"
            raise DataError(f"{what} (inputs, targets) as tensors, arrays or data frames")
        return None
    if data[1] is None:
        raise DataError("the targets are None; give one target for each input")
    if isinstance(data[1], Mapping | tuple) and not options.standardize:
        return None
    kind = None
    if likelihood.supports("probabilities"):
        kind = CLASSES
    elif likelihood.supports("mean_and_variance") and not likelihood.is_discrete:
        kind = REAL
    dtype = next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.get_default_dtype())
    found = Preparation.fit(
        data[0], data[1], standardize=options.standardize, kind=kind, scale_targets=kind == REAL, dtype=dtype
    )
    used = (found.columns, found.input_scaling, found.target_scaling, found.class_names)
    return None if all(part is None for part in used) else found


def _prepared(preparation: Preparation, data: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(f"{name} of type {type(data).__name__}; give (inputs, targets) like the training data")
    return (preparation.inputs(data[0]), preparation.targets(data[1]), *data[2:])


def initialized(net: nn.Module, inputs: Inputs, seed: int) -> nn.Module:
    """Return a network whose lazy layers have shapes, from one call with two inputs."""
    if not any(isinstance(parameter, UninitializedParameter) for parameter in net.parameters()):
        return net
    net = copy.deepcopy(net)
    device = next((p.device for p in net.parameters()), torch.device("cpu"))
    args, kwargs = unpack_inputs(tree_map(lambda tensor: tensor.to(device), tree_index(inputs, slice(2))))
    with torch.random.fork_rng(), torch.no_grad(), evaluation_mode(net):
        torch.manual_seed(derive_seed(seed, "lazy"))
        net(*args, **kwargs)
    return net
