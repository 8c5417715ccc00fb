"""Gradient signal-to-noise ratios against direct formulas and the law of the F distribution."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.diagnostics import GradientSNR, gradient_snr
from bayeswell.diagnostics.parameters import Share, shares_of
from bayeswell.diagnostics.signal_to_noise import GradientMoments
from bayeswell.persistence import pack_state, unpack_state
from diagnostics.problems import convolutional, lifted

FAMILIES = ["mean_field", {"name": "mean_field", "parameter": "rho"}, "delta", {"name": "k_tied", "rank": 2},
            {"name": "k_tied", "rank": 2, "tie": "2.*"}, {"name": "low_rank", "rank": 3},
            "matrix_normal", "full"]  # fmt: skip


def test_moments_are_numpys() -> None:
    gradients = np.random.default_rng(1).normal(0.7, 1.9, (6, 11))
    moments = GradientMoments()
    for row in gradients:
        moments.add({"w": torch.tensor(row)})
    ratio = gradients.mean(0) ** 2 / gradients.var(0)
    rows = {row.layer: row for row in moments.rows([Share("means", "a", "w", 0, 4), Share("means", "b", "w", 4, 11)])}
    for layer, part in {"a": slice(0, 4), "b": slice(4, 11), "all": slice(0, 11)}.items():
        assert rows[layer].mean_square_mean == pytest.approx(ratio[part].mean(), rel=1e-12)
        assert rows[layer].mean_square_median == pytest.approx(np.median(ratio[part]), rel=1e-12)
        # The literal definition, from its own formula.
        literal = (gradients**2).mean(0)[part] / gradients.var(0)[part]
        assert rows[layer].second_moment_mean == pytest.approx(literal.mean(), rel=1e-12)
        assert rows[layer].second_moment_median == pytest.approx(np.median(literal), rel=1e-12)


@pytest.mark.parametrize("signal", [0.0, 0.8])
def test_gaussian_gradients_have_the_mean_of_a_noncentral_f(signal: float) -> None:
    count, size, noise = 10, 40_000, 1.7
    drawn = signal + noise * np.random.default_rng(2).standard_normal((count, size))
    moments = GradientMoments()
    for row in drawn:
        moments.add({"w": torch.tensor(row)})
    (row, _) = moments.rows([Share("stds", "layer", "w", 0, size)])
    # (n - 1) m^2 / v ~ F(1, n - 1, n signal^2 / noise^2) with the population variance v.
    expected = (1 + count * signal**2 / noise**2) / (count - 3)
    error = (drawn.mean(0) ** 2 / drawn.var(0)).std() / math.sqrt(size)
    assert abs(row.mean_square_mean - expected) < 5 * error  # fails once in 1.7 million
    assert error < 0.03 * expected


def test_gradients_that_do_not_change_are_counted_and_left_out() -> None:
    moments = GradientMoments()
    for value in (0.5, 0.9, -0.2):
        moments.add({"w": torch.tensor([value, 2.0, 0.0])})
    (row, _) = moments.rows([Share("means", "layer", "w", 0, 3)])
    assert (row.parameters, row.constant) == (3, 2)
    values = np.array([0.5, 0.9, -0.2])
    assert row.mean_square_mean == pytest.approx(values.mean() ** 2 / values.var(), rel=1e-6)
    still = GradientMoments()
    for _ in range(2):
        still.add({"w": torch.tensor([2.0, 0.0])})
    assert still.rows([Share("means", "layer", "w", 0, 2)])[0].mean_square_mean is None


def test_linear_regression_gradients_by_hand() -> None:
    rng = np.random.default_rng(4)
    inputs, targets = rng.normal(size=(24, 3)), rng.normal(size=24)
    noise_std, prior_std, dataset_size = 0.6, 1.4, 24
    net = nn.Linear(3, 1).double()
    model = bw.bayesian(net, "delta", {"name": "normal", "std": prior_std})
    objective = bw.ELBO(bw.Gaussian("known", noise_std), dataset_size, temperature=0.7)
    batches = [(torch.tensor(inputs[i : i + 4]), torch.tensor(targets[i : i + 4])) for i in range(0, 24, 4)]
    found = gradient_snr(model, objective, batches)
    weights = model.posterior.mean_vector().detach().numpy()
    design = np.c_[inputs, np.ones(24)]
    gradients = np.array([
        design[i : i + 4].T @ (design[i : i + 4] @ weights - targets[i : i + 4]) / 4 / noise_std**2
        + 0.7 * weights / prior_std**2 / dataset_size
        for i in range(0, 24, 4)
    ])  # fmt: skip
    ratio = gradients.mean(0) ** 2 / gradients.var(0)
    assert found.batches == 6
    assert found.row("means", "weight").mean_square_mean == pytest.approx(ratio[:3].mean(), rel=1e-9)
    assert found.row("means", "bias").mean_square_mean == pytest.approx(ratio[3], rel=1e-9)
    assert found.row("means").mean_square_median == pytest.approx(np.median(ratio), rel=1e-9)
    assert model.posterior.mean.grad is None
    with pytest.raises(bw.SettingError, match="means/weight"):
        found.row("stds", "weight")
    with pytest.raises(bw.DataError, match="at least 2"):
        gradient_snr(model, objective, batches[:1])


def both(model: bw.BayesianModule) -> dict[str, torch.Tensor]:
    vectors = {"means": model.posterior.mean_vector(), "stds": model.posterior.std_vector()}
    return {name: vector.detach().clone() for name, vector in vectors.items()}


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_every_number_belongs_to_the_layer_it_is_said_to(family: object) -> None:
    model = lifted(family)
    named = dict(model.named_parameters())
    covered = {name: torch.zeros(len(value), dtype=torch.long) for name, value in named.items()}
    for share in shares_of(model):
        covered[share.parameter][share.start : share.stop] += 1
        before = both(model)
        kept = named[share.parameter].detach().clone()
        with torch.no_grad():
            named[share.parameter][share.start : share.stop] += 0.37
        after = both(model)
        part = model.layout.slices[share.layer]
        other = "stds" if share.group == "means" else "means"
        outside = torch.ones(model.layout.size, dtype=torch.bool)
        outside[part] = False
        moved = after[share.group] != before[share.group]
        with torch.no_grad():
            named[share.parameter].copy_(kept)
        if family == "delta":
            continue
        assert not bool(moved[outside].any()), share
        # A strict lower triangle has rows without entries.
        assert bool(moved[part].any()) or "lower" in share.parameter, share
        assert bool((after[other] == before[other]).all())
    assert all(bool((count == 1).all()) for count in covered.values())


def test_running_statistics_do_not_see_the_measurement() -> None:
    model = lifted(net=convolutional())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.randn(4, 6, 2, 5, 5, dtype=torch.float64)
    batches = [(inputs, torch.arange(6) % 3) for inputs in drawn]
    found = gradient_snr(model.train(), bw.ELBO("categorical", 24), batches, generator=bw.make_generator(1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    again = gradient_snr(model, bw.ELBO("categorical", 24), batches, generator=bw.make_generator(1))
    assert found == again
    assert found.row("deterministic", "1.weight").parameters == 4


def test_deterministic_parameters_are_a_group_of_their_own() -> None:
    model = lifted(net=nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)))
    names = [share.layer for share in shares_of(model) if share.group == "deterministic"]
    assert names == ["1.weight", "1.bias"]


class Keep(bw.Callback):
    """Every gradient of the stds, as the optimizer saw it."""

    def __init__(self) -> None:
        self.gradients: list[np.ndarray] = []

    def after_step(self, run: bw.Run) -> None:
        self.gradients.append(run.assembly.model.posterior.log_std.grad.numpy().copy())


def fitted(*callbacks: object) -> None:
    torch.manual_seed(8)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    inputs = torch.randn(42, 3, dtype=torch.float64)
    labels = (inputs[:, 0] + 0.4 * torch.randn(42, dtype=torch.float64) > 0).long()
    bw.fit(net, (inputs, labels), "bbb", epochs=2, batch_size=6, seed=3, callbacks=callbacks, progress=False,
           stepper={"name": "adam", "lr": 0.03}, std_multiplier=30.0)  # fmt: skip


def test_windows_in_training_are_those_of_the_gradients_that_training_saw() -> None:
    snr, keep = GradientSNR(window=3, every=5), Keep()
    fitted(snr, keep)
    assert [window.step for window in snr.windows] == [5, 10]
    for window, (first, last) in zip(snr.windows, [(2, 5), (7, 10)], strict=True):
        gradients = np.array(keep.gradients[first:last])
        ratio = gradients.mean(0) ** 2 / gradients.var(0)
        assert window.batches == 3
        assert window.row("stds").mean_square_mean == pytest.approx(ratio.mean(), rel=1e-8)
        assert window.row("stds", "0.weight").mean_square_median == pytest.approx(np.median(ratio[:12]), rel=1e-8)
    json.dumps([window.as_json() for window in snr.windows], allow_nan=False)


class CutOff(bw.Callback):
    """Hands the state of one callback to another through a saved file's form, in the middle of a window."""

    def __init__(self, first: GradientSNR, second: GradientSNR, step: int) -> None:
        self.first, self.second, self.step = first, second, step

    def after_step(self, run: bw.Run) -> None:
        if run.step == self.step:
            self.second.load_state_dict(unpack_state(*pack_state(self.first.state_dict())))
        elif run.step > self.step:
            self.second.after_step(run)


def test_a_window_survives_being_cut_off() -> None:
    whole, resumed = GradientSNR(window=4), GradientSNR(window=4)
    fitted(whole, CutOff(whole, resumed, step=6))
    assert len(whole.windows) == 3
    assert resumed.windows == whole.windows


@pytest.mark.parametrize("settings", [{"window": 1}, {"window": 0}, {"window": 5, "every": 4}])
def test_windows_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(bw.SettingError, match="gradient snr: "):
        GradientSNR(**settings)
