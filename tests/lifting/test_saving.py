"""A model on disk predicts as it did; what does not fit is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.lifting import with_drawn_dropout
from bayeswell.posteriors import Empirical, EmpiricalPosterior

TRAINABLE = [name for name in bw.POSTERIORS if name not in ("empirical", "mixture")]


def network(hidden: int = 7) -> nn.Module:
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Linear(hidden, 3))


@pytest.fixture
def inputs() -> Tensor:
    return torch.randn(9, 4, generator=torch.Generator().manual_seed(0))


def shaken(model: bw.BayesianModule) -> bw.BayesianModule:
    """Every number away from its start, so that a round trip which loses one is seen."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in [*model.parameters(), *model.net.buffers()]:
            if value.is_floating_point():
                value += 0.1 * torch.rand(value.shape, generator=generator)
    return model


def assert_same_predictions(model: bw.BayesianModule, saved: bw.Saved, inputs: Tensor) -> None:
    before = bw.predict(model, inputs, bw.Categorical(), draws=6, seed=1)
    after = bw.predict(saved.model, inputs, saved.likelihood, draws=6, seed=1)
    assert torch.equal(before.probabilities, after.probabilities)
    assert float(before.entropy.std()) > 0


@pytest.mark.parametrize("posterior", TRAINABLE)
def test_every_posterior_comes_back(posterior: str, tmp_path: Path, inputs: Tensor) -> None:
    settings = {"k_tied": {"rank": 3, "tie": ("0.*", "3.*")}, "low_rank": {"rank": 4}}.get(posterior, {})
    model = shaken(
        bw.bayesian(network(), {"name": posterior, **settings}, {"0.*": "kaiming", "*": bw.LaplacePrior(0.4)})
    )
    bw.save(tmp_path / "model", model, "categorical")
    saved = bw.load(tmp_path / "model", network())
    assert_same_predictions(model, saved, inputs)
    assert saved.model.posterior_part == model.posterior_part
    assert saved.model.prior.settings() == model.prior.settings()
    assert str(saved.model.describe()) == str(model.describe())


def test_a_bank_comes_back_with_what_belongs_to_each_member(tmp_path: Path, inputs: Tensor) -> None:
    model = bw.bayesian(network(), "delta")
    weights = torch.randn(5, model.layout.size, generator=torch.Generator().manual_seed(4))
    extras = {"1.running_mean": torch.randn(5, 7, generator=torch.Generator().manual_seed(5))}
    bank = model.with_posterior(Empirical(5, tuple(extras)), EmpiricalPosterior(model.layout, weights, extras))
    bw.save(tmp_path / "bank", bank, "categorical")
    assert_same_predictions(bank, bw.load(tmp_path / "bank", network()), inputs)


@pytest.mark.parametrize("chances", [(0.2, 0.2), (0.2, 0.6)])
def test_drawn_dropout_comes_back(chances: tuple[float, float], tmp_path: Path, inputs: Tensor) -> None:
    def dropping() -> nn.Module:
        first, second = chances
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(first), nn.Linear(8, 8), nn.Dropout(second), nn.Linear(8, 3))

    model = bw.bayesian(with_drawn_dropout(dropping()), "delta")
    bw.save(tmp_path / "model", model, "categorical")
    assert_same_predictions(model, bw.load(tmp_path / "model", dropping()), inputs)


def test_learned_noise_and_partial_bayes_come_back(tmp_path: Path, inputs: Tensor) -> None:
    likelihood = bw.Gaussian("learned", 0.7)
    with torch.no_grad():
        next(likelihood.parameters()).add_(0.31)
    model = shaken(bw.bayesian(network(), where="last_layer", estimator=bw.WeightSampling(draws=4, antithetic=True)))
    bw.save(tmp_path / "model", model, likelihood)
    saved = bw.load(tmp_path / "model", network())
    before = bw.predict(model, inputs, likelihood, draws=6, seed=1)
    after = bw.predict(saved.model, inputs, saved.likelihood, draws=6, seed=1)
    assert torch.equal(before.variance, after.variance)
    assert saved.model.estimator == model.estimator


def test_another_network_is_refused(tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(network()), "categorical")
    for other, expected in (
        (network(8), r"'0.weight' was saved with shape \[7, 4\], the network given has \[8, 4\]"),
        (nn.Sequential(nn.Linear(4, 7)), "'3.weight'"),
    ):
        with pytest.raises(bw.BayeswellError, match=expected) as caught:
            bw.load(tmp_path / "model", other)
        assert "\n" not in str(caught.value)


def test_a_cut_or_altered_model_is_refused(tmp_path: Path) -> None:
    bw.save(tmp_path / "model", bw.bayesian(network()), "categorical")
    file = max((tmp_path / "model").iterdir(), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:]):
        file.write_bytes(damaged)
        with pytest.raises(bw.FileError, match=file.name):
            bw.load(tmp_path / "model", network())
