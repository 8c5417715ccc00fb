"""The k-tied Normal: the paper's parameter counts, its start, its symmetry, and what its stds can and cannot be."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell import native
from bayeswell.native import gaussian, library
from linear_models import mean_of, std_of, train_exactly
from truths.arrays import Array
from truths.statistics import assert_mean_close


def parameter_count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# The table of the paper (its figure 6), with the sizes that its numbers imply.


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 32, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5, padding=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            dense1=nn.Linear(4096, 512),
            relu3=nn.ReLU(),
            dense2=nn.Linear(512, 100),
        )
    )


class Sentiment(nn.Module):
    """Embedding and LSTM as in Keras' old IMDB example."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20000, 128)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.dense = nn.Linear(128, 1)


@pytest.mark.parametrize(
    ("posterior", "count"),
    [("mean_field", 956_820), (bw.KTied(1), 481_614), (bw.KTied(2), 484_008), (bw.KTied(3), 486_402)],
    ids=str,
)
def test_parameter_count_of_the_mlp(posterior: Any, count: int) -> None:
    assert parameter_count(bw.bayesian(mlp(), posterior)) == count


@pytest.mark.parametrize(("rank", "count"), [(None, 4_405_320), (1, 2_262_188), (2, 2_267_408), (3, 2_272_628)])
def test_parameter_count_of_the_cnn_tied_in_its_dense_layers(rank: int | None, count: int) -> None:
    posterior: Any = "mean_field" if rank is None else bw.KTied(rank, tie="dense*")
    model = bw.bayesian(cnn(), posterior)
    assert parameter_count(model) == count
    if rank is not None:
        rows = {row.name: row.posterior for row in model.describe().rows}
        assert rows["conv1.weight"] == "mean_field (not chosen by tie)"
        assert rows["dense1.weight"] == f"k_tied(rank={rank}, 512x4096)"
        assert rows["dense1.bias"] == "mean_field (not a matrix)"


@pytest.mark.parametrize(("rank", "count"), [(None, 2_822_785), (1, 2_692_993), (2, 2_694_273), (3, 2_695_553)])
def test_parameter_count_of_the_lstm(rank: int | None, count: int) -> None:
    """Kernel and recurrent kernel are Gaussian, all else deterministic.

    torch's LSTM has two bias vectors of 4 x 128 that are only ever added; Keras' has one.
    """
    posterior: Any = "mean_field" if rank is None else bw.KTied(rank)
    model = bw.bayesian(Sentiment(), posterior, where="lstm.weight_*")
    assert parameter_count(model) - 4 * 128 == count


# The start.


@pytest.mark.parametrize(("rank", "spread"), [(1, 0.1), (2, 0.1), (3, 0.5)])
def test_starts_at_the_mean_std_of_mean_field(rank: int, spread: float) -> None:
    """E[std_ij] is the given std for every entry, over 400 starts: rate 1e-6."""
    part = bw.KTied(rank, initial_std=0.23, spread=spread)
    model = bw.bayesian(nn.Linear(4, 3).double(), part, bw.Normal(0.8))
    means = model.posterior.mean_vector().detach()
    # One start is the lifted network's; the others are what lifting it again would build.
    stds = [model.posterior.std_vector()]
    stds += [part.build(model.layout, model.prior, means).std_vector() for _ in range(399)]
    samples = torch.stack(stds).detach()
    assert_mean_close(samples[:, :12], np.full(12, 0.23))
    torch.testing.assert_close(samples[:, 12:], torch.full((400, 3), 0.23, dtype=torch.float64))
    # log-normal factors: the entries' relative scatter is known too.
    relative = math.sqrt((math.exp(2 * spread**2) - 1) / rank)
    assert float(samples[:, :12].std() / 0.23) == pytest.approx(relative, rel=0.15)


def test_without_a_given_std_it_starts_where_mean_field_does() -> None:
    """exp(-3) prior stds, layer by layer, within 5 standard errors of the mean over a layer's factors."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(60, 50), nn.Linear(50, 40))
    tied, free = bw.bayesian(net, bw.KTied(2), "kaiming"), bw.bayesian(net, "mean_field", "kaiming")
    stds = [model.layout.unflatten(model.posterior.std_vector().detach()) for model in (tied, free)]
    for name in ("0.weight", "1.weight"):
        ratio = float(stds[0][name].mean() / stds[1][name].mean())
        # Each factor vector's mean has relative error spread / sqrt(2 * its length); two of them multiply.
        assert ratio == pytest.approx(1, abs=5 * 0.1 * math.sqrt(1 / 80 + 1 / 80))
    torch.testing.assert_close(stds[0]["1.bias"], stds[1]["1.bias"])
    torch.testing.assert_close(tied.posterior.mean, free.posterior.mean)


# Symmetry, and what the family can hold.


def matrix_model(rank: int, rows: int, columns: int, **settings: Any) -> bw.BayesianModule:
    net = nn.Linear(columns, rows, bias=False).double()
    return bw.bayesian(net, bw.KTied(rank, initial_std=0.3, **settings), bw.Normal(0.8))


def std_matrix(model: bw.BayesianModule) -> Array:
    (site,) = model.layout.sites
    return std_of(model).reshape(site.shape)


def factors(model: bw.BayesianModule) -> tuple[Array, Array]:
    """(log u, log v) of the one tied matrix: rows x rank and columns x rank."""
    (site,) = model.layout.sites
    rows, rank = site.shape[0], model.posterior.rank
    flat = model.posterior.log_factors.detach().numpy()
    return flat[: rows * rank].reshape(rows, rank), flat[rows * rank :].reshape(-1, rank)


def distance_to(model: bw.BayesianModule, target: Tensor) -> Callable[[], Tensor]:
    """KL of N(0, target^2) noise terms: smooth, zero only where every std is the target's."""

    def loss() -> Tensor:
        ratio = (model.posterior.std_vector() / target.reshape(-1)).square()
        return (ratio - 1 - ratio.log()).mean()

    return loss


TARGET = torch.tensor(
    [[0.10, 0.90, 0.30, 0.20], [0.80, 0.15, 0.25, 0.70], [0.30, 0.40, 1.10, 0.12]], dtype=torch.float64
)


def test_components_separate_in_training() -> None:
    """With rank 2 the second singular value of the stds grows, as the target asks."""
    model = matrix_model(2, 3, 4)
    before = np.linalg.svd(std_matrix(model))[1]
    train_exactly(model, distance_to(model, TARGET))
    after = np.linalg.svd(std_matrix(model))[1]
    assert before[1] / before[0] < 0.15
    assert after[1] / after[0] > 0.3
    u, v = factors(model)
    assert np.abs(u[:, 0] - u[:, 1]).max() > 0.5
    assert np.abs(v[:, 0] - v[:, 1]).max() > 0.5


def test_equal_components_would_stay_equal() -> None:
    """What `spread` is for: components that start equal have equal gradients, and rank 2 remains rank 1."""
    model = matrix_model(2, 3, 4)
    with torch.no_grad():
        u, v = factors(model)
        model.posterior.log_factors.copy_(
            torch.from_numpy(np.concatenate([np.repeat(f[:, :1], 2, axis=1).reshape(-1) for f in (u, v)]))
        )
    train_exactly(model, distance_to(model, TARGET))
    u, v = factors(model)
    np.testing.assert_allclose(u[:, 0], u[:, 1], atol=1e-9)
    np.testing.assert_allclose(v[:, 0], v[:, 1], atol=1e-9)
    singular = np.linalg.svd(std_matrix(model))[1]
    assert singular[1] / singular[0] < 1e-9


def test_zero_spread_is_refused() -> None:
    with pytest.raises(bw.SettingError, match="spread = 0"):
        bw.KTied(2, spread=0)


def test_full_rank_holds_any_std_matrix() -> None:
    """U = I, V = A' in the limit: within 1 % in every entry, where rank 1 and 2 cannot be."""
    errors = {}
    for rank in (1, 2, 3):
        model = matrix_model(rank, 3, 4, spread=0.4)
        train_exactly(model, distance_to(model, TARGET), iterations=1000)
        errors[rank] = float(np.abs(std_matrix(model) / TARGET.numpy() - 1).max())
    assert errors[3] < 0.01
    assert errors[1] > errors[2] > 0.05


def test_rank_one_is_a_matrix_normal_with_diagonal_factors() -> None:
    """The same draws from the same noise, the same density, entropy and KL."""
    tied = matrix_model(1, 3, 4, spread=0.5)
    matrix = bw.bayesian(nn.Linear(4, 3, bias=False).double(), "matrix_normal", bw.Normal(0.8))
    u, v = factors(tied)
    (scale,) = matrix.posterior.scales
    with torch.no_grad():
        matrix.posterior.mean.copy_(tied.posterior.mean)
        scale.row_log_diagonal.copy_(torch.from_numpy(u[:, 0]))
        scale.column_log_diagonal.copy_(torch.from_numpy(v[:, 0]))
        noise = torch.randn(5, 12, dtype=torch.float64)
        draws = [model.posterior.sample(noise) for model in (tied, matrix)]
        torch.testing.assert_close(draws[0], draws[1], rtol=1e-12, atol=1e-14)
        densities = [model.posterior(draws[0]) for model in (tied, matrix)]
        torch.testing.assert_close(densities[0], densities[1], rtol=1e-12, atol=1e-12)
        kls = [model.posterior.sample_and_kl(None, model.prior)[1].item() for model in (tied, matrix)]
    assert kls[0] == pytest.approx(kls[1], rel=1e-12)
    np.testing.assert_allclose(std_of(tied), std_of(matrix), rtol=1e-12)
    np.testing.assert_allclose(std_matrix(tied), np.exp(u) @ np.exp(v).T, rtol=1e-12)


def test_kl_and_gradient_of_the_factors() -> None:
    """dKL/da_ik = u_ik sum_j v_jk dKL/dstd_ij with dKL/dstd = std/s^2 - 1/std; likewise for b."""
    model = matrix_model(2, 3, 4, spread=0.5)
    kl = model.posterior.sample_and_kl(None, model.prior)[1]
    (found,) = torch.autograd.grad(kl, model.posterior.log_factors)
    log_u, log_v = factors(model)
    u, v = np.exp(log_u), np.exp(log_v)
    std = u @ v.T
    slope = std / 0.8**2 - 1 / std
    truth = np.concatenate([(u * (slope @ v)).reshape(-1), (v * (slope.T @ u)).reshape(-1)])
    np.testing.assert_allclose(found, truth, rtol=1e-9)


# The compiled formulas, which never write the stds down.


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, bool]] = {
    # ... rank, and whether the compiled formulas can read where it lies
    "rank 1": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Linear(70, 41)), 1, True),
    "rank 2": (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Linear(70, 41), nn.Conv1d(4, 6, 2, groups=2)), 2, True),
    "rank 5, some too small": (lambda: nn.Sequential(nn.Linear(300, 9), nn.Linear(9, 2), nn.Linear(9, 5)), 5, True),
    "rank of the smaller side": (lambda: nn.Sequential(nn.Linear(7, 4), nn.Linear(4, 9)), 4, True),
    "nothing free": (lambda: nn.Sequential(nn.Linear(7, 4, bias=False), nn.Conv1d(3, 5, 4, bias=False)), 2, True),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.Linear(7, 4)), 2, False),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("draws", [0, 1, 3])
@pytest.mark.parametrize("prior", ["kaiming", bw.Normal(0.8)], ids=["by site", "scalar"])
def test_draws_and_kl_compiled_and_not(network: str, draws: int, prior: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways against the definitions in double precision, differentiated by torch."""
    make, rank, readable = NETWORKS[network]
    model = bw.bayesian(make(), bw.KTied(rank, spread=0.4, initial_std=0.13), prior)
    posterior, size = model.posterior, model.layout.size
    assert (posterior.table is not None) == readable
    noise = torch.randn(draws, size) if draws else None
    upstream = [torch.randn(draws, size), torch.tensor(0.37)]
    calls: list[str] = []
    call = library.call

    def noted(name: str, *arguments: Any) -> Any:
        calls.append(name)
        return call(name, *arguments)

    def run() -> list[Tensor]:
        results = [result for result in posterior.sample_and_kl(noise, model.prior) if result is not None]
        grads = torch.autograd.grad(results, list(posterior.parameters()), upstream[-len(results) :])
        return [*(result.detach() for result in results), *grads]

    monkeypatch.setattr(gaussian, "call", noted)
    found = run()
    # Several draws, and matrices that lie with their columns first, are left to torch and to the factorised formulas.
    tied = {name for name in calls if name.startswith("tied")}
    compiled = {"tied_fits", "tied_draw_and_kl", "tied_slopes"}
    assert tied == (compiled if native.available() and readable and draws < 2 else set())
    calls.clear()
    with native.disabled():
        eager = run()
    assert calls == []

    prior_std = model.prior.std_vector().double()
    posterior.double()
    mean, std = posterior.mean, posterior.std_vector()
    normal = torch.distributions.Normal
    kl = torch.distributions.kl_divergence(normal(mean, std), normal(torch.zeros_like(mean), prior_std)).sum()
    results = [kl] if noise is None else [mean + std * noise.double(), kl]
    grads = torch.autograd.grad(results, list(posterior.parameters()), [g.double() for g in upstream[-len(results) :]])
    for expected, *ways in zip([*(result.detach() for result in results), *grads], found, eager, strict=True):
        for way in ways:
            torch.testing.assert_close(way.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("network", ["rank 2", "nothing free", "transposed"])
@pytest.mark.parametrize("of", ["weights", "kl"])
@pytest.mark.parametrize("compiled", [True, False])
def test_gradients_in_a_batch(network: str, of: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``is_grads_batched`` hands several gradients over in one tensor, which the compiled formulas cannot read."""
    make, rank, _ = NETWORKS[network]
    monkeypatch.setattr(library._Switch, "on", library._Switch.on and compiled)
    model = bw.bayesian(make(), bw.KTied(rank, spread=0.4, initial_std=0.13), bw.Normal(0.8))
    weights, kl = model.posterior.sample_and_kl(torch.randn(1, model.layout.size), model.prior)
    assert weights is not None
    output = weights if of == "weights" else kl
    upstream, inputs = torch.randn(3, *output.shape), list(model.posterior.parameters())
    found = torch.autograd.grad(output, inputs, upstream, is_grads_batched=True, retain_graph=True)
    for row in range(3):
        expected = torch.autograd.grad(output, inputs, upstream[row], retain_graph=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[row], other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


# Kernels, and matrices that are too small.


@pytest.mark.parametrize(
    ("layer", "output_axis"),
    [
        (nn.Linear(5, 4), 0),
        (nn.Conv1d(3, 4, 2), 0),
        (nn.Conv2d(3, 4, (2, 3)), 0),
        (nn.Conv2d(6, 4, (2, 3), groups=2), 0),
        (nn.Conv3d(2, 4, (1, 2, 3)), 0),
        (nn.ConvTranspose1d(3, 4, 2), 1),
        (nn.ConvTranspose2d(3, 4, (2, 3)), 1),
        (nn.ConvTranspose3d(3, 4, (1, 2, 3)), 1),
    ],
    ids=lambda value: str(value) if isinstance(value, nn.Module) else None,
)
@pytest.mark.parametrize("rank", [1, 2])
def test_kernels_are_tied_as_output_by_inputs_times_area(layer: nn.Module, output_axis: int, rank: int) -> None:
    model = bw.bayesian(layer.double(), bw.KTied(rank, spread=0.5, initial_std=0.3), bw.Normal(0.8))
    shape = tuple(layer.weight.shape)
    outputs, inputs = shape[output_axis], layer.weight.numel() // shape[output_axis]
    assert outputs == 4
    assert model.posterior.log_factors.numel() == rank * (outputs + inputs)
    std = model.layout.unflatten(model.posterior.std_vector().detach())["weight"]
    matrix = std.movedim(output_axis, 0).reshape(outputs, inputs)
    singular = torch.linalg.svdvals(matrix)
    assert float(singular[rank] / singular[0]) < 1e-12
    # Rows are the output channels and columns run over the other axes in their own order.
    factors_flat = model.posterior.log_factors.detach().exp()
    left = factors_flat[: outputs * rank].view(outputs, rank)
    right = factors_flat[outputs * rank :].view(inputs, rank)
    torch.testing.assert_close(matrix, left @ right.T, rtol=1e-12, atol=0)


def test_draws_have_the_stds_of_their_own_entries() -> None:
    """The draw's noise meets the std of the same weight, also where a kernel's axes are turned."""
    model = bw.bayesian(nn.ConvTranspose2d(2, 3, (1, 2)).double(), bw.KTied(2, spread=0.7), bw.Normal(0.8))
    noise = torch.eye(model.posterior.noise_size, dtype=torch.float64)
    offsets = (model.posterior.sample(noise) - model.posterior.mean_vector()).detach()
    np.testing.assert_allclose(offsets, np.diag(std_of(model)), atol=1e-14)
    assert mean_of(model).shape == (2 * 3 * 2 + 3,)


def test_small_matrices_and_vectors_stay_mean_field() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2), nn.Linear(2, 1))
    model = bw.bayesian(net, bw.KTied(2), bw.Normal(0.8))
    found = {row.name: row.posterior for row in model.describe().rows}
    assert found["0.weight"] == "k_tied(rank=2, 4x5)"
    assert found["1.weight"] == "k_tied(rank=2, 2x4)"
    assert found["2.weight"] == "mean_field (rank 2 exceeds its smaller side 1)"
    assert found["0.bias"] == "mean_field (not a matrix)"
    assert model.posterior.log_std.numel() == 4 + 2 + 2 + 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rank": 0}, "rank = 0"),
        ({"rank": -2}, "rank = -2"),
        ({"rank": 1.5}, "rank = 1.5"),
        ({"spread": -0.1}, "spread = -0.1"),
        ({"initial_std": 0.0}, "initial_std = 0.0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(bw.SettingError, match=named):
        bw.KTied(**settings)


def test_impossible_ties_are_refused() -> None:
    with pytest.warns(bw.BayeswellWarning, match=r"rank = 6 exceeds the smaller side \(4\)"):
        bw.bayesian(nn.Linear(5, 4), bw.KTied(6))
    with pytest.raises(bw.SettingError, match=r"tie = .dense.*weight"):
        bw.bayesian(nn.Linear(5, 4), bw.KTied(2, tie="dense*"))
