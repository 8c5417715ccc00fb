"""A network as plain data and back; nothing but networks comes out of data."""

from __future__ import annotations

import copy
import json
import random
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import bayeswell as bw
from bayeswell.models import build_model, build_network, describe_network
from models.zoo import SIZES, SMALL, Size, batch, on_meta, small


def again(net: nn.Module) -> nn.Module:
    """Through JSON text and back, with the same tensors."""
    description = describe_network(net)
    assert description is not None
    assert set(description) == {"dtype", "root"}
    rebuilt = build_network(json.loads(json.dumps(description)))
    rebuilt.load_state_dict(net.state_dict())
    return rebuilt


def assert_same_function(net: nn.Module, inputs: Tensor) -> None:
    """Bitwise, in evaluation, and in training from the same random numbers."""
    rebuilt = again(net)
    for mode in (False, True):
        outputs = []
        for one in (net.train(mode), rebuilt.train(mode)):
            torch.manual_seed(5)
            outputs.append((copy.deepcopy(one) if mode else one)(inputs))  # training moves running statistics
        assert torch.equal(*outputs)


@pytest.mark.parametrize("name", [name for name in SMALL if name not in ("densenet161", "resnet152")])
def test_zoo_comes_back(name: str) -> None:
    net = small(name)
    assert_same_function(net, batch(name))


@pytest.mark.parametrize("size", SIZES[::4], ids=lambda size: f"{size.name}-{size.shape}")
def test_zoo_at_full_size_is_described(size: Size) -> None:
    description = describe_network(on_meta(size.name, size.shape, size.outputs, size.vocabulary))
    assert description is not None
    assert set(description["root"]) == {"built_from"}


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), (2, 4)),
    "linear without bias": (nn.Linear(4, 3, bias=False), (2, 4)),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding="valid", dilation=2, groups=2, bias=False), (2, 4, 9)),
    "conv2d": (nn.Conv2d(2, 4, (3, 1), padding=(1, 0), padding_mode="circular"), (2, 2, 5, 5)),
    "conv2d same": (nn.Conv2d(2, 4, 3, padding="same"), (2, 2, 5, 5)),
    "conv3d": (nn.Conv3d(1, 2, 2), (2, 1, 3, 3, 3)),
    "transposed": (nn.ConvTranspose2d(2, 4, 3, 2, 1, output_padding=1, groups=2, dilation=2), (2, 2, 5, 5)),
    "batchnorm": (nn.BatchNorm2d(3, eps=1e-3, momentum=None), (4, 3, 2, 2)),
    "batchnorm without all": (nn.BatchNorm1d(3, affine=False, track_running_stats=False), (4, 3)),
    "instancenorm": (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 5)),
    "layernorm": (nn.LayerNorm((3, 4), eps=1e-4, bias=False), (2, 3, 4)),
    "layernorm plain": (nn.LayerNorm(4, elementwise_affine=False), (2, 3, 4)),
    "groupnorm": (nn.GroupNorm(2, 4, affine=False), (2, 4, 3)),
    "rmsnorm": (nn.RMSNorm(4), (2, 4)),
    "response norm": (nn.LocalResponseNorm(3, k=2.0), (2, 4, 3)),
    "prelu": (nn.PReLU(4, init=0.1), (2, 4)),
    "softplus": (nn.Softplus(2.0, 11.0), (2, 4)),
    "hardtanh": (nn.Hardtanh(-0.3, 0.4), (2, 4)),
    "gelu": (nn.GELU("tanh"), (2, 4)),
    "glu": (nn.GLU(1), (2, 4)),
    "softmax": (nn.Softmax(dim=1), (2, 4)),
    "threshold": (nn.Threshold(0.1, -2.0), (2, 4)),
    "maxpool": (nn.MaxPool2d(3, stride=(2, 1), padding=1, ceil_mode=True), (2, 1, 6, 6)),
    "avgpool": (nn.AvgPool2d([2, 3], count_include_pad=False, divisor_override=5), (2, 1, 6, 6)),
    "lppool": (nn.LPPool1d(2.0, 2), (2, 1, 6)),
    "adaptive": (nn.AdaptiveAvgPool2d((None, 2)), (2, 1, 6, 6)),
    "flatten": (nn.Flatten(0, 1), (2, 3, 4)),
    "unflatten": (nn.Unflatten(1, (2, 2)), (2, 4)),
    "identity": (nn.Identity(3, what=4), (2, 4)),
    "padding": (nn.ConstantPad2d((1, 0, 2, 1), 0.7), (2, 1, 3, 3)),
    "reflection": (nn.ReflectionPad1d(2), (2, 1, 4)),
    "upsample": (nn.Upsample(scale_factor=(2.0, 1.0), mode="bilinear", align_corners=True), (2, 1, 3, 3)),
    "shuffle": (nn.PixelShuffle(2), (2, 4, 3, 3)),
    "unfold": (nn.Unfold(2, stride=2), (2, 1, 4, 4)),
    "dropout": (nn.Dropout(0.3), (2, 9)),
    "dropout2d": (nn.Dropout2d(0.3, inplace=False), (2, 9, 2, 2)),
    "alpha dropout": (nn.AlphaDropout(0.3), (2, 9)),
    "encoder": (nn.TransformerEncoderLayer(4, 2, 6, 0.2, "gelu", 1e-4, True, True, False), (2, 3, 4)),
    "encoder, defaults": (nn.TransformerEncoderLayer(4, 2, 6), (2, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_come_back(name: str) -> None:
    layer, shape = LAYERS[name]
    assert_same_function(layer, torch.randn(shape, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(4, 5, 2, bias=False, batch_first=True, dropout=0.2, bidirectional=True),
        nn.GRU(4, 5, 2, bidirectional=True),
        nn.RNN(4, 5, nonlinearity="relu"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_recurrent_layers_come_back(layer: nn.Module) -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(layer.eval()(x)[0], again(layer).eval()(x)[0])


def test_projected_lstm_comes_back() -> None:
    rebuilt = again(nn.LSTM(4, 5, proj_size=3))
    assert rebuilt.proj_size == 3
    assert rebuilt.get_parameter("weight_hr_l0").shape == (3, 5)


def test_attention_and_embeddings_come_back() -> None:
    attention = nn.MultiheadAttention(4, 2, bias=False, add_bias_kv=True, add_zero_attn=True, kdim=3, vdim=5)
    q, k, v = (torch.randn(2, 3, n, generator=torch.Generator().manual_seed(n)) for n in (4, 3, 5))
    assert torch.equal(attention.eval()(q, k, v)[0], again(attention).eval()(q, k, v)[0])
    assert_same_function(nn.Embedding(7, 3, padding_idx=2, max_norm=0.5, norm_type=1.0), torch.arange(7))
    bag = nn.EmbeddingBag(7, 3, mode="max")
    assert_same_function(bag, torch.arange(6).reshape(2, 3))


def random_network(generator: random.Random, features: int, depth: int) -> tuple[nn.Module, int]:
    """A nest of Sequentials, with the features that come out."""
    made: list[nn.Module] = []
    for _ in range(generator.randint(1, 4)):
        kind = generator.choice(["linear", "norm", "act", "dropout", "nest", "nothing", "layernorm"])
        if kind == "nest" and depth:
            inner, features = random_network(generator, features, depth - 1)
            made.append(inner)
        elif kind == "linear":
            out = generator.randint(1, 6)
            made.append(nn.Linear(features, out, bias=generator.random() < 0.5))
            features = out
        else:
            made.append(
                {
                    "norm": nn.BatchNorm1d(features, eps=generator.random()),
                    "layernorm": nn.LayerNorm(features, elementwise_affine=generator.random() < 0.5),
                    "act": generator.choice([nn.Tanh(), nn.ELU(generator.random()), nn.LeakyReLU(0.3)]),
                    "dropout": nn.Dropout(generator.random() / 2),
                }.get(kind, nn.Identity())
            )
    return nn.Sequential(*made), features


@pytest.mark.parametrize("seed", range(20))
def test_random_nests_come_back(seed: int) -> None:
    generator = random.Random(seed)
    torch.manual_seed(seed)
    net, _ = random_network(generator, 4, 3)
    assert_same_function(net, torch.randn(6, 4))


def test_empty_containers_names_and_shared_modules_come_back() -> None:
    shared = nn.Linear(4, 4)
    net = nn.Sequential(shared, nn.Sequential(), nn.Tanh(), nn.Sequential(shared, nn.Tanh(), shared))
    net.add_module("last", nn.Linear(4, 2))
    rebuilt = again(net)
    assert rebuilt[0] is rebuilt[3][0] is rebuilt[3][2]
    assert len(list(rebuilt.parameters())) == 4
    assert_same_function(net, torch.randn(3, 4))


def test_a_model_of_the_zoo_may_stand_in_a_network_or_be_changed() -> None:
    lifted = nn.Sequential(nn.Upsample(scale_factor=2.0), small("resnet10"), nn.Tanh())
    assert_same_function(lifted, batch("resnet10"))
    plain = small("lenet5")
    plain.add_module("dense3", nn.Linear(28, 7))
    described = describe_network(plain)
    assert described is not None
    assert described["root"]["class"] == "Sequential"
    assert_same_function(plain, batch("lenet5"))
    changed = small("resnet10")
    changed.head = nn.Linear(3, 3)
    assert describe_network(changed) is None  # its blocks are classes of ours, which only the zoo builds


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_comes_back(dtype: torch.dtype) -> None:
    for net in (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), small("cnn")):
        rebuilt = again(net.to(dtype))
        assert {p.dtype for p in rebuilt.parameters()} == {dtype}


def test_neither_describing_nor_building_draws_random_numbers() -> None:
    net = nn.Sequential(small("resnet10"), nn.Linear(3, 3))
    before = torch.get_rng_state()
    build_network(describe_network(net))
    assert torch.equal(before, torch.get_rng_state())


# What cannot be described exactly.


class Own(nn.Module):
    """A class of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


class Linear(nn.Linear):
    """Of the same name as torch's."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def _with_hook() -> nn.Module:
    net = nn.Linear(4, 3)
    net.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return net


def _with_other_forward() -> nn.Module:
    net: Any = nn.Linear(4, 3)
    net.forward = torch.sin
    return nn.Sequential(net)


def _with_a_tensor_more() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3))
    net.register_buffer("more", torch.ones(2))
    return net


def _tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    return net


def _of_two_dtypes() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double())


def _with_other_shape() -> nn.Module:
    net = nn.Linear(4, 3)
    net.weight = nn.Parameter(torch.zeros(5, 4))
    return net


def _infinite() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Hardtanh(0.0, float("inf")))


@pytest.mark.parametrize(
    "make",
    [
        Own, lambda: nn.Sequential(nn.Linear(4, 4), Own()), lambda: Linear(4, 3), _with_hook, _with_other_forward,
        _with_a_tensor_more, _tied, _of_two_dtypes, _with_other_shape, _infinite,
        lambda: parametrizations.weight_norm(nn.Linear(4, 3)),
        lambda: nn.TransformerEncoderLayer(4, 2, 6, activation=torch.tanh),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_not_described(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert describe_network(make()) is None


# What is not a description.


def layer(kind: Any, **settings: Any) -> dict[str, Any]:
    return {"dtype": "float32", "root": {"class": kind, "settings": settings}}


def zoo(
    name: Any = "mlp", shape: Any = None, outputs: Any = 10, vocabulary: Any = None, **settings: Any
) -> dict[str, Any]:
    built = {"model": {"name": name, **settings}, "input_shape": [4] if shape is None else shape, "outputs": outputs}
    return {"dtype": "float32", "root": {"built_from": {**built, "vocabulary": vocabulary}}}


def nest(depth: int) -> dict[str, Any]:
    root: dict[str, Any] = {"class": "Sequential", "children": {}}
    for _ in range(depth):
        root = {"class": "Sequential", "children": {"0": root}}
    return {"dtype": "float32", "root": root}


MALICIOUS: dict[str, Any] = {
    "no mapping": [1],
    "nothing": None,
    "a text": "Linear",
    "no root": {"dtype": "float32"},
    "more than a root": {"dtype": "float32", "root": {}, "code": "1"},
    "dtype": {**layer("Identity"), "dtype": "complex64"},
    "dtype of another kind": {**layer("Identity"), "dtype": ["float32"]},
    "no node": {"dtype": "float32", "root": []},
    "os.system": layer("os.system", command="true"),
    "import": layer("__import__", name="os"),
    "eval": layer("eval"),
    "module": layer("Module"),
    "private": layer("__class__"),
    "a class of torch.nn that is not known": layer("DataParallel"),
    "a module of torch.nn": layer("functional"),
    "class is a list": layer(["Linear"]),
    "class is a number": layer(3),
    "no class": {"dtype": "float32", "root": {}},
    "device": layer("Linear", in_features=2, out_features=2, device="cuda"),
    "a device that there is": layer("Linear", in_features=2, out_features=2, device="cpu"),
    "dtype setting": layer("Linear", in_features=2, out_features=2, dtype="float32"),
    "weight": layer("Embedding", num_embeddings=2, embedding_dim=2, _weight=[1]),
    "unknown setting": layer("Linear", in_features=2, out_features=2, hook="x"),
    "missing setting": layer("Linear", in_features=2),
    "setting of another kind": layer("Linear", in_features="2", out_features=2),
    "setting is a mapping": layer("Linear", in_features={"a": 2}, out_features=2),
    "settings is a list": {"dtype": "float32", "root": {"class": "Linear", "settings": [2, 2]}},
    "negative": layer("Linear", in_features=-2, out_features=2),
    "huge": layer("Linear", in_features=10**6, out_features=10**6),
    "huge beyond 64 bits": layer("Linear", in_features=10**30, out_features=10**30),
    "huge product": layer("Linear", in_features=10**9, out_features=10**9),
    "huge buffers": layer("BatchNorm1d", num_features=10**9, affine=False),
    "many layers": layer("LSTM", input_size=1, hidden_size=1, num_layers=10**9),
    "more layers than anyone has": layer("GRU", input_size=1, hidden_size=1, num_layers=1001),
    "not a number": layer("ELU", alpha=float("nan")),
    "long list": layer("LayerNorm", normalized_shape=[1] * 1000),
    "repeats what is not there": {"dtype": "float32", "root": {"same_as": "0"}},
    "contains itself": {"dtype": "float32", "root": {"class": "Sequential", "children": {"0": {"same_as": ""}}}},
    "child with a dot": {
        "dtype": "float32", "root": {"class": "Sequential", "children": {"a.b": layer("Tanh")["root"]}},
    },
    "child named forward": {
        "dtype": "float32", "root": {"class": "Sequential", "children": {"forward": layer("Tanh")["root"]}},
    },
    "child with lines": {
        "dtype": "float32", "root": {"class": "Sequential", "children": {"a\nb" * 500: layer("Tan")["root"]}},
    },
    "children is a list": {"dtype": "float32", "root": {"class": "Sequential", "children": [1]}},
    "deep nest": nest(5000),
    "zoo: unknown": zoo("os.system"),
    "zoo: name of another kind": zoo(["mlp"]),
    "zoo: no mapping": {"dtype": "float32", "root": {"built_from": "mlp"}},
    "zoo: unknown setting": zoo(code="x"),
    "zoo: huge": zoo("mlp", hidden=[10**6, 10**6]),
    "zoo: huge input": zoo("mlp", [10**9, 10**9]),
    "zoo: deep": zoo("preresnet164", [3, 8, 8], depth=9 * 10**12 + 2),
    "zoo: width of another kind": zoo("cnn", [1, 8, 8], width="3"),
    "zoo: outputs": zoo(outputs=-1),
    "zoo: huge vocabulary": zoo("lstm", [4], vocabulary=10**12),
    "zoo: shape": zoo(shape=["4"]),
    "zoo: long shape": zoo(shape=[1] * 10_000),
    "zoo: long hidden": zoo("mlp", hidden=[1] * 100_000),
    "zoo: shape is a text": zoo(shape="44"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALICIOUS)
def test_what_is_no_description_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(bw.FileError, match="the description of the network cannot be used") as caught:
        build_network(MALICIOUS[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_limit_counts_parameters_and_buffers() -> None:
    description = describe_network(nn.BatchNorm1d(3))
    build_network(description, most=13)
    with pytest.raises(bw.FileError, match="it has 13 parameters and buffers; allowed are 12"):
        build_network(description, most=12)


def test_random_damage_gives_a_network_or_a_file_error() -> None:
    """300 descriptions with one value replaced by another from anywhere."""
    generator = random.Random(7)
    whole = describe_network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), small("mlp"), nn.LSTM(2, 3)))
    values = [None, True, -1, 0, 2.5, 10**20, "x", "Linear", [], [3, 3], {}, {"class": "Tanh", "settings": {}}]
    for _ in range(300):
        damaged = copy.deepcopy(whole)
        place: Any = damaged
        while True:
            key = generator.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], dict | list) or not place[key] or generator.random() < 0.2:
                break
            place = place[key]
        place[key] = generator.choice(values)
        try:
            assert isinstance(build_network(damaged), nn.Module)
        except bw.FileError:
            continue


def test_the_registry_builds_what_build_model_builds() -> None:
    assert type(build_model("mlp", (4,), 2)) is nn.Sequential
