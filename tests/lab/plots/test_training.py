from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeswell.core.errors import DataError, Unsupported
from bayeswell.lab.plots import plot_posterior, plot_training
from bayeswell.training import Result, fit
from made_runs import made_record

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(7))
Y = (X[:, 0] > 0).long()


def trained(method: str, **settings: object) -> Result:
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    return fit(net, (X, Y), method, epochs=3, progress=False, **settings)  # type: ignore[arg-type]


def test_training_curves_are_the_history():
    result = trained("bbb", validation=(X[:10], Y[:10]))
    lines = plot_training(result).axes[0].lines
    epochs = result.history.epochs
    assert lines[0].get_xydata().tolist() == [[record.epoch + 1, record.nll] for record in epochs]
    assert list(lines[1].get_ydata()) == [record.validation["nll"] for record in epochs]


def test_each_member_has_a_line():
    result = trained("deep-ensemble", members=3)
    axes = plot_training({"ensemble": result}, "lr.means").axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 3, 3]
    assert len(axes.get_legend().get_texts()) == 1


def test_a_record_draws_its_epochs():
    record = made_record("digits", "map", 0, 0.5)
    assert plot_training(record).axes[0].lines[0].get_xydata().tolist() == [[1, 1.0], [2, 0.5]]
    with pytest.raises(DataError, match="no epoch has the number 'speed'"):
        plot_training(record, "speed")


def test_posterior_shows_both_ratios_of_each_parameter():
    result = trained("bbb")
    axes = plot_posterior(result).axes[0]
    posterior, prior = result.model.posterior, result.model.prior
    places = list(result.model.layout.slices.values())
    mean, std = posterior.mean.detach(), posterior.std().detach()
    ratios = [float((std / prior.std())[place].mean()) for place in places]
    signals = [float(mean[place].abs().mean() / std[place].mean()) for place in places]
    drawn = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    assert list(drawn[0].get_xdata()) == pytest.approx(ratios, rel=1e-5)
    assert list(drawn[1].get_xdata()) == pytest.approx(signals, rel=1e-5)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(result.model.layout.slices)


def test_posterior_of_a_record():
    layer = {"name": "0.weight", "size": 8, "std": 0.1, "prior_std": 0.4, "mean_abs": 0.3}
    record = made_record("digits", "bbb", 0, 0.5, posterior={"layers": [layer]})
    drawn = [line for line in plot_posterior(record).axes[0].lines if line.get_marker() in ("o", "s")]
    assert [line.get_xdata()[0] for line in drawn] == pytest.approx([0.25, 3.0])


def test_a_point_estimate_has_no_posterior_to_plot():
    with pytest.raises(Unsupported, match="has no stds"):
        plot_posterior(trained("map"))
    with pytest.raises(DataError, match="has no stds"):
        plot_posterior(made_record("digits", "map", 0, 0.5))
