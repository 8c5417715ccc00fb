"""Which parameters become Bayesian."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lifting.lifted import reasons, train
from nets import (
    Custom,
    Normalised,
    Repeated,
    Tied,
    lift,
    make,
)

ALL = ["convolution.weight", "convolution.bias", "out.weight", "out.bias"]

NORMS = [f"{layer}_norm.{part}" for layer in ("batch", "group", "layer") for part in ("weight", "bias")]

WHERE: dict[str, tuple[Any, list[str]]] = {
    "all": ("all", ALL),
    "last layer": ("last_layer", ["out.weight", "out.bias"]),
    "a parameter": ("out.bias", ["out.bias"]),
    "a module": ("convolution", ["convolution.weight", "convolution.bias"]),
    "a pattern": ("*.weight", [name for name in [*ALL, *NORMS] if name.endswith("weight")]),
    "patterns": (["conv*", "out.weight"], ["convolution.weight", "convolution.bias", "out.weight"]),
    "a tuple of patterns": (("out", "group_norm"), ["group_norm.weight", "group_norm.bias", *ALL[2:]]),
    "a set of patterns": ({"out.*"}, ["out.weight", "out.bias"]),
    "a type": (nn.Linear, ["out.weight", "out.bias"]),
    "types": ((nn.Linear, nn.LayerNorm), ["layer_norm.weight", "layer_norm.bias", *ALL[2:]]),
    "a base class": (nn.Module, [*ALL, *NORMS]),
    "a function": (lambda name, module, parameter: parameter.dim() > 1, ["convolution.weight", "out.weight"]),
    "a function of the module": (lambda name, module, _: isinstance(module, nn.Conv2d), ALL[:2]),
}


@pytest.mark.parametrize("form", WHERE)
def test_where(form: str) -> None:
    where, chosen = WHERE[form]
    net, inputs = make("normalised")
    model = lift(net, where=where)
    assert set(model.layout.slices) == set(chosen)
    assert set(reasons(model)) == set(ALL + NORMS) - set(chosen)
    train(model, inputs)


def test_the_function_is_given_the_name_its_module_and_the_parameter() -> None:
    net, _ = make("custom")
    given: list[tuple[str, nn.Module, Tensor]] = []
    lift(net, where=lambda *arguments: given.append(arguments) is None)
    assert [name for name, _, _ in given] == [name for name, _ in net.named_parameters()]
    for name, module, parameter in given:
        assert parameter is net.get_parameter(name)
        assert module is net.get_submodule(name.rpartition(".")[0])


def test_last_layer_looks_past_frozen_and_normalisation_layers() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert set(lift(net, where="last_layer").layout.slices) == {"1.weight", "1.bias"}
    net[1].requires_grad_(False)
    assert set(lift(net, where="last_layer").layout.slices) == {"0.weight", "0.bias"}


def test_a_shared_parameter_is_found_under_each_of_its_names() -> None:
    for where in ("decoder", "embedding", "decoder.weight"):
        names = {site.names for site in lift(Tied(), where=where).layout.sites}
        assert ("embedding.weight", "decoder.weight") in names


def test_reasons_tell_unchosen_frozen_and_normalisation_apart() -> None:
    net = Normalised()
    net.out.bias.requires_grad_(False)
    net.register_parameter("empty", nn.Parameter(torch.zeros(0, 3)))
    net.register_parameter("phase", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    found = reasons(lift(net, where="last_layer"))
    found.update({name: reason for name, reason in reasons(lift(net)).items() if "norm" not in name})
    assert found["out.bias"] == "frozen (requires_grad=False)"
    assert found["batch_norm.weight"].startswith("normalisation layer")
    assert found["empty"] == "empty"
    assert found["phase"].startswith("not a real floating-point")
    assert reasons(lift(net, where="out"))["convolution.weight"] == "not chosen by where"


def test_integer_parameters_do_not_stop_lifting() -> None:
    net, inputs = make("mlp")
    net.register_parameter("count", nn.Parameter(torch.tensor([3]), requires_grad=False))
    model = lift(net)
    assert "count" in reasons(model)
    train(model, inputs)


def test_custom_parameters_are_sites_of_their_own() -> None:
    net = Custom()
    model = lift(net)
    shapes = {site.name: site.shape for site in model.layout.sites}
    assert shapes["scale"] == ()
    assert shapes["matrices.1"] == (4, 4)
    assert shapes["offsets.first"] == (4,)
    assert shapes["block.0.0.weight"] == (4, 4)


def test_a_repeated_module_is_one_pair_of_sites() -> None:
    model = lift(Repeated())
    assert {site.names for site in model.layout.sites if "out" not in site.name} == {
        ("first.weight", "second.weight"),
        ("first.bias", "second.bias"),
    }


def test_the_network_itself_may_be_a_single_layer() -> None:
    model = lift(nn.Linear(4, 3), estimator="local_reparameterization")
    assert set(model.layout.slices) == {"weight", "bias"}
    train(model, torch.randn(5, 4))
