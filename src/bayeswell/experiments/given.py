"""Objects in the place of names: a network and data of one's own, for runs that are otherwise plain settings.

An ``Experiment`` says of them only what they are called and their SHA-256: ``{"name": "net.py:Net", "sha256": ...}``
for code that the command line named, ``{"name": ":Net", ...}`` for an object of a program. Whoever makes such a run
again gives the objects again, and a difference is told.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from ..errors import BayeswellWarning, NetworkError, SettingError
from ..random import derive_seed
from ..training.settings import network_fingerprint
from .network_code import SHA256, NetworkCode, built, is_code, network_code, shown_name
from .own_data import OwnData


class Named(Protocol):
    """As much of an experiment as is needed here."""

    @property
    def model(self) -> Any: ...
    @property
    def data(self) -> Any: ...
    def changed(self, settings: Mapping[str, Any]) -> Any: ...


ExperimentT = TypeVar("ExperimentT", bound=Named)
_NOT_SETTINGS = ("name", SHA256)


@dataclass(frozen=True)
class Given:
    """What was given as objects; None stands for what has a name."""

    network: NetworkCode | None = None
    data: OwnData | None = None

    def net(self, model: Any, *, seed: int, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        """The network that an experiment calls ``model``; a class or function makes it anew as the seed says."""
        if self.network is None:
            raise SettingError(f"the network {code_needed(model)}")
        settings = {key: value for key, value in dict(model or {}).items() if key not in _NOT_SETTINGS}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "network"))
            offered = {"input_shape": input_shape, "outputs": outputs}
            net = built(shown_name(self.network.name), self.network.found, settings, offered)
        return copy.deepcopy(net) if net is self.network.found else net

    def warn_of_change(self, model: Any) -> None:
        """Say if the code is not that which a run was begun with: its weights may mean something else in it."""
        known = str(dict(model or {}).get(SHA256, ""))
        named = str(dict(model or {}).get("name", ""))
        if self.network is None or not known or named.startswith(":") or known == self.network.sha256:
            return
        told = f"{self.network.name} is not what the run was trained with ({named})"
        change = f"sha256 was {known[:12]}..., is now {self.network.sha256[:12]}..."
        warnings.warn(f"{told}: {change}", BayeswellWarning, stacklevel=3)

    def named_in(self, experiment: ExperimentT) -> ExperimentT:
        """The experiment with these objects in it: the same one, if they are what it was begun with."""
        changes: dict[str, Any] = {}
        if self.network is not None and needs_code(experiment.model):
            changes["model.sha256"] = self.network.sha256
        if self.data is not None and needs_code(experiment.data):
            changes["data.sha256"] = self.data.record[SHA256]
        return experiment.changed(changes) if changes else experiment


NOTHING = Given()


def code_needed(model: Any) -> str:
    """How to give the network that a record only names."""
    name = str(model.get("name")) if isinstance(model, Mapping) else str(model)
    sha = str(model.get(SHA256, ""))[:12] if isinstance(model, Mapping) else ""
    known = f" (sha256 {sha}...)" if sha else ""
    if name.startswith(":"):
        return (
            f"'{shown_name(name)}'{known} is an object of a program, and a file holds no code: give it again in "
            "Python, or its code with --model file.py:Net"
        )
    return f"'{name}'{known} is code of your own, which is run only if you say so: give it again with --model {name}"


def given_code(spec: str) -> Given:
    """The network of a spec on the command line; this runs the user's code."""
    return Given(network_code(spec))


def given_network(net: Any) -> NetworkCode:
    """A network of a program: an object, which every seed begins with, or a class or function that makes one."""
    if not isinstance(net, nn.Module) and not callable(net):
        raise NetworkError(
            f"net is of type {type(net).__name__}; give a torch network, a class or function that makes one, or the "
            "name of one of bayeswell.models"
        )
    name = type(net).__name__ if isinstance(net, nn.Module) else getattr(net, "__name__", type(net).__name__)
    return NetworkCode(f":{name}", network_fingerprint(net) if isinstance(net, nn.Module) else _source(net), net)


def _source(maker: Any) -> str:
    """Of a class or function, its text where it can be had."""
    try:
        text = inspect.getsource(maker)
    except (OSError, TypeError):
        text = getattr(maker, "__qualname__", repr(type(maker)))
    return hashlib.sha256(text.encode()).hexdigest()


def model_record(code: NetworkCode, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The table of an experiment's ``model`` for code or an object."""
    return {"name": code.name, SHA256: code.sha256, **dict(settings or {})}


def needs_code(model: Any) -> bool:
    """Whether an experiment's model is code or an object, which only the user can give."""
    return isinstance(model, Mapping) and is_code(model.get("name"))
