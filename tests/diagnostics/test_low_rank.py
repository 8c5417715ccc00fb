"""Spectra and rank-k approximations against numpy's singular values and closed forms."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import SpectrumTrace, explained_variance, spectra, truncated, truncation_table
from bayeswell.persistence import pack_state, unpack_state
from bayeswell.predictive import nll_of_draws
from diagnostics.problems import convolutional, lifted
from truths.linear_regression import LinearRegression


def orthogonal(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, columns, generator=generator, dtype=torch.float64))[0]


def with_stds(model: bw.BayesianModule, layer: str, stds: torch.Tensor) -> bw.BayesianModule:
    with torch.no_grad():
        model.posterior.log_std[model.layout.slices[layer]] = stds.reshape(-1).log()
    return model


def stds_of(model: bw.BayesianModule, layer: str) -> torch.Tensor:
    return model.layout.unflatten(model.posterior.std_vector().detach())[layer]


def test_known_singular_values() -> None:
    matrix = orthogonal(6, 3, 1) @ torch.diag(torch.tensor([3.0, 2.0, 0.5]).double()) @ orthogonal(4, 3, 2).T
    assert explained_variance(matrix)[:3] == pytest.approx([9 / 13.25, 4 / 13.25, 0.25 / 13.25], rel=1e-12)
    assert explained_variance(torch.zeros(2, 3)) == ()


def test_a_convolution_is_the_matrix_of_the_paper() -> None:
    model = lifted(net=convolutional())
    layer = spectra(model).layers[0]
    assert (layer.layer, layer.rows, layer.columns) == ("0.weight", 4, 2 * 2 * 3)
    stds, means = (v.detach() for v in (model.posterior.std_vector(), model.posterior.mean_vector()))
    for found, vector in ((layer.stds, stds), (layer.means, means)):
        kernel = model.layout.unflatten(vector)["0.weight"].numpy()
        # (h w c_in) x c_out, as TensorFlow stores it.
        values = np.linalg.svd(kernel.transpose(2, 3, 1, 0).reshape(12, 4), compute_uv=False) ** 2
        assert found == pytest.approx(values / values.sum(), rel=1e-10)
    matrix = stds_of(model, "4.weight").numpy()
    for found, truth in (
        (spectra(model).layers[1].centred_stds, matrix - matrix.mean()),
        (spectra(model).layers[1].centred_log_stds, np.log(matrix) - np.log(matrix).mean()),
    ):
        values = np.linalg.svd(truth, compute_uv=False) ** 2
        assert found == pytest.approx(values / values.sum(), rel=1e-9)


def test_equal_stds_have_rank_one_and_nothing_behind_it() -> None:
    model = bw.bayesian(nn.Linear(5, 4), prior={"name": "normal", "std": 0.6})
    layer = spectra(model, most=2).layers[0]
    assert layer.stds == pytest.approx((1, 0), abs=1e-12)
    assert layer.centred_stds == layer.centred_log_stds == ()
    assert len(layer.means) == 2
    assert sum(spectra(model).layers[0].means) == pytest.approx(1, rel=1e-12)


def test_the_trace_takes_start_and_end() -> None:
    trace = SpectrumTrace()
    inputs = torch.randn(30, 3)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    data = (inputs, (inputs[:, 0] > 0).long())
    result = bw.fit(net, data, "bbb", epochs=3, batch_size=10, callbacks=[trace], progress=False,
                    stepper={"name": "adam", "lr": 0.05}, std_multiplier=40.0)  # fmt: skip
    assert [taken.step for taken in trace.taken] == [0, 9]
    assert trace.taken[0].layers[0].stds[0] == pytest.approx(1, abs=1e-9)
    assert trace.taken[1].layers == spectra(result.model).layers
    again = SpectrumTrace()
    again.load_state_dict(unpack_state(*pack_state(trace.state_dict())))
    assert again.taken == trace.taken
    json.dumps([taken.as_json() for taken in trace.taken], allow_nan=False)


def test_a_rank_one_matrix_is_its_own_approximation() -> None:
    model = lifted(net=nn.Linear(6, 4))
    rank_one = torch.outer(torch.linspace(0.2, 0.9, 4).double(), torch.linspace(0.3, 1.4, 6).double())
    with_stds(model, "weight", rank_one)
    assert torch.allclose(stds_of(truncated(model, 1), "weight"), rank_one, rtol=1e-10)


def test_negative_entries_lose_their_sign_and_small_ones_are_floored() -> None:
    # Rank 2 of a positive matrix of rank 3, chosen so that an entry comes out negative.
    generator = torch.Generator().manual_seed(11)
    matrix = torch.rand(5, 7, generator=generator, dtype=torch.float64) ** 3 + 1e-4
    left, values, right = np.linalg.svd(matrix.numpy(), full_matrices=False)
    best = (left[:, :2] * values[:2]) @ right[:2]
    assert best.min() < -0.01
    model = with_stds(lifted(net=nn.Linear(7, 5)), "weight", matrix)
    floor = 0.3
    expected = np.maximum(np.abs(best), floor * np.median(matrix.numpy()))
    assert (expected > np.abs(best)).any()
    cut = truncated(model, 2, floor=floor)
    assert stds_of(cut, "weight").numpy() == pytest.approx(expected, rel=1e-9)
    assert torch.equal(stds_of(cut, "bias"), stds_of(model, "bias"))
    assert torch.equal(cut.posterior.mean_vector(), model.posterior.mean_vector())
    assert torch.equal(stds_of(model, "weight"), matrix.log().exp())  # the model given is as it was
    assert math.isfinite(float(cut.posterior.sample_and_kl(None, cut.prior)[1].detach()))


def test_full_rank_changes_nothing_and_patterns_choose() -> None:
    model = lifted()
    assert torch.allclose(truncated(model, 4).posterior.std_vector(), model.posterior.std_vector(), rtol=1e-12)
    cut = truncated(model, 1, tie="2.*")
    assert torch.allclose(stds_of(cut, "0.weight"), stds_of(model, "0.weight"), rtol=1e-12)
    assert not torch.allclose(stds_of(cut, "2.weight"), stds_of(model, "2.weight"), rtol=0.01)
    tied = lifted({"name": "k_tied", "rank": 2})
    assert torch.allclose(truncated(tied, 2).posterior.std_vector(), tied.posterior.std_vector(), rtol=1e-9)


def test_what_cannot_be_truncated_is_refused() -> None:
    with pytest.raises(bw.CompositionError, match="posterior 'full'"):
        truncated(lifted("full"), 1)
    with pytest.raises(bw.SettingError, match=r"fits no weight matrix; the network has: 0\.weight, 2\.weight"):
        truncated(lifted(), 1, tie="nothing")
    with pytest.raises(bw.SettingError, match="rank = 0"):
        truncated(lifted(), 0)


def test_the_elbo_of_linear_regression() -> None:
    problem = LinearRegression.make(6, count=60, dimension=3, noise_std=0.9, prior_std=1.3)
    model = lifted(net=nn.Linear(3, 1, bias=False), prior={"name": "normal", "std": 1.3})
    mean, std = (v.detach().numpy() for v in (model.posterior.mean_vector(), model.posterior.std_vector()))
    likelihood = bw.Gaussian("known", 0.9)
    table = truncation_table(model, likelihood, problem.tensors(), 60, ranks=(1,), draws=400, seed=4)
    whole = table.rows[0]
    assert abs(whole.negative_elbo + problem.elbo(mean, std) / 60) < 5 * whole.negative_elbo_error
    assert whole.kl == pytest.approx(problem.kl_to_prior(mean, np.diag(std**2)), rel=1e-9)
    assert (whole.rank, whole.score_name, table.examples) == (None, "rmse", 60)
    assert whole.brier is whole.ece is None
    # A single row of weights has rank 1 already.
    assert table.rows[1].negative_elbo == pytest.approx(whole.negative_elbo, rel=1e-9)
    residual = (problem.tensors()[1] - model.layout.flatten(model.centre()).detach() @ problem.tensors()[0].T).numpy()
    assert whole.score == pytest.approx(math.sqrt(np.mean(residual**2)), rel=0.05)


def ece_by_hand(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """15 bins of equal width, as TensorFlow Probability has them: sum over bins of |hits - confidence| / n."""
    confidence, hits = probabilities.max(-1), probabilities.argmax(-1) == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    return float(sum(abs((hits[bins == b] - confidence[bins == b]).sum()) for b in range(15)) / len(labels))


def test_the_table_is_that_of_the_truncated_models() -> None:
    model = lifted()
    generator = torch.Generator().manual_seed(1)
    data = (torch.randn(50, 3, generator=generator, dtype=torch.float64), torch.arange(50) % 4)
    likelihood = bw.Categorical()
    table = truncation_table(model, likelihood, data, 200, ranks=(1, 2), draws=20, seed=7)
    assert [row.rank for row in table.rows] == [None, 1, 2]
    assert table.rows[0].std_error == 0
    assert table.rows[1].std_error > table.rows[2].std_error > 0.001
    for row, one in zip(table.rows, (model, truncated(model, 1), truncated(model, 2)), strict=True):
        kl = float(one.posterior.sample_and_kl(None, one.prior)[1].detach())
        losses = nll_of_draws(one, *data, likelihood, draws=20, seed=7)
        assert row.negative_elbo == pytest.approx(float(losses.mean()) + kl / 200, rel=1e-9)
        found = bw.predict(one, data[0], likelihood, draws=20, seed=7).probabilities
        assert row.nll == pytest.approx(float(-found[range(50), data[1]].log().mean()), rel=1e-9)
        assert row.nll <= row.expected_nll
        accuracy = float((found.argmax(-1) == data[1]).double().mean())
        assert row.score == accuracy
        truth = torch.eye(4, dtype=torch.float64)[data[1]]
        assert row.brier == pytest.approx(float((found - truth).square().sum(-1).mean()), rel=1e-9)
        assert row.ece == pytest.approx(ece_by_hand(found.numpy(), data[1].numpy()), rel=1e-9)
        # k-tied's errors: over test examples (n - 1 here).
        assert row.score_error == pytest.approx(math.sqrt(accuracy * (1 - accuracy) / 49), rel=1e-9)
    json.dumps(table.as_json(), allow_nan=False)
