"""The zoo has the papers' sizes and shapes, and refuses what does not fit."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.models import ACTIVATIONS, MODELS, LeNet5, build_model, default_model
from models.zoo import CIFAR, CLASSES, IMAGENET, MNIST, SIZES, SMALL, Size, batch, on_meta, small

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def counts(net: nn.Module) -> tuple[int, int]:
    """Parameters in all, and without those of batch normalisation."""
    norms = sum(p.numel() for m in net.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False))
    total = sum(p.numel() for p in net.parameters())
    return total, total - norms


def has_norms(net: nn.Module) -> bool:
    return any(isinstance(module, NORMS) for module in net.modules())


def gradient_shares(net: nn.Module, outputs: Tensor) -> dict[str, float]:
    """The largest entry of each parameter's gradient, relative to the largest of all."""
    parameters = dict(net.named_parameters())
    gradients = torch.autograd.grad(outputs.square().sum(), list(parameters.values()))
    sizes = {key: float(gradient.abs().max()) for key, gradient in zip(parameters, gradients, strict=True)}
    return {key: size / max(sizes.values()) for key, size in sizes.items()}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.name}-{size.shape}")
def test_parameter_count(size: Size) -> None:
    net = on_meta(size.name, size.shape, size.outputs, size.vocabulary)
    assert counts(net) == (size.parameters, size.without_norm)


def test_every_model_is_counted_and_has_a_small_form() -> None:
    assert {size.name for size in SIZES} == set(MODELS) == set(SMALL)


def test_parameters_of_preresnet164_by_its_definition() -> None:
    """He et al. 2016b: 18 bottlenecks a stage of 16, 32, 64 channels, times 4 outside."""
    total, channels = 3 * 16 * 9, 16
    for width in (16, 32, 64):
        for block in range(18):
            total += 2 * channels + channels * width + 2 * width + 9 * width * width + 2 * width + 4 * width * width
            total += channels * 4 * width if block == 0 else 0
            channels = 4 * width
    total += 2 * channels + channels * 10 + 10
    assert counts(on_meta("preresnet164", CIFAR, 10))[0] == total
    assert round(total / 1e6, 1) == 1.7


@pytest.mark.parametrize(
    ("name", "width", "shape", "map_shape"),
    [
        ("lenet5", 6, MNIST, (16, 5, 5)),
        ("lenet5", 6, CIFAR, (16, 5, 5)),
        ("lenet_wide", 32, CIFAR, (64, 8, 8)),
        ("lenet_hwa", 6, MNIST, (120, 7, 7)),
        ("vgg", 2, CIFAR, (16, 1, 1)),
        ("resnet10", 2, CIFAR, (16, 4, 4)),
        ("resnet18", 2, CIFAR, (16, 4, 4)),
        ("resnet_tfp", 2, CIFAR, (16, 4, 4)),
        ("preact_resnet18", 2, CIFAR, (16, 4, 4)),
        ("preresnet164", 1, CIFAR, (16, 8, 8)),
        ("wide_resnet28_10", 2, CIFAR, (8, 8, 8)),
        ("densenet161", 1, IMAGENET, (46, 7, 7)),
        ("resnet152", 1, IMAGENET, (32, 7, 7)),
    ],
)
def test_shape_of_the_last_feature_map(
    name: str, width: int, shape: tuple[int, ...], map_shape: tuple[int, ...]
) -> None:
    """What comes into the mean over the image, or else into the flattening: the papers' strides and poolings."""
    net = build_model({"name": name, "width": width}, shape, 10).eval()
    kind = nn.AdaptiveAvgPool2d if any(isinstance(m, nn.AdaptiveAvgPool2d) for m in net.modules()) else nn.Flatten
    seen: list[tuple[int, ...]] = []
    for module in net.modules():
        if isinstance(module, kind):
            module.register_forward_pre_hook(lambda _, inputs: seen.append(tuple(inputs[0].shape[1:])))
    with torch.no_grad():
        outputs = net(torch.zeros(1, *shape))
    assert seen == [map_shape]
    assert outputs.shape == (1, 10)


@pytest.mark.parametrize("name", SMALL)
def test_outputs_depend_on_inputs_and_on_every_parameter(name: str) -> None:
    net, inputs = small(name).double(), batch(name)
    outputs = net(inputs if name == "lstm" else inputs.double())
    assert outputs.shape == (len(inputs), CLASSES)
    shares = gradient_shares(net, outputs)
    # Every convolution of a network with batch normalisation is followed by a norm, at once or behind a sum. It takes
    # away the constant that a bias adds: the gradient is zero but for rounding, which may be anything or nothing.
    # (Rounding is below 1e-15 of the largest gradient here, and the smallest true gradient above 1e-6 of it.)
    taken_away = {
        f"{key}.bias"
        for key, module in net.named_modules()
        if isinstance(module, nn.Conv2d) and module.bias is not None and has_norms(net)
    }
    assert {key for key, share in shares.items() if share <= 1e-12} == taken_away
    if taken_away:  # with the running statistics of evaluation they count
        shares = gradient_shares(net.eval(), net(inputs.double()))
        assert min(shares[key] for key in taken_away) > 1e-9
    assert float(outputs.detach().std(0).min()) > 0


@pytest.mark.parametrize("name", [name for name in SMALL if "activation" in MODELS[name].__dataclass_fields__])
def test_activation_is_used_everywhere(name: str) -> None:
    net = small(name, activation="silu")
    kinds = {type(module) for module in net.modules() if isinstance(module, tuple(ACTIVATIONS.values()))}
    assert kinds == {nn.SiLU}


@pytest.mark.parametrize("name", [name for name in SMALL if "pooling" in MODELS[name].__dataclass_fields__])
def test_average_pooling_is_used_everywhere_and_changes_no_size(name: str) -> None:
    largest, average = small(name), small(name, pooling="average")
    pools = {type(module) for module in average.modules() if "Pool" in type(module).__name__}
    assert pools == {nn.AvgPool2d}
    assert [tuple(one.shape) for one in average.parameters()] == [tuple(one.shape) for one in largest.parameters()]
    # The two differ where the four pixels of a window do.
    average.load_state_dict(largest.state_dict())
    inputs = batch(name)
    assert not torch.allclose(average.eval()(inputs), largest.eval()(inputs), rtol=1e-3)


@pytest.mark.parametrize("name", ["cnn", "lenet5", "lenet_wide", "lenet_hwa", "vgg"])
def test_softplus_and_average_pooling_please_variational_laplace(name: str) -> None:
    estimator = bw.ESTIMATORS.resolve("variational_laplace")
    assert estimator.cautions(small(name, activation="softplus", pooling="average")) == []
    assert "MaxPool2d" in estimator.cautions(small(name, activation="softplus"))[0]


def test_default_activations() -> None:
    assert any(isinstance(module, nn.Softplus) for module in on_meta("preact_resnet18", CIFAR, 10).modules())
    assert any(isinstance(module, nn.ReLU) for module in on_meta("resnet18", CIFAR, 10).modules())


def test_width_and_depth() -> None:
    narrow = on_meta({"name": "resnet18", "width": 8}, CIFAR, 10)
    # From the full count: norms scale by 8, the first convolution and the last layer by 8, all other layers by 64.
    inner = 11_164_362 - 3 * 9 * 64 - 513 * 10
    assert counts(narrow) == (inner // 64 + 3 * 9 * 8 + 65 * 10 + 9600 // 8, inner // 64 + 3 * 9 * 8 + 65 * 10)
    assert counts(on_meta({"name": "mlp", "hidden": [3]}, (4,), 2))[0] == 4 * 3 + 3 + 3 * 2 + 2
    assert counts(on_meta({"name": "mlp", "hidden": ()}, (2, 2), 2))[0] == 4 * 2 + 2
    shallow = on_meta({"name": "wide_resnet28_10", "width": 16, "depth": 16}, CIFAR, 10)
    assert counts(shallow)[0] == 175_066  # the known 0.17 M of WRN-16-1


def test_padding_of_lenet5_is_of_zeros_around_the_image() -> None:
    net = build_model("lenet5", (1, 28, 27), 10)
    padded = net.get_submodule("pad")(torch.ones(1, 1, 28, 27))
    assert padded.shape == (1, 1, 32, 32)
    assert float(padded[0, 0, 2:30, 2:29].sum()) == padded.sum() == 28 * 27
    assert isinstance(build_model("lenet5", CIFAR, 10).get_submodule("pad"), nn.Identity)


def test_preactivated_and_residual_blocks_by_hand() -> None:
    """With the second convolution at zero a block is its shortcut; a fresh norm divides by sqrt(1 + eps)."""
    x = torch.randn(2, 2, 4, 4, generator=torch.Generator().manual_seed(3))
    pre = small("preact_resnet18").get_submodule("body.0.0").eval()
    post = small("resnet18").get_submodule("body.0.0").eval()
    with torch.no_grad():
        pre.get_submodule("body.second").weight.zero_()
        post.get_submodule("body.second.conv").weight.zero_()
        torch.testing.assert_close(pre(x), x)
        torch.testing.assert_close(post(x), x.relu())
        halving = small("preact_resnet18").get_submodule("body.1.0").eval()
        halving.get_submodule("body.second").weight.zero_()
        before = torch.nn.functional.softplus(x / math.sqrt(1 + 1e-5))
        expected = nn.functional.conv2d(before, halving.get_submodule("projection").weight, stride=2)
        torch.testing.assert_close(halving(x), expected)


def test_dense_layers_keep_what_came_before() -> None:
    layer = small("densenet161").get_submodule("block1.0").eval()
    x = torch.randn(2, 4, 4, 4)
    outputs: Tensor = layer(x)
    assert outputs.shape == (2, 6, 4, 4)
    assert torch.equal(outputs[:, :4], x)


def test_lstm_reads_the_last_state() -> None:
    net = small("lstm").eval()
    tokens = batch("lstm")
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    assert not torch.allclose(net(tokens), net(changed))
    _, (last, _) = net.get_submodule("lstm")(net.get_submodule("embedding")(tokens))
    torch.testing.assert_close(net(tokens), net.get_submodule("dense")(last[0]))


@pytest.mark.parametrize(
    ("shape", "vocabulary", "name"),
    [
        ((1, 8, 8), None, "cnn"),
        ((3, 27, 40), None, "cnn"),
        ((1, 28, 28), None, "lenet5"),
        ((3, 32, 32), None, "lenet5"),
        ((13,), None, "small_mlp"),
        ((3, 2, 9), None, "small_mlp"),
        ((80,), 20_000, "lstm"),
    ],
)
def test_default_model_fits(shape: tuple[int, ...], vocabulary: int | None, name: str) -> None:
    assert default_model(shape, vocabulary) == name
    on_meta(name, shape, 2, vocabulary)


@pytest.mark.parametrize(
    ("choice", "shape", "vocabulary", "message"),
    [
        ("lenet_5", MNIST, None, "unknown model 'lenet_5'; did you mean 'lenet5'"),
        ("lenet5", (784,), None, r"lenet5: the input shape is \(784,\); it takes images .* at least 16"),
        ("lenet5", (1, 8, 8), None, r"\(1, 8, 8\)"),
        ("resnet152", CIFAR[:2], None, "images"),
        ("resnet18", (3, 7, 32), None, "at least 8"),
        ("densenet161", (3, 31, 64), None, "at least 32"),
        ("mlp", (), None, "the input shape is ()"),
        ("mlp", (3, 0), None, r"the input shape is \(3, 0\)"),
        ("mlp", 784, None, "the input shape is 784"),
        ("mlp", (80,), 50, "tokens .*use 'lstm'"),
        ("lstm", (80,), None, "vocabulary"),
        ("lstm", (8, 8), 50, r"\(8, 8\)"),
        ("lstm", (8,), 0, "vocabulary = 0"),
        ({"name": "resnet18", "width": 0}, CIFAR, None, "width = 0"),
        ({"name": "resnet18", "width": 2.5}, CIFAR, None, "width = 2.5"),
        ({"name": "resnet18", "widht": 2}, CIFAR, None, "did you mean 'width'"),
        ({"name": "vgg", "activation": "rleu"}, CIFAR, None, "did you mean 'relu'"),
        ({"name": "lenet5", "pooling": "mean"}, CIFAR, None, "pooling = 'mean'; .*allowed: average, max"),
        ({"name": "lenet5", "pooling": ["max"]}, CIFAR, None, "pooling = "),
        ({"name": "resnet18", "stem": "smal"}, CIFAR, None, "did you mean 'small'"),
        ({"name": "preresnet164", "depth": 30}, CIFAR, None, r"depth = 30; it must be 9 n \+ 2: 11, 20, 29"),
        ({"name": "preresnet164", "depth": 9 * 10**9 + 2}, CIFAR, None, "at most 2000"),
        ({"name": "wide_resnet28_10", "depth": 4}, CIFAR, None, r"6 n \+ 4"),
        ({"name": "wide_resnet28_10", "dropout": 1.0}, CIFAR, None, "dropout = 1"),
        ({"name": "mlp", "hidden": (3, 0)}, (4,), None, "hidden = 0"),
        ({"name": "mlp", "hidden": 50}, (4,), None, "hidden = 50"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_in_one_line(choice: Any, shape: Any, vocabulary: Any, message: str) -> None:
    with pytest.raises((bw.NetworkError, bw.SettingError), match=message) as caught:
        build_model(choice, shape, 10, vocabulary=vocabulary)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("outputs", [0, 2.0, True])
def test_outputs_are_a_count(outputs: Any) -> None:
    for name, (settings, shape) in SMALL.items():
        with pytest.raises(bw.SettingError, match="outputs = "):
            build_model({"name": name, **settings}, shape, outputs, vocabulary=7 if name == "lstm" else None)


def test_every_model_says_what_it_is() -> None:
    for summary, paper in MODELS.summaries().values():
        assert summary.endswith(".")
        assert re.search(r"\d{4}|HWA", paper)
    assert bw.MODELS.resolve(LeNet5(width=3)).build(MNIST, 10) is not None


def test_the_page_has_every_model_with_its_size() -> None:
    """The table of docs/models.md: name, input, outputs and the number of parameters."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    found = set()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[0].startswith("`"):
            shape = tuple(int(side) for side in cells[2].split("x"))
            found.add((cells[0].strip("`"), shape, int(cells[3]), int(cells[4].replace(",", ""))))
            summary, paper = MODELS.summaries()[cells[0].strip("`")]
            assert cells[1].strip(".") == summary.strip(".")
            assert cells[6] == paper
    assert found == {(size.name, size.shape, size.outputs, size.parameters) for size in SIZES}


@pytest.mark.parametrize(
    ("size", "tie", "counted"),
    [
        (SIZES[0], "*", {1: 481_614, 2: 484_008, 3: 486_402}),
        (SIZES[5], "dense*", {1: 2_262_188, 2: 2_267_408, 3: 2_272_628}),
    ],
    ids=["mlp", "lenet_wide"],
)
def test_parameter_counts_of_the_k_tied_paper(size: Size, tie: str, counted: dict[int, int]) -> None:
    """Its figure 6, with means and stds: the zoo's layers have the names that ``tie`` needs."""
    net = build_model(size.name, size.shape, size.outputs)
    for rank, count in counted.items():
        model = bw.bayesian(net, bw.KTied(rank, tie=tie))
        assert sum(p.numel() for p in model.parameters()) == count
