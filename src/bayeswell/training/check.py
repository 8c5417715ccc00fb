"""One check of the data and the network before training; mistakes that people make are named in one line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import BayeswellError, CompositionError, DataError, DataWarning, FitWarning, NetworkError
from ..core.protocols import Inputs, Likelihood
from ..core.pytree import tree_index, tree_map, tree_tensors
from ..methods import TrainState
from ..nn import evaluation_mode
from .data import Batch, Data, TensorData, as_real

FEW = 32
"""Examples that the network is tried with."""


def check_before_training(state: TrainState, data: Data, validation: Data | None, *, trains: bool = True) -> None:
    """Raise DataError or NetworkError for what cannot be trained; warn about what was probably not meant."""
    in_memory = isinstance(data, TensorData)
    shown = data.all if isinstance(data, TensorData) else data.first()
    _check_finite(inputs=shown.inputs, targets=shown.targets)
    if in_memory and shown.sample_weight is not None:
        _check_weights(state, shown.sample_weight)
    few = tree_index(data.first().inputs, slice(FEW))
    weights = _mean_weights_as_leaves(state)
    try:
        outputs = _outputs(state, few, weights)
    except DataError:
        if all(tensor.is_floating_point() for tensor in tree_tensors(few)):
            raise
        # A network that takes no integers is called with real numbers.
        data.to_real = state.model.posterior.mean.dtype
        outputs = _outputs(state, as_real(Batch(few, shown.targets), data.to_real).inputs, weights)
        if any(tensor.dtype == torch.uint8 and int(tensor.max()) > 1 for tensor in tree_tensors(few)):
            _warn("the inputs are bytes from 0 to 255; scale them, for example x / 255")
    if trains:
        _check_gradients(state, outputs, weights)
    outputs = outputs.detach()
    _check_targets_at_repeated_outputs(state.likelihood, shown.targets, outputs)
    likelihood, targets = state.likelihood, shown.targets
    one = len(targets) > 1 and targets.dim() == 1 and bool((targets == targets[0]).all())
    if one and in_memory and likelihood.supports("probabilities"):
        _warn(f"all targets are class {targets[0].item():g}: there is nothing to learn")
    if validation is not None:
        _check_validation(state, validation, data.to_real)


def check_grad_mode() -> None:
    """Refuse to train where torch records no gradients."""
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        mode = "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"
        raise BayeswellError(f"fit was called under torch.{mode}(), where nothing can be trained; call it outside")


def check_network(net: Any) -> None:
    """Refuse networks that cannot be copied or run."""
    if not isinstance(net, nn.Module):
        raise NetworkError(f"`net` must be an nn.Module, a Result or a loaded model, got {type(net).__name__}")
    if isinstance(net, torch.jit.ScriptModule):
        raise NetworkError("`net` is a torch.jit module, whose parameters are fixed; give the Python module")
    if any(parameter.dtype == torch.float16 for parameter in net.parameters()):
        raise NetworkError(
            "the weights are float16, in which stds underflow; use net.float() and, for speed, "
            "devices=Devices(precision='bf16-mixed')"
        )


def _warn(message: str, kind: type[Warning] = DataWarning) -> None:
    warnings.warn(message, kind, stacklevel=3)


def _check_finite(**named: Any) -> None:
    for name, values in named.items():
        for tensor in tree_tensors(values):
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                row = (~tensor.isfinite()).nonzero()[0].tolist()
                raise DataError(f"the {name} hold NaN or inf, first in row {row[0]} (index {tuple(row)})")


def _check_weights(state: TrainState, weights: Tensor) -> None:
    if state.post_hoc is not None:
        raise CompositionError(
            f"post_hoc '{state.post_hoc.name}' takes no example weights; repeat the examples instead"
        )
    mean = float(weights.mean())
    if mean == 0:
        raise DataError("the weights of all examples are 0: there is nothing to learn from")
    if not 0.5 <= mean <= 2:
        _warn(
            f"the example weights sum to {float(weights.sum()):.4g} for {len(weights)} examples; a weight of 1 is one "
            "example: scale them to sum to the number of examples unless the data count for more or less"
        )


def _outputs(state: TrainState, inputs: Inputs, weights: Mapping[str, Tensor]) -> Tensor:
    # In evaluation mode, which moves no BatchNorm statistics.
    device = state.model.posterior.mean.device
    try:
        with torch.random.fork_rng(), evaluation_mode(state.model):
            outputs = state.model.call(weights, tree_map(lambda tensor: tensor.to(device), inputs))
    except (RuntimeError, TypeError, IndexError) as error:
        parts = tree_tensors(inputs)
        shapes = ", ".join(f"{tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}" for part in parts)
        names = f" ({', '.join(inputs)})" if isinstance(inputs, Mapping) else ""
        reason = " ".join(str(error).split())[:160]
        raise DataError(f"the network cannot be called with inputs of shape {shapes}{names}: {reason}") from error
    size = len(tree_tensors(inputs)[0])
    if outputs.dim() == 0 or len(outputs) != size:
        raise NetworkError(
            f"the network returned shape {tuple(outputs.shape)} for {size} examples; the first axis must count them"
        )
    _check_finite(**{"outputs of the network, before training,": outputs})
    return outputs


def _mean_weights_as_leaves(state: TrainState) -> dict[str, Tensor]:
    layout = state.model.layout
    weights = layout.unflatten(state.model.posterior.mean.detach().clone())
    own = {site.name: weights[site.name].clone().requires_grad_() for site in layout.sites}
    return {name: own[site.name] for site in layout.sites for name in site.names}


def _check_targets_at_repeated_outputs(likelihood: Likelihood, targets: Tensor, outputs: Tensor) -> None:
    rows = torch.arange(len(targets), device=outputs.device) % len(outputs)
    likelihood.check(targets.to(outputs.device), outputs[rows])


def _check_gradients(state: TrainState, outputs: Tensor, weights: Mapping[str, Tensor]) -> None:
    leaves = {site.name: weights[site.name] for site in state.model.layout.sites}
    leaves |= {name: parameter for name, parameter in state.model.net.named_parameters() if parameter.requires_grad}
    gradients: Any = [None] * len(leaves)
    if outputs.requires_grad:
        gradients = torch.autograd.grad(outputs.sum(), list(leaves.values()), allow_unused=True)
    unused = [name for name, gradient in zip(leaves, gradients, strict=True) if gradient is None]
    if len(unused) == len(leaves):
        raise NetworkError("no parameter gets a gradient: `forward` runs under torch.no_grad() or detaches its result")
    if unused:
        shown = ", ".join(f"'{name}'" for name in unused[:5]) + (", ..." if len(unused) > 5 else "")
        message = f"{len(unused)} parameters get no gradient from the outputs ({shown}): they are not used, or cut off"
        _warn(f"{message} by no_grad() or detach()", FitWarning)


def _check_validation(state: TrainState, validation: Data, to_real: torch.dtype | None) -> None:
    validation.to_real = to_real
    shown = validation.all if isinstance(validation, TensorData) else validation.first()
    try:
        _check_finite(inputs=shown.inputs, targets=shown.targets)
        outputs = _outputs(state, tree_index(validation.first().inputs, slice(2)), _mean_weights_as_leaves(state))
        _check_targets_at_repeated_outputs(state.likelihood, shown.targets, outputs.detach())
    except (DataError, NetworkError) as error:
        raise type(error)(f"validation: {error}") from None
