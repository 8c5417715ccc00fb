"""Every Gaussian family scales its deviations from the mean by one number, all of them; the others refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import SettingError
from bayeswell.lifting import with_scaled_stds
from bayeswell.testing.posteriors import moved
from nets import POSTERIOR_CHOICES, Choice, label


def _model(choice: Choice) -> bw.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Conv1d(5, 3, 1), nn.Flatten()).double()
    model = bw.bayesian(net, "delta")
    part = bw.POSTERIORS.resolve(choice)
    built = part.build(model.layout, model.prior, model.posterior.mean_vector().detach())
    return model.with_posterior(part, moved(built))


@pytest.mark.parametrize("choice", POSTERIOR_CHOICES, ids=label)
def test_draws_move_along_the_line_to_the_mean(choice: Choice) -> None:
    model = _model(choice)
    before = {name: tensor.clone() for name, tensor in model.posterior.state_dict().items()}
    if choice["name"] in ("delta", "empirical", "mixture"):
        assert not model.posterior.can_scale_stds
        with pytest.raises(SettingError, match="no spread around a mean"):
            with_scaled_stds(model, 0.37)
        return
    assert model.posterior.can_scale_stds
    noise = torch.randn(6, model.posterior.noise_size, dtype=torch.float64)
    mean, drawn = model.posterior.mean_vector(), model.posterior.sample(noise)
    for scale in (0.37, 2.6):
        scaled = with_scaled_stds(model, scale).posterior
        torch.testing.assert_close(scaled.sample(noise), mean + scale * (drawn - mean), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(scaled.std_vector(), scale * model.posterior.std_vector(), rtol=1e-9, atol=0)
        torch.testing.assert_close(scaled.mean_vector(), mean, rtol=0, atol=0)
    for name, tensor in model.posterior.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)  # the model itself is as it was


def test_a_scale_of_zero_is_the_mean_network() -> None:
    model = _model({"name": "k_tied", "rank": 2})
    point = with_scaled_stds(model, 0.0)
    assert point.posterior_part.name == "delta"
    assert point.useful_draws(50) == 1
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    expected = model.call(model.centre(), x)
    torch.testing.assert_close(point.call(point.draw(), x), expected, rtol=0, atol=0)
    assert with_scaled_stds(model, 1.0) is model
