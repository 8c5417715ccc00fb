"""k-tied on a network none of whose matrices can be tied: mean-field, and it says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.errors import BayeswellWarning, SettingError


def _narrow() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))


def test_it_is_mean_field_with_a_warning() -> None:
    with pytest.warns(
        BayeswellWarning, match=r"k_tied: rank = 2 exceeds the smaller side \(1\).*all stds are mean-field"
    ):
        model = bw.bayesian(_narrow(), posterior="k_tied")
    plain = bw.bayesian(_narrow(), posterior="mean_field")
    assert set(model.state_dict()) == set(plain.state_dict())
    for name, value in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    assert {row.posterior for row in model.describe().rows} == {"mean_field"}


@pytest.mark.filterwarnings("ignore:the stds cannot converge", "ignore:.*the stds have hardly moved")  # in two epochs
def test_one_in_one_out_is_fitted_saved_and_loaded(tmp_path: object) -> None:
    x = torch.linspace(-1, 1, 20)[:, None]
    with pytest.warns(BayeswellWarning, match="all stds are mean-field"):
        result = bw.fit(_narrow(), (x, x.sin()), method="k-tied", likelihood="gaussian", epochs=2, seed=0)
    result.save(f"{tmp_path}/model")
    with pytest.warns(BayeswellWarning, match="all stds are mean-field"):
        loaded = bw.load(f"{tmp_path}/model")
    assert torch.equal(loaded.predict(x, draws=3).mean, result.predict(x, draws=3).mean)


def test_a_pattern_that_fits_nothing_is_still_refused() -> None:
    with pytest.raises(SettingError, match="fits no weight matrix"):
        bw.bayesian(_narrow(), posterior={"name": "k_tied", "tie": "5.*"})


class _Scales(nn.Module):
    """No matrix at all."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.5, 2.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.scale


def test_a_network_without_a_matrix_is_mean_field_with_a_warning() -> None:
    with pytest.warns(BayeswellWarning, match="no weight matrix to tie; all stds are mean-field"):
        model = bw.bayesian(_Scales(), posterior="k_tied")
    assert torch.equal(model.posterior.mean_vector(), torch.tensor([0.5, 2.0]))
    assert {row.posterior for row in model.describe().rows} == {"mean_field"}
