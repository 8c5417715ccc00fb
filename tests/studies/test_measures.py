"""Spectra, truncation, landscapes, corruptions and networks against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from studies.corruptions import FAMILIES, corrupted
from studies.figures import FIGURES
from studies.measures import (
    SHAPES,
    centered,
    explained_variance,
    filter_normalized,
    heat_maps,
    loss_line,
    loss_plane,
    rank_k,
    robust_region,
    spectra,
    stand_in,
    truncated,
)
from torch import nn

import bayeswell as bw
from bayeswell.lab.models.build import build_model
from bayeswell.methods import find_method
from bayeswell.posteriors import set_std
from bayeswell.prediction import Predictor
from studies import figures, networks


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = bw.bayesian(nn.Linear(6, 4), prior={"name": "normal", "std": 1.0})
    std = torch.rand(made.layout.size) + 0.1
    set_std(made.posterior, std)
    return made


def test_explained_variance_of_a_diagonal():
    matrix = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    assert explained_variance(matrix).tolist() == pytest.approx([9 / 14, 4 / 14, 1 / 14])
    assert explained_variance(torch.full((3, 4), 0.2)).tolist() == pytest.approx([1, 0, 0], abs=1e-12)


def test_centered_equal_numbers_are_zero():
    assert not centered(torch.full((3, 3), 0.1)).any()


def test_rank_k_keeps_a_matrix_of_that_rank():
    a, b = torch.rand(5, 2, dtype=torch.float64) + 0.1, torch.rand(2, 7, dtype=torch.float64) + 0.1
    assert torch.allclose(rank_k(a @ b, 2), a @ b)


def test_rank_k_error_is_that_of_the_other_singular_values():
    matrix = torch.rand(6, 5, dtype=torch.float64) + 1
    values = torch.linalg.svdvals(matrix)
    assert float((rank_k(matrix, 2) - matrix).norm()) == pytest.approx(float(values[2:].norm()))


def test_truncated_changes_matrices_alone(model):
    cut = truncated(model, 1)
    before, after = model.posterior.std(), cut.posterior.std()
    weights, biases = model.layout.slices["weight"], model.layout.slices["bias"]
    expected = rank_k(before[weights].detach().double().view(4, 6), 1)
    assert torch.allclose(after[weights].view(4, 6).double(), expected, rtol=1e-5)
    assert torch.allclose(after[biases], before[biases], rtol=1e-5)
    assert torch.equal(cut.posterior.mean, model.posterior.mean)


def test_spectra_and_heat_maps_of_a_layer(model):
    assert list(spectra(model)) == ["weight"]
    assert float(spectra(model)["weight"]["means"].sum()) == pytest.approx(1)
    assert list(heat_maps(model, "weight", (1, 2))) == ["full", "rank 1", "rank 2"]


def test_filter_normalized_directions(model):
    center = torch.arange(1.0, model.layout.size + 1)
    direction = filter_normalized(model.layout, center, torch.Generator().manual_seed(0))
    own, found = (vector[model.layout.slices["weight"]].view(4, 6).norm(dim=1) for vector in (center, direction))
    assert torch.allclose(own, found)
    assert not direction[model.layout.slices["bias"]].any()


def test_loss_line_of_a_linear_model_is_quadratic(model):
    inputs, targets = torch.randn(30, 6), torch.randn(30, 4)
    likelihood = bw.Gaussian(std=0.5)
    _, losses = loss_line(Predictor(model, likelihood), inputs, targets, points=5)
    second = losses.diff().diff()
    assert torch.allclose(second, second[0].expand(3), rtol=1e-3)
    with torch.no_grad():
        outputs = torch.func.functional_call(model.net, model.layout.unflatten(model.posterior.mean), (inputs,))
    truth = -torch.distributions.Normal(outputs, 0.5).log_prob(targets).sum(1).mean()
    assert float(losses[2]) == pytest.approx(float(truth), rel=1e-5)
    assert loss_plane(Predictor(model, likelihood), inputs, targets, points=3)[1].shape == (3, 3)


def test_robust_region_has_spectral_radius_root_momentum():
    momentum, curvature = 0.81, 2.0
    low, high = robust_region(momentum, curvature, curvature)
    for rate in (low, 0.5 * (low + high), high):
        operator = torch.tensor([[1 + momentum - rate * curvature, -momentum], [1.0, 0.0]], dtype=torch.float64)
        assert float(torch.linalg.eigvals(operator).abs().max()) == pytest.approx(math.sqrt(momentum), rel=1e-5)


@pytest.mark.parametrize("name", [name for names in FAMILIES.values() for name in names])
def test_corruptions_stay_in_range_and_worsen(name):
    images = torch.rand(8, 3, 16, 16)
    away = [float((corrupted(images, name, severity) - images).abs().mean()) for severity in (1, 5)]
    assert 0 < away[0] < away[1]
    found = corrupted(images, name, 3)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert torch.equal(found, corrupted(images, name, 3))


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("lenet_hwa", (1, 28, 28), 545_546),
        ("lenet_wide", (3, 32, 32), 32 * 76 + 64 * 801 + 512 * 4097 + 10 * 513),
        ("resnet_tfp", (3, 32, 32), 4_904_522),
        ("vgg", (3, 32, 32), 9_410_122),
    ],
)
def test_networks_have_the_sizes_of_the_papers(name, shape, count):
    """Numbers of weights without BatchNorm, for ten classes."""
    net = getattr(networks, name)(shape, 10)
    norms = {id(p) for module in net.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()}
    found = sum(p.numel() for p in net.parameters() if id(p) not in norms)
    assert found == count


@pytest.mark.parametrize("name", ["preact_resnet18", "preresnet164", "wide_resnet28_10", "resnet10", "densenet161"])
def test_large_networks_run_at_small_width(name):
    small = {"preresnet164": {"blocks": 1}, "wide_resnet28_10": {"blocks": 1}, "densenet161": {"counts": (1, 1, 1, 1)}}
    net = getattr(networks, name)((3, 32, 32), 7, width=4, **small.get(name, {}))
    assert net(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_k_tied_counts_of_the_lstm():
    """Table 1 and Figure 6 of Swiatkowski et al. 2020: 2,823 and 2,694 thousand numbers."""
    data = stand_in("imdb", 4)
    net = build_model(networks.recurrent, data, likelihood="bernoulli")
    weights = sum(p.numel() for n, p in net.named_parameters() if n.startswith("lstm.weight"))
    others = sum(p.numel() for n, p in net.named_parameters() if p.requires_grad and not n.startswith("lstm.weight"))
    assert 2 * weights + others == 2_822_785
    assert weights + others + 2 * 2 * (512 + 128) == 2_694_273


def test_stand_ins_have_the_shapes_of_data():
    for name, (shape, classes, _) in SHAPES.items():
        data = stand_in(name, 8)
        assert (data.input_shape, data.outputs) == (shape, classes)


def test_every_figure_has_its_function():
    assert all(callable(getattr(figures, name)) for name in FIGURES.values())
    assert find_method("f-swag").sharpness is not None
