"""A network at the weights of a finished run: what fine-tuning, SWAG and samplers of the papers begin with."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import FileError, SettingError
from ..lifting import BayesianModule
from ..persistence.folders import open_regular, refuse_link_out
from ..persistence.manifest import MANIFEST, MAX_BYTES
from ..predictive.predictor import load
from ..training.run_folder import CONFIG, MODEL
from ..types import BANK, MIXTURE
from .paths import path_of


def start_from(run: str, net: nn.Module) -> None:
    """Give a network the weights of the run in a folder: the posterior's means, and all else as training left it.

    The run may have been of any method whose posterior has one mean; stds start as the new method says. F-SGLD begins
    with a trained network (Nguyen et al. 2023), SWAG may (Maddox et al. 2019).
    """
    place = _model_of(run)
    if not place.is_dir():
        raise FileError(f"init = {run!r}: there is no finished run")
    refuse_link_out(place)
    model = load(place, _alike(net)).model
    weights = _mean_state(run, model)
    own = net.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        here, there = own.get(name), weights.get(name)
        if here is None or there is None or here.shape != there.shape:
            raise SettingError(
                f"init = {run!r}: its network differs from this one in '{name}' ({_shape(there)} there, {_shape(here)} "
                "here); use the same model and settings"
            )
    net.load_state_dict(weights)


def is_there(run: str) -> bool:
    """Whether there is a model to start from."""
    return (_model_of(run) / MANIFEST).is_file()


def model_sha256(run: str) -> str | None:
    """Of the manifest of its model, which holds the SHA-256 of every file of it; None while there is no model."""
    try:
        with open_regular(_model_of(run) / MANIFEST) as file:
            return hashlib.sha256(file.read(MAX_BYTES)).hexdigest()
    except OSError:
        return None


def _model_of(run: str) -> Path:
    """Where the model of a run lies; a model by itself is one too."""
    folder = path_of(run)
    return folder / MODEL if (folder / CONFIG).exists() else folder


def _alike(net: nn.Module) -> nn.Module | None:
    """The network as a template where its class is one's own, whose code no file holds."""
    known = all(type(module).__module__.split(".")[0] in ("torch", "bayeswell") for module in net.modules())
    return None if known else copy.deepcopy(net)


def _mean_state(run: str, model: BayesianModule) -> dict[str, Tensor]:
    """The state of the plain network at the posterior's mean."""
    if model.posterior_part.provides & {BANK, MIXTURE}:
        raise SettingError(
            f"init = {run!r}: posterior '{model.posterior_part.name}' is made of several networks; use a run that "
            "ended with one, such as 'map', 'swa' or 'bbb'"
        )
    with torch.no_grad():
        means = {name: tensor.detach().clone() for name, tensor in model.centre().items()}
        rest = {name: tensor for name, tensor in model.net.state_dict().items() if name not in means}
        return {**rest, **means}


def _shape(tensor: Tensor | None) -> str:
    return "none" if tensor is None else "x".join(map(str, tensor.shape)) or "a number"
