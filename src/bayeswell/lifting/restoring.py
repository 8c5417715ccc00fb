"""The network that was lifted, as plain data: read back from the lifted one."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ..guards import guarded
from ..models import build_network, describe_network
from .dropout import DrawnDropout, _drop_input, dropout_settings, with_drawn_dropout
from .module import BayesianModule
from .swapping import PADDING


def network_description(model: BayesianModule) -> dict[str, Any] | None:
    """What ``bayeswell.models.build_network`` needs to build the network anew; None if it cannot be described.

    That is so for classes of one's own. The network is built once, without memory, to see that ``load`` would put the
    same dropout into it.
    """
    with guarded(model):
        given = _as_given(model)
    description = describe_network(given)
    if description is None:
        return None
    settings = dropout_settings(model.net)
    if settings is not None:
        rebuilt = with_drawn_dropout(build_network(description, device="meta"), **settings)
        if _drawn(rebuilt) != _drawn(model.net):
            return None
    return description


def _as_given(model: BayesianModule) -> nn.Module:
    """A copy, without memory, of the network before it was lifted: parameters in their places, its own dropout."""
    on_meta: dict[int, Any] = {}
    for parameter in model.net.parameters():
        on_meta[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)
    for buffer in model.net.buffers():
        on_meta[id(buffer)] = torch.empty_like(buffer, device="meta")
    net = copy.deepcopy(model.net, on_meta)
    dtype = model.posterior.mean_vector().dtype
    for site in model.layout.sites:
        tensor = nn.Parameter(torch.empty(site.shape, dtype=dtype, device="meta"))
        for name in site.names:
            module_name, _, local_name = name.rpartition(".")
            owner = net.get_submodule(module_name)
            owner._parameters[local_name] = tensor
            owner._buffers.pop(PADDING, None)
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DrawnDropout):
                _put_back(parent, name, child)
    return net


def _put_back(parent: nn.Module, name: str, child: DrawnDropout) -> None:
    """Plain dropout in place of drawn dropout; none where drawn dropout was added."""
    added = [key for key, hook in parent._forward_pre_hooks.items() if hook is _drop_input]
    if added and name == "input_dropout":
        delattr(parent, name)
        for key in added:
            del parent._forward_pre_hooks[key]
        return
    # One mask for all of a channel's axes: Dropout1d, 2d and 3d become the same drawn dropout.
    setattr(parent, name, nn.Dropout(child.p) if child.axes is None else nn.Dropout2d(child.p))


def _drawn(net: nn.Module) -> dict[str, tuple[float, int | None]]:
    return {name: (m.p, m.axes) for name, m in net.named_modules() if isinstance(m, DrawnDropout)}
