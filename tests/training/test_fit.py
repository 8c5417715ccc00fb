"""``fit``: exact posteriors, continuing, calibration, data of all forms."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.core.errors import DataWarning, FileError
from bayeswell.likelihoods import Gaussian
from bayeswell.prediction import load
from bayeswell.training import Callback, Devices, KeepBest, Result, RunFolder, fit
from helpers import LinearRegression

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

X = torch.randn(80, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] - X[:, 1] > 0).long()


def network(*sizes: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def state(result: Result) -> list[Tensor]:
    return list(result.model.state_dict().values())


def same(first: Result, second: Result) -> bool:
    return all(torch.equal(a, b) for a, b in zip(state(first), state(second), strict=True))


PROBLEM = LinearRegression.make()


def linear_fit(method: str, **settings: Any) -> Result:
    net = nn.Linear(4, 1, bias=False).double()
    prior = {"name": "normal", "std": PROBLEM.prior_std}
    given = {"prior": prior, "temperature": 1.0, "epochs": 3000, "batch_size": 60, "progress": False, **settings}
    return fit(net, (PROBLEM.x, PROBLEM.y), method, Gaussian(noise="known", std=PROBLEM.noise_std), **given)


ANTITHETIC = {"name": "weight_sampling", "draws": 4, "antithetic": True}
"""The linear part of the noise of the gradient in the means cancels."""


def test_mean_field_reaches_the_exact_optimum() -> None:
    result = linear_fit("bbb", lr=0.03, epochs=1200, estimator=ANTITHETIC)
    posterior = result.model.posterior
    assert torch.allclose(posterior.mean, PROBLEM.mean(), atol=1e-6)
    assert torch.allclose(posterior.std(), PROBLEM.precision().diagonal() ** -0.5, rtol=0.12)
    exact = PROBLEM.elbo(posterior.mean.detach(), torch.diag(posterior.std().detach() ** 2))
    assert result.elbo is not None
    assert abs(result.elbo.elbo - exact) < 5 * result.elbo.error
    assert result.elbo.rows == 60


def test_laplace_is_the_exact_posterior() -> None:
    result = linear_fit("laplace", post_hoc={"structure": "full"}, lr=0.05, epochs=400)
    covariance = PROBLEM.covariance()
    assert torch.allclose(result.model.posterior.mean, PROBLEM.mean(), atol=1e-3)
    assert torch.allclose(result.model.posterior.std(), covariance.diagonal().sqrt(), rtol=1e-6)
    assert result.elbo is not None
    # The bound is tight at the exact posterior: its error bar is all that is left.
    assert abs(result.elbo.elbo - PROBLEM.log_evidence()) < 5 * result.elbo.error + 0.01


def test_elbo_is_of_the_given_prior_at_temperature_one() -> None:
    result = linear_fit("bbb", temperature="auto", epochs=300)
    posterior = result.model.posterior
    exact = PROBLEM.elbo(posterior.mean.detach(), torch.diag(posterior.std().detach() ** 2))
    assert result.temperature < 0.5
    assert torch.allclose(result.model.prior.std(), torch.full((4,), PROBLEM.prior_std, dtype=torch.float64))
    assert result.elbo is not None
    assert abs(result.elbo.elbo - exact) < 5 * result.elbo.error
    whole = result.measure_elbo((PROBLEM.x, PROBLEM.y), draws=2000)
    assert whole is not None
    assert whole.error < result.elbo.error
    assert abs(whole.elbo - exact) < 5 * whole.error


def test_sequential_bayes_equals_all_data_at_once() -> None:
    half = 30
    net = nn.Linear(4, 1, bias=False).double()
    given: dict[str, Any] = {"posterior": "full", "temperature": 1.0, "lr": 0.05, "epochs": 300, "batch_size": 60}
    likelihood = Gaussian(noise="known", std=PROBLEM.noise_std)
    prior = {"name": "normal", "std": PROBLEM.prior_std}
    given |= {"estimator": {**ANTITHETIC, "draws": 8}, "progress": False}
    first = fit(net, (PROBLEM.x[:half], PROBLEM.y[:half]), "bbb", likelihood, prior=prior, **given)
    both = fit(first, (PROBLEM.x[half:], PROBLEM.y[half:]), prior="posterior", **given)
    assert torch.allclose(both.model.posterior.mean, PROBLEM.mean(), atol=0.05)
    assert torch.allclose(both.model.posterior.std(), PROBLEM.covariance().diagonal().sqrt(), rtol=0.15)
    third = fit(both, (PROBLEM.x, PROBLEM.y), prior="posterior", **{**given, "epochs": 1})
    assert torch.equal(third.model.prior.center(), both.model.posterior.mean)
    assert len(third.history.epochs) == 1


@pytest.mark.parametrize("method", ["bbb", "map", "k-tied"])
def test_continuing_equals_a_longer_run(method: str) -> None:
    given: dict[str, Any] = {"temperature": 0.1, "schedule": "constant", "lr": 0.01, "progress": False}
    first = fit(network(), (X, Y), method, epochs=3, **given)
    longer = fit(first, (X, Y), epochs=4)
    whole = fit(network(), (X, Y), method, epochs=7, **given)
    assert same(longer, whole)
    assert [len(result.history.epochs) for result in (first, longer, whole)] == [3, 7, 7]


def test_members_continue() -> None:
    given: dict[str, Any] = {"temperature": 0.1, "schedule": "constant", "lr": 0.01, "members": 2}
    longer = fit(fit(network(), (X, Y), "deep-ensemble", epochs=2, **given), (X, Y), epochs=2)
    assert same(longer, fit(network(), (X, Y), "deep-ensemble", epochs=4, **given))


def test_another_method_starts_at_the_trained_mean() -> None:
    first = fit(network(), (X, Y), "map", epochs=20, lr=0.05)
    laplace = fit(first, (X, Y), "laplace", epochs=0)
    assert torch.equal(laplace.model.posterior.mean, first.model.posterior.mean)
    assert len(laplace.history.epochs) == 0


def test_early_stopping_restores_the_best() -> None:
    class Spoils(Callback):
        def after_epoch(self, run: Any, record: Any) -> None:
            if record.epoch == 3:
                self.best = run.state.model.posterior.mean.detach().clone()
            if record.epoch >= 3:
                with torch.no_grad():
                    run.state.model.posterior.mean.fill_(3.0)

    spoils = Spoils()
    result = fit(
        network(), (X, Y), "map", epochs=20, lr=0.01, validation=(X, Y), early_stopping=KeepBest(patience=3),
        callbacks=[spoils],
    )  # fmt: skip
    assert torch.equal(result.model.posterior.mean.detach(), spoils.best)
    assert "validation nll has not improved for 3 epochs" in result.history.stopped
    assert len(result.history.epochs) < 20


@pytest.mark.parametrize("calibrate", [True, 0.3, 3])
def test_calibration(calibrate: Any) -> None:
    noisy = torch.where(torch.rand(80, generator=torch.Generator().manual_seed(3)) < 0.3, 1 - Y, Y)
    result = fit(network(), (X, noisy), "map", epochs=80, lr=0.05, calibrate=calibrate, temperature=1e-4)
    assert result.calibration is not None
    assert result.calibration.examples == {True: 80, 0.3: 24, 3: 80}[calibrate]
    assert result.calibration.temperature > 1.2, "an overfitted network is too sure"


def test_calibration_on_validation_data() -> None:
    result = fit(network(), (X[:60], Y[:60]), "bbb", epochs=3, validation=(X[60:], Y[60:]), calibrate=True)
    assert result.calibration is not None
    assert result.calibration.examples == 20


def test_forms_of_data_give_the_same_result() -> None:
    reference = fit(network(), (X, Y), "bbb", epochs=2, batch_size=20)
    arrays = fit(network(), (X.numpy(), Y.numpy()), "bbb", epochs=2, batch_size=20)
    lists = fit(network(), (X.double().numpy().tolist(), Y.tolist()), "bbb", epochs=2, batch_size=20)
    mapping = fit(network(), {"x": X, "label": Y}, "bbb", epochs=2, batch_size=20)
    assert all(same(reference, other) for other in (arrays, lists, mapping))
    loader = DataLoader(TensorDataset(X, Y), 20, shuffle=True)
    assert same(fit(network(), loader, "bbb", epochs=2), fit(network(), loader, "bbb", epochs=2))


def test_frames_and_standardized_targets() -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"a": np.linspace(0, 300, 60), "b": ["u", "v", "w"] * 20})
    y = 1000 + 5 * x["a"]
    net = nn.Sequential(nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(1))
    result = fit(net, (x, y), "map", "gaussian", epochs=200, lr=0.02, standardize=True)
    assert result.preparation is not None
    error = (result.predict(x).mean.squeeze() - torch.as_tensor(y.to_numpy().copy())).abs().mean()
    assert float(error) < 60
    assert float(result.evaluate(x, y)["rmse"]) < 80
    names = fit(nn.LazyLinear(3), (x[["a"]], x["b"]), "map", epochs=1)
    assert names.predict(x[["a"]]).class_names == ("u", "v", "w")


def test_images_of_bytes() -> None:
    x = (torch.rand(40, 1, 4, 4) * 255).to(torch.uint8)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with pytest.warns(DataWarning, match="255"):
        fit(net, (x, Y[:40]), "map", epochs=1)


def test_numpy_numbers_are_numbers() -> None:
    for seed in np.arange(2):
        result = fit(
            network(), (X, Y), "map", epochs=np.int64(1), seed=seed, batch_size=np.int32(40), lr=np.float32(1e-2)
        )
        assert same(
            result, fit(network(), (X, Y), "map", epochs=1, seed=int(seed), batch_size=40, lr=float(np.float32(1e-2)))
        )


def test_a_run_in_a_folder(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 2, "folder": tmp_path / "run", "progress": False}
    result = fit(network(), (X, Y), "bbb", **given)
    again = fit(network(), (X, Y), "bbb", resume=True, **given)
    assert same(result, again)
    assert torch.equal(load(tmp_path / "run" / "model").predict(X).probabilities, result.predict(X).probabilities)
    assert len((tmp_path / "run" / "metrics-0.csv").read_text().splitlines()) == 3
    with pytest.raises(FileError, match=r"method.temperature was 'auto', is 1.0"):
        fit(network(), (X, Y), "bbb", resume=True, temperature=1.0, **given)
    with pytest.raises(FileError, match=r"data.training.targets differs"):
        fit(network(), (X, 1 - Y), "bbb", resume=True, **given)
    with pytest.raises(FileError, match="epochs was 2, is 3"):
        fit(network(), (X, Y), "bbb", resume=True, **{**given, "epochs": 3})


def test_calibrated_run_resumes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 2, "calibrate": 3, "lr": 0.01}
    whole = fit(network(), (X, Y), "map", **given)
    fit(network(), (X, Y), "map", folder=RunFolder(tmp_path, every_steps=1), **given)
    resumed = fit(network(), (X, Y), "map", folder=tmp_path, resume=True, **given)
    assert resumed.calibration == whole.calibration


def test_fit_in_a_thread() -> None:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.append(fit(network(), (X, Y), "map", epochs=1)))
    thread.start()
    thread.join()
    assert same(found[0], fit(network(), (X, Y), "map", epochs=1))


def test_mixed_precision_and_pieces() -> None:
    result = fit(network(), (X, Y), "bbb", epochs=2, devices=Devices(precision="bf16-mixed"), accumulate=2)
    assert result.history.epochs[-1].nll < 1


def test_repr_says_what_it_is() -> None:
    result = fit(network(), (X, Y), "bbb", epochs=30, seed=3)
    text = repr(result)
    for part in ("method 'bbb'", "seed 3", "trained 30 epochs", "ELBO", "checks:"):
        assert part in text
    assert result.ok == all(check.ok is not False for check in result.checks)
    assert result.num_variational_params == 2 * 50
    assert 0 < result.std_ratio < 2


def test_no_epochs_find_noise_and_temperature() -> None:
    net = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(PROBLEM.mean()[None])
    result = fit(net, (PROBLEM.x, PROBLEM.y), "laplace", "gaussian", epochs=0)
    assert torch.equal(result.model.posterior.mean.detach(), net.weight[0])
    residual = PROBLEM.y - PROBLEM.x @ PROBLEM.mean()
    variance = result.likelihood.mean_and_variance(torch.zeros(1, 1, dtype=torch.float64))[1].item()
    assert variance == pytest.approx(float(residual.square().mean()), rel=1e-4)
    unexplained = float(residual.square().mean() / PROBLEM.y.var(correction=0))
    assert result.temperature == pytest.approx(0.1 * unexplained, rel=1e-4)


def test_weights_count_in_the_elbo_as_repeated_rows() -> None:
    weight = torch.ones(60, dtype=torch.float64)
    weight[:20] = 2
    given: dict[str, Any] = {"epochs": 1, "prior": {"name": "normal", "std": 1.0}, "temperature": 1.0}
    net, likelihood = nn.Linear(4, 1, bias=False).double(), Gaussian(noise="known", std=PROBLEM.noise_std)
    result = fit(net, (PROBLEM.x, PROBLEM.y, weight), "map", likelihood, **given)
    rows = [*range(60), *range(20)]
    weighted = result.measure_elbo((PROBLEM.x, PROBLEM.y, weight))
    repeated = result.measure_elbo((PROBLEM.x[rows], PROBLEM.y[rows]))
    assert weighted is not None
    assert repeated is not None
    assert weighted.elbo == pytest.approx(repeated.elbo)
