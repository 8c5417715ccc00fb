"""Selection of Bayesian parameters, and the fans of each layer type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import NetworkError, SettingError
from bayeswell.nn import select
from networks import Normalized, Repeated, Tied

ALL = ["convolution.weight", "convolution.bias", "out.weight", "out.bias"]
NORMS = [f"{layer}_norm.{part}" for layer in ("batch", "group", "layer") for part in ("weight", "bias")]
WHERE: dict[str, tuple[Any, list[str]]] = {
    "all": ("all", ALL),
    "last layer": ("last_layer", ["out.weight", "out.bias"]),
    "a parameter": ("out.bias", ["out.bias"]),
    "a module": ("convolution", ["convolution.weight", "convolution.bias"]),
    "a pattern": ("*.weight", [name for name in [*ALL, *NORMS] if name.endswith("weight")]),
    "patterns": (["conv*", "out.weight"], ["convolution.weight", "convolution.bias", "out.weight"]),
    "a type": (nn.Linear, ["out.weight", "out.bias"]),
    "types": ((nn.Linear, nn.LayerNorm), ["layer_norm.weight", "layer_norm.bias", *ALL[2:]]),
    "a function": (lambda name, module, parameter: parameter.dim() > 1, ["convolution.weight", "out.weight"]),
}


def names(net: nn.Module, where: Any) -> set[str]:
    return set(select(net, where).layout.slices)


@pytest.mark.parametrize("form", WHERE)
def test_where(form: str) -> None:
    where, chosen = WHERE[form]
    selection = select(Normalized(), where)
    assert set(selection.layout.slices) == set(chosen)
    assert set(selection.deterministic) == set(ALL + NORMS) - set(chosen)


def test_last_layer_skips_frozen_and_normalization_layers() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert names(net, "last_layer") == {"1.weight", "1.bias"}
    net[1].requires_grad_(False)
    assert names(net, "last_layer") == {"0.weight", "0.bias"}


def test_shared_parameters_are_one_site_with_all_names() -> None:
    for where in ("decoder", "embedding", "decoder.weight"):
        assert ("embedding.weight", "decoder.weight") in {site.names for site in select(Tied(), where).layout.sites}
    sites = {site.names for site in select(Repeated(), "all").layout.sites}
    assert {("first.weight", "second.weight"), ("first.bias", "second.bias")} < sites


def test_reasons_of_deterministic_parameters() -> None:
    net = Normalized()
    net.out.bias.requires_grad_(False)
    net.register_parameter("empty", nn.Parameter(torch.zeros(0, 3)))
    net.register_parameter("phase", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    reasons = select(net, "all").deterministic
    assert reasons["out.bias"] == "frozen (requires_grad=False)"
    assert reasons["batch_norm.weight"].startswith("normalization layer")
    assert reasons["empty"] == "empty"
    assert reasons["phase"].startswith("not a real floating-point")
    assert select(net, "out", "frozen").deterministic["convolution.weight"] == "not chosen by `where`, frozen"


class Adapted(nn.Module):
    """A linear layer with an adapter named as in peft, a DoRA magnitude and a saved head."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 4).requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(6, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 4, bias=False)})
        self.lora_embedding_A = nn.ParameterDict({"default": nn.Parameter(torch.randn(2, 50))})
        self.lora_magnitude_vector = nn.ParameterDict({"default": nn.Parameter(torch.ones(4))})
        self.head = nn.ModuleDict({"modules_to_save": nn.Linear(4, 3)})


def test_lora_takes_the_adapters() -> None:
    selection = select(Adapted(), "lora")
    fans = {site.name: (site.fan_in, site.fan_out) for site in selection.layout.sites}
    assert fans == {
        "lora_A.default.weight": (6, 2),
        "lora_B.default.weight": (2, 4),
        "lora_embedding_A.default": (1, 2),
    }
    assert "DoRA" in selection.deterministic["lora_magnitude_vector.default"]
    assert "modules_to_save" in selection.deterministic["head.modules_to_save.weight"]
    assert selection.deterministic["base.weight"] == "frozen (requires_grad=False)"


FANS: dict[str, tuple[nn.Module, dict[str, tuple[int, int, int]]]] = {
    "linear": (nn.Linear(5, 7), {"weight": (5, 7, 0), "bias": (5, 7, 0)}),
    "convolution": (nn.Conv2d(4, 6, (3, 2), groups=2), {"weight": (12, 18, 0), "bias": (12, 18, 0)}),
    "transposed": (nn.ConvTranspose2d(4, 6, (3, 2), groups=2), {"weight": (12, 18, 1), "bias": (12, 18, 0)}),
    "lstm": (
        nn.LSTM(3, 5),
        {"weight_ih_l0": (3, 20, 0), "weight_hh_l0": (5, 20, 0), "bias_ih_l0": (3, 20, 0), "bias_hh_l0": (5, 20, 0)},
    ),
    "embedding": (nn.Embedding(11, 4), {"weight": (1, 4, 0)}),
    "attention": (
        nn.MultiheadAttention(6, 2),
        {"in_proj_weight": (6, 18, 0), "in_proj_bias": (6, 18, 0), "out_proj.weight": (6, 6, 0)},
    ),
    "bilinear": (nn.Bilinear(3, 4, 2), {"weight": (12, 2, 0), "bias": (12, 2, 0)}),
}


@pytest.mark.parametrize("layer", FANS)
def test_fans(layer: str) -> None:
    net, fans = FANS[layer]
    found = {site.name: (site.fan_in, site.fan_out, site.output_dim) for site in select(net, "all").layout.sites}
    assert {name: found[name] for name in fans} == fans


@pytest.mark.parametrize("layer", ["linear", "convolution", "transposed"])
def test_fan_in_counts_the_inputs_of_an_output(layer: str) -> None:
    """Far from the border, an output of a layer of ones fed by ones is the number of its inputs."""
    net = FANS[layer][0]
    nn.init.ones_(net.weight)
    nn.init.zeros_(net.bias)
    outputs = net(torch.ones(1, 5) if layer == "linear" else torch.ones(1, 4, 9, 9))
    assert float(outputs.detach().max()) == select(net, "all").layout.sites[0].fan_in


def test_site_matrices_have_one_row_an_output_unit() -> None:
    net = nn.ConvTranspose2d(4, 6, (3, 2))
    site = select(net, "all").layout.sites[0]
    matrix = site.to_matrix(net.weight)
    assert matrix.shape == site.matrix_shape == (6, 24)
    assert torch.equal(matrix[2], net.weight[:, 2].flatten())
    assert torch.equal(site.from_matrix(matrix), net.weight)


@pytest.mark.parametrize(
    ("net", "where", "error", "message"),
    [
        (nn.ReLU(), "all", NetworkError, "no parameters"),
        (nn.Linear(2, 2), "wieght", SettingError, "did you mean 'weight'"),
        (nn.Linear(2, 2), 3, SettingError, "allowed"),
        (nn.Linear(2, 2), "lora", SettingError, "no adapters"),
        (nn.Linear(2, 2), lambda *_: False, SettingError, "matches no parameter"),
        (nn.LazyLinear(3), "all", NetworkError, "no shape yet"),
    ],
)
def test_wrong_choices_are_refused(net: nn.Module, where: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        select(net, where)


def test_function_gets_name_module_and_parameter() -> None:
    net = Normalized()
    seen: list[tuple[str, nn.Module, Tensor]] = []
    select(net, lambda *arguments: seen.append(arguments) is None)
    for name, module, parameter in seen:
        assert parameter is net.get_parameter(name)
        assert module is net.get_submodule(name.rpartition(".")[0])
