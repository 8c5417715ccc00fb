from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bayeswell.core.errors import DataError, SettingError
from bayeswell.lab.diagnostics import GradientSNR, SNRWindow, gradient_snr
from bayeswell.lab.diagnostics.signal_to_noise import Moments
from bayeswell.nn import bayesian
from bayeswell.objectives import ELBO
from bayeswell.training import Callback, fit

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
BATCHES = list(zip(X.split(10), Y.split(10), strict=True))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def ratios(gradients: np.ndarray) -> np.ndarray:
    return gradients.mean(0) ** 2 / gradients.var(0)


def test_ratios_match_numpy_over_the_gradients_of_each_batch():
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model = bayesian(plain, generator=torch.Generator().manual_seed(2)).train()
    elbo = ELBO("categorical", 60)
    found = gradient_snr(model, elbo, BATCHES, generator=torch.Generator().manual_seed(3))
    generator, means, stds = torch.Generator().manual_seed(3), [], []
    for inputs, targets in BATCHES:
        model.zero_grad()
        elbo(model, inputs, targets, generator=generator).total.backward()
        means.append(model.posterior.mean.grad.double().numpy().copy())
        stds.append(model.posterior.get_parameter("log_std").grad.double().numpy().copy())
    for group, gradients in (("means", means), ("stds", stds)):
        truth = ratios(np.stack(gradients))
        assert found.row(group).ratio == pytest.approx(truth.mean(), rel=1e-3)
        for layer, place in model.layout.slices.items():
            row = found.row(group, layer)
            assert row.parameters == place.stop - place.start
            assert row.median == pytest.approx(np.median(truth[place]), rel=1e-3)
    after = gradient_snr(model, elbo, BATCHES, generator=torch.Generator().manual_seed(3))
    assert after.row("means") == found.row("means"), "nothing is trained"


def test_running_statistics_do_not_move():
    model = bayesian(network()).train()
    before = [buffer.clone() for buffer in model.net.buffers()]
    gradient_snr(model, ELBO("categorical", 60), BATCHES)
    assert all(torch.equal(a, b) for a, b in zip(before, model.net.buffers(), strict=True))


def test_noise_alone_has_the_ratio_of_students_t():
    """E[m^2 / v] = 1 / (n - 3) of n Gaussian gradients; 40,000 parameters, five standard errors."""
    model = bayesian(nn.Linear(200, 200, bias=False))
    moments, generator = Moments(), torch.Generator().manual_seed(4)
    for _ in range(12):
        moments.add({"posterior.mean": torch.randn(40_000, generator=generator)})
    row = moments.rows(model)[0]
    # m^2 / v = F / (n - 1) with F of (1, n - 1) degrees; Var F = 2 d^2 (d - 1) / ((d - 2)^2 (d - 4)), d = 11.
    variance = 2 * 11**2 * 10 / (9**2 * 7) / 11**2
    assert row.ratio == pytest.approx(1 / 9, abs=5 * (variance / 40_000) ** 0.5)


def test_constant_gradients_are_counted_and_left_out():
    model = bayesian(nn.Linear(2, 1, bias=False))
    moments = Moments()
    for value in (1.0, 3.0):
        moments.add({"posterior.mean": torch.tensor([5.0, value])})
    row = moments.rows(model)[0]
    assert (row.parameters, row.constant, row.ratio) == (2, 1, 4.0)


class KeepGradients(Callback):
    def __init__(self) -> None:
        self.gradients: list[Tensor] = []

    def after_step(self, run: object) -> None:
        self.gradients.append(run.state.model.posterior.mean.grad.clone())  # type: ignore[attr-defined]


def test_callback_measures_windows_of_the_gradients_of_the_steps():
    snr, kept = GradientSNR(window=3, every=5), KeepGradients()
    fit(network(), (X, Y), "bbb", epochs=2, batch_size=10, callbacks=[snr, kept], progress=False)
    assert [window.step for window in snr.windows] == [5, 10]
    truth = ratios(torch.stack(kept.gradients[7:10]).double().numpy())
    assert snr.windows[1].row("means").ratio == pytest.approx(truth[np.isfinite(truth)].mean(), rel=1e-3)
    restored = GradientSNR(window=3, every=5)
    restored.load_state_dict(snr.state_dict())
    assert restored.windows == snr.windows


def test_windows_survive_json():
    model = bayesian(network()).train()
    window = gradient_snr(model, ELBO("categorical", 60), BATCHES)
    assert SNRWindow.from_json(window.to_json()) == window


def test_bad_settings_are_refused():
    model = bayesian(network()).train()
    with pytest.raises(DataError, match="at least 2 batches, got 1"):
        gradient_snr(model, ELBO("categorical", 60), BATCHES[:1])
    with pytest.raises(SettingError, match="`every` must be an integer of at least 10, got 4"):
        GradientSNR(every=4)
    with pytest.raises(SettingError, match="no signal-to-noise ratio of means/9"):
        gradient_snr(model, ELBO("categorical", 60), BATCHES).row("means", "9.weight")
