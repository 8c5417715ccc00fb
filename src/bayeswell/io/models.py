"""Trained models on disk: everything needed to predict again, except code."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import FileError, SettingError
from ..core.protocols import Likelihood, Posterior
from ..core.registry import Registry, describe
from ..likelihoods import LIKELIHOODS
from ..methods import Method, method_from_settings, method_settings, with_tuples
from ..nn import ADDED_DROPOUT, BayesianModule, DrawnDropout, bayesian, drawn_dropout, drop_input
from ..posteriors import POSTERIORS
from ..priors import PRIORS, PosteriorPrior, describe_prior
from ..tables import Preparation
from .folders import folder_exists, load_folder, save_folder
from .networks import build_network, describe_network

_KIND = "bayeswell model"


@dataclass(frozen=True)
class SavedModel:
    """A model and everything that was saved with it."""

    model: BayesianModule
    likelihood: Likelihood
    preparation: Preparation | None = None
    method: Method | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def save_model(
    path: str | Path,
    model: BayesianModule,
    likelihood: Likelihood,
    *,
    preparation: Preparation | None = None,
    method: Method | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a model as a folder of safetensors and JSON.

    A network of torch.nn layers in ``nn.Sequential`` is described; ``load_model`` needs any other network again.
    ``extra`` is further JSON-ready data, such as a calibration.
    """
    record = _record(model, likelihood, preparation, method, extra)
    save_folder(path, _tensors(model, likelihood), {"model": record})


def save_adapter(path: str | Path, model: BayesianModule, likelihood: Likelihood, **beside: Any) -> None:
    """Write a model without its frozen parameters, such as LoRA adapters without their base.

    ``load_model(path, net)`` needs a network with the same frozen parameters. ``beside`` as in ``save_model``.
    """
    base = _frozen(model)
    if not base:
        raise SettingError("save_adapter: the network has no frozen parameters to leave out; use save_model")
    record = {**_record(model, likelihood, **beside), "network": None, "base": _digest(base)}
    tensors = {name: tensor for name, tensor in _tensors(model, likelihood).items() if name not in base}
    save_folder(path, tensors, {"model": record})


def load_model(
    path: str | Path,
    net: nn.Module | None = None,
    *,
    parts: Sequence[Any] = (),
    output: Any = None,
    device: str | torch.device = "cpu",
) -> SavedModel:
    """Return what ``save_model`` or ``save_adapter`` wrote.

    Args:
        net: a network of the same architecture, unless it was saved; its weights do not matter (but for adapters).
        parts: classes of custom parts that are not registered, and a custom likelihood object or function.
        output: the function of the network's outputs, if the model was made with one.
        device: of the loaded model.
    """
    if not folder_exists(path) and folder_exists(Path(path) / "model"):
        raise FileError(f"{str(path)!r} is the folder of a run; its model is {str(Path(path) / 'model')!r}")
    tensors, documents = load_folder(path)
    record = documents.get("model", {})
    if record.get("kind") != _KIND:
        raise FileError(f"{path} is not a saved model")
    if record["output"] and output is None:
        raise FileError(f"{path}: the model has an `output` function, which is code: load it with output=...")
    try:
        model = _model(record, _network(path, record, net), parts, output)
        likelihood = _likelihood(record["likelihood"], parts)
        if record.get("base"):
            base = _frozen(model)
            if _digest(base) != record["base"]:
                raise FileError(f"{path}: the frozen parameters of `net` are not those of the adapter's training")
            tensors |= base
        model.load_state_dict(_below("model.", tensors))
        likelihood.load_state_dict(_below("likelihood.", tensors))
    except (SettingError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{path} cannot be loaded: {reason:.300}; custom parts are given by parts=[...]") from error
    preparation = None if record["preparation"] is None else Preparation.from_json(record["preparation"])
    method = None if record["method"] is None else method_from_settings(record["method"])
    return SavedModel(model.to(device).eval(), likelihood.to(device), preparation, method, record["extra"])


def _record(
    model: BayesianModule,
    likelihood: Likelihood,
    preparation: Preparation | None = None,
    method: Method | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    drawn = {name: module.p for name, module in model.net.named_modules() if isinstance(module, DrawnDropout)}
    return {
        "kind": _KIND,
        "network": describe_network(_original(model)),
        "network_class": type(model.net).__name__,
        "dtype": str(model.prior.std().dtype).removeprefix("torch."),
        "dropout": drawn or None,
        "sites": {site.name: list(site.shape) for site in model.layout.sites},
        "other_params": model.selection.other_params,
        "posterior": describe(model.posterior.part),
        "prior": describe_prior(model.prior),
        "prediction": model.prediction,
        "output": model.output is not None,
        "likelihood": describe(likelihood) if likelihood.name else None,
        "preparation": None if preparation is None else preparation.to_json(),
        "method": None if method is None else method_settings(method),
        "extra": dict(extra or {}),
    }


def _tensors(model: BayesianModule, likelihood: Likelihood) -> dict[str, Tensor]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    return tensors | {f"likelihood.{name}": tensor for name, tensor in likelihood.state_dict().items()}


def _original(model: BayesianModule) -> nn.Module:
    """Return the network as the user gave it, without memory: parameters in their slots, its own layers."""
    tensors = [*model.net.parameters(), *model.net.buffers()]
    net = copy.deepcopy(model.net, {id(tensor): tensor for tensor in tensors})
    for site in model.layout.sites:
        for name in site.names:
            owner, _, local_name = name.rpartition(".")
            empty = nn.Parameter(torch.empty(site.shape, device="meta"))
            net.get_submodule(owner)._parameters[local_name] = empty
    for parent in list(net.modules()):
        if type(parent).__name__ == "SlicedMaxPool2d":
            parent.__class__ = nn.MaxPool2d
        for name, child in list(parent.named_children()):
            if name == ADDED_DROPOUT:
                delattr(parent, name)
                hooks = parent._forward_pre_hooks
                for key in [key for key, hook in hooks.items() if hook is drop_input]:
                    del hooks[key]
            elif isinstance(child, DrawnDropout):
                setattr(parent, name, nn.Dropout2d(child.p) if child.channels else nn.Dropout(child.p))
    return net


def _network(path: str | Path, record: Mapping[str, Any], net: nn.Module | None) -> nn.Module:
    if net is None and record["network"] is None:
        kind = record["network_class"]
        raise FileError(f"{path}: the network ({kind}) is code, which is not saved: load it with net={kind}(...)")
    if net is None:
        net = build_network(record["network"]).to(getattr(torch, record["dtype"]))
    if record["dropout"] is not None:
        net = drawn_dropout(net)
        layers = dict(net.named_modules())
        for name, p in record["dropout"].items():
            layer = layers.get(name)
            if not isinstance(layer, DrawnDropout):
                raise FileError(f"{path}: the saved network has dropout at '{name}', `net` does not")
            layer.p = p
    shapes = {name: list(parameter.shape) for name, parameter in net.named_parameters()}
    for name, shape in record["sites"].items():
        if shapes.get(name) != shape:
            raise FileError(f"{path}: parameter '{name}' was saved with shape {shape}, `net` has {shapes.get(name)}")
    return net


def _model(record: Mapping[str, Any], net: nn.Module, parts: Sequence[Any], output: Any) -> BayesianModule:
    learned = record["prior"].get("posterior")
    model = bayesian(
        net,
        "delta",
        "normal" if learned else _prior(record["prior"], parts),
        where=lambda name, module, parameter: name in record["sites"],
        other_params=record["other_params"],
        output=output,
    )
    if learned:
        model = model.with_prior(PosteriorPrior(_posterior(learned, model, parts)))
    return model.with_posterior(_posterior(record["posterior"], model, parts), record["prediction"])


def _prior(described: Mapping[str, Any], parts: Sequence[Any]) -> Any:
    if "name" in described:
        return _part(PRIORS, described, parts)
    return {pattern: _part(PRIORS, choice, parts) for pattern, choice in described.items()}


def _posterior(described: Mapping[str, Any], model: BayesianModule, parts: Sequence[Any]) -> Posterior:
    part = _part(POSTERIORS, described, parts)
    posterior: Posterior = part.build(model.layout, model.prior, model.posterior.mean.detach(), None)
    return posterior


def _likelihood(described: Mapping[str, Any] | None, parts: Sequence[Any]) -> Likelihood:
    if described is not None:
        likelihood: Likelihood = _part(LIKELIHOODS, described, parts)
        return likelihood
    custom = [part for part in parts if not isinstance(part, type)]
    if not custom:
        raise SettingError("its likelihood is a function or object without a name")
    return copy.deepcopy(LIKELIHOODS.resolve(custom[0]))


def _part(registry: Registry[Any], described: Mapping[str, Any], parts: Sequence[Any]) -> Any:
    settings = {key: with_tuples(value) for key, value in described.items()}
    custom = [part for part in parts if isinstance(part, type) and getattr(part, "name", None) == settings["name"]]
    if not custom:
        return registry.resolve(settings)
    del settings["name"]
    return custom[0](**settings)


def _frozen(model: BayesianModule) -> dict[str, Tensor]:
    named = model.net.named_parameters()
    # peft keeps a head that it replaced as `original_module`: unused, and random in each fresh network.
    frozen = {name: parameter.detach() for name, parameter in named if not parameter.requires_grad}
    return {f"model.net.{name}": tensor for name, tensor in frozen.items() if ".original_module." not in name}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
