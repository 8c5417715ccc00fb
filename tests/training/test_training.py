"""The loop, its data and the range test: what each promises, seen from outside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import bayeswell as bw
from bayeswell.plots import plot_rate_range
from bayeswell.training import EpochRecord, as_batches, fit, rate_range


def problem(examples: int = 120) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(examples, 4, generator=generator)
    return x, x[:, :3].argmax(1)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore", bw.BayeswellWarning)


def test_an_epoch_shows_every_example_once_in_an_order_of_the_seed() -> None:
    x, y = torch.arange(23.0)[:, None], torch.arange(23)
    batches = as_batches((x, y), 5)
    assert (batches.examples, batches.count) == (23, 5)
    first = [targets for _, targets in batches.epoch(1)]
    assert [len(part) for part in first] == [5, 5, 5, 5, 3]
    assert sorted(torch.cat(first).tolist()) == list(range(23))
    again = [targets for _, targets in batches.epoch(1)]
    other = [targets for _, targets in batches.epoch(2)]
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert not torch.equal(torch.cat(first), torch.cat(other))
    for inputs, targets in batches.epoch(3):
        assert torch.equal(inputs[:, 0].long(), targets)
    entered = [targets for _, targets in batches.epoch(1, start=3)]
    assert torch.equal(torch.cat(entered), torch.cat(first[3:]))


def test_tensors_arrays_and_data_sets_give_the_same_result() -> None:
    x, y = problem()
    forms = {
        "tensors": (x, y),
        "arrays": (x.numpy(), y.numpy()),
        "float64 arrays": (x.numpy().astype(np.float64), y.numpy()),
        "data set": TensorDataset(x, y),
    }
    found = {
        name: fit(network(), form, "bbb", epochs=3, batch_size=30, seed=4).model.posterior.mean_vector()
        for name, form in forms.items()
    }
    for name, mean in found.items():
        assert torch.equal(mean, found["tensors"]), name


def test_a_loader_keeps_its_own_order_and_batches() -> None:
    x, y = problem(20)
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    batches = as_batches(loader, 999)
    assert (batches.examples, batches.count) == (20, 3)
    assert torch.equal(torch.cat([inputs for inputs, _ in batches.epoch(0)]), x)
    fit(network(), loader, "map", epochs=2)


def test_several_inputs_are_cut_alike() -> None:
    x, y = problem(20)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            assert torch.equal(left, -right)
            return self.layer(left)

    torch.manual_seed(1)
    fit(Two(), ((x, -x), y), "map", epochs=2, batch_size=7)
    fit(Two(), ({"left": x, "right": -x}, y), "map", epochs=2, batch_size=7)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("digits", ["str", "inputs, targets"]),
        ((torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)), ["empty"]),
        ((torch.zeros(5, 4), torch.zeros(4, dtype=torch.long)), ["5 inputs but 4 targets"]),
        ((np.array([[1, None]], dtype=object), np.array([1])), ["objects"]),
        ((torch.full((5, 4), torch.nan), torch.zeros(5, dtype=torch.long)), ["NaN", "inputs"]),
        ((torch.zeros(5, 4), torch.full((5,), 3)), ["label 3", "0 to 2"]),
        ((torch.zeros(5, 4), torch.zeros(5)), ["float32", "integers"]),
    ],
)
def test_bad_data_give_one_line(data, words: list[str]) -> None:
    with pytest.raises(bw.DataError) as caught:
        fit(network(), data, "bbb", epochs=1)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_watchers_see_every_epoch_and_a_falling_objective() -> None:
    seen: list[EpochRecord] = []
    result = fit(network(), problem(), "bbb", epochs=8, batch_size=20, temperature=0.1, watch=seen.append)
    assert [record.epoch for record in seen] == list(range(8))
    assert tuple(seen) == tuple(result.histories[0].epochs)
    assert seen[-1].total < seen[0].total
    assert seen[-1].std_ratio == pytest.approx(result.std_ratio, rel=1e-6)


def test_the_total_is_nll_plus_tempered_kl_over_n() -> None:
    record = fit(network(), problem(), "bbb", epochs=1, batch_size=30, temperature=0.37).histories[0].epochs[0]
    assert record.total == pytest.approx(record.nll + 0.37 * record.kl / 120, rel=1e-5)


def test_alternating_training_holds_one_group_at_a_time() -> None:
    """With one epoch each: after one epoch stds are where they began, after two both have moved."""
    start = bw.bayesian(network()).posterior
    one = fit(network(), problem(), "bbb", epochs=1, alternate=1).model.posterior
    two = fit(network(), problem(), "bbb", epochs=2, alternate=1, rate="constant").model.posterior
    assert torch.equal(one.log_std, start.log_std)
    assert not torch.equal(one.mean, start.mean)
    assert torch.equal(
        two.mean, fit(network(), problem(), "bbb", epochs=1, rate="constant", alternate=1).model.posterior.mean
    )
    assert not torch.equal(two.log_std, start.log_std)


def test_a_plateau_lowers_its_own_group_only() -> None:
    """A metric that cannot improve (patience 0, an enormous threshold) stops the stds; the means go on."""
    stuck = {"stds": {"metric": "kl", "patience": 0, "threshold": 1e9, "factor": 1e-30}}
    common = {"epochs": 4, "batch_size": 30, "rate": "constant", "temperature": 0.1}
    stopped = fit(network(), problem(), "bbb", plateau=stuck, **common)
    ratios = [record.std_ratio for record in stopped.histories[0].epochs]
    # The plateau looks after the second epoch: from the third on the stds stand still.
    assert ratios[1] != ratios[0]
    assert ratios[2:] == pytest.approx([ratios[1]] * 2, rel=1e-6)
    nll = [record.nll for record in stopped.histories[0].epochs]
    assert nll[3] < nll[1]


def test_clipping_bounds_the_step_of_plain_sgd() -> None:
    start = bw.bayesian(network(), "delta").posterior.mean.detach().clone()
    settings = {
        "epochs": 1,
        "batch_size": 120,
        "rate": "constant",
        "stepper": {"name": "sgd", "lr": 1.0, "momentum": 0.0},
    }
    free = fit(network(), problem(), "map", **settings).model.posterior.mean.detach() - start
    bound = fit(network(), problem(), "map", clip_norm=0.01, **settings).model.posterior.mean.detach() - start
    assert float(free.norm()) > 0.02
    assert float(bound.norm()) == pytest.approx(0.01, rel=1e-3)


def test_short_runs_are_told_that_stds_cannot_converge() -> None:
    with pytest.warns(bw.BayeswellWarning, match="stds cannot converge.*rate of the stds"):
        fit(network(), problem(), "bbb", epochs=1, batch_size=60)


def test_samplers_report_whether_their_chains_agree() -> None:
    result = fit(network(), problem(), "sgld", epochs=20, batch_size=40, members=2)
    report = result.chains
    assert report is not None
    assert report.chains == 2
    assert report.r_hat > 1.01
    assert not report.converged
    with pytest.warns(bw.BayeswellWarning, match="have not mixed: R-hat"):
        fit(network(), problem(), "sgld", epochs=20, batch_size=40, members=2)
    assert fit(network(), problem(), "map", epochs=1).chains is None


def test_the_rate_range_finds_where_training_breaks() -> None:
    """SGD on 0.5 h w^2 is stable below 2/h: the test breaks above it and suggests a rate below it."""
    torch.manual_seed(0)
    x = torch.randn(200, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    h = float(torch.linalg.eigvalsh(x.T @ x / 200).max())
    found = rate_range(
        nn.Linear(3, 1), (x, y), "map", {"name": "gaussian", "noise": "known", "std": 1.0},
        stepper={"name": "sgd", "lr": 0.1, "momentum": 0.0}, batch_size=200, steps=120, lowest=1e-3, highest=100.0,
    )  # fmt: skip
    assert found.broke_at is not None
    assert 2 / h < found.broke_at < 30 / h
    assert 0.02 / h < found.suggestion < 2 / h
    axes = plot_rate_range(found)
    assert axes.get_xscale() == "log"
    line = axes.get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), found.rates)
    np.testing.assert_allclose(line.get_ydata(), found.objectives)
    with pytest.raises(bw.SettingError, match=r"lowest = 1, highest = 0\.1"):
        rate_range(network(), problem(), lowest=1, highest=0.1)


def test_a_loader_that_drops_or_samples_keeps_the_scale_of_the_objective() -> None:
    """total = nll + T KL / N with the N that the sampler goes through, whatever the loader leaves out."""
    x, y = problem(100)
    loaders = {
        100: DataLoader(TensorDataset(x, y), batch_size=70, drop_last=True),
        40: DataLoader(TensorDataset(x, y), batch_size=15, sampler=SubsetRandomSampler(range(40))),
    }
    for size, loader in loaders.items():
        record = fit(network(), loader, "bbb", epochs=1, temperature=0.37).histories[0].epochs[0]
        assert record.total == pytest.approx(record.nll + 0.37 * record.kl / size, rel=0.02)
    with pytest.raises(bw.DataError, match="shows no batch"):
        fit(network(), DataLoader(TensorDataset(x, y), batch_size=200, drop_last=True), "map")


def test_a_network_of_float64_trains_on_what_is_given() -> None:
    x, y = problem()
    for data in ((x, y), (x.double().numpy(), y.numpy()), DataLoader(TensorDataset(x, y), batch_size=30)):
        result = fit(network().double(), data, "bbb", epochs=1)
        assert result.model.posterior.mean_vector().dtype == torch.float64


def test_learned_noise_finds_the_noise_of_the_data() -> None:
    """y = x + 0.2 noise: the learned std is within 20 % of the least-squares residual's."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(400, 1, generator=generator)
    y = x + 0.2 * torch.randn(400, 1, generator=generator)
    for method in ("map", "bbb", "swag"):
        likelihood = bw.Gaussian("learned", 1.0)
        result = fit(nn.Linear(1, 1), (x, y), method, likelihood, epochs=30, batch_size=100, seed=1, lr=0.06)
        found = result.predict(x[:5], draws=5)
        assert float(found.aleatoric_variance.mean().sqrt()) == pytest.approx(0.2, rel=0.2), method
        # The object that was given is not trained.
        assert likelihood.mean_and_variance(torch.zeros(1, 1))[1].item() == pytest.approx(1.0)


def test_stds_that_stand_still_are_told_of_at_the_end() -> None:
    stepper = {"name": "sgd", "lr": 1e-6}
    with pytest.warns(bw.BayeswellWarning, match="stds have hardly moved"):
        fit(network(), problem(), "bbb", stepper=stepper, epochs=1)


def test_points_and_banks_are_not_asked_twice() -> None:
    x, _ = problem()
    assert fit(network(), problem(), "map", epochs=1).predict(x, draws=50).draws == 1
    assert fit(network(), problem(), "deep-ensemble", members=3, epochs=1).predict(x, draws=50).draws == 3
    assert fit(network(), problem(), "bbb", epochs=1).predict(x, draws=7).draws == 7
    assert fit(network(), problem(), "mc-dropout", epochs=1).predict(x, draws=7).draws == 7


def test_a_bad_batch_is_named() -> None:
    x, y = problem(30)
    loader = DataLoader(TensorDataset(x[:20], y[:20], y[:20]), batch_size=10)
    with pytest.raises(bw.DataError, match="a batch of 3 parts"):
        fit(network(), loader, "map", epochs=1)
    x[3, 1] = torch.inf
    with pytest.raises(bw.DataError, match=r"NaN or inf in the inputs.*row 3 of the data"):
        fit(network(), (x, y), "map", epochs=1, batch_size=5)


def test_few_draws_are_kept_though_nothing_can_be_told_of_their_chain() -> None:
    with pytest.warns(bw.BayeswellWarning, match="fewer than 4 draws in a chain"):
        result = fit(network(), problem(), "sgld", epochs=1, batch_size=40)
    assert result.chains is None
    assert result.predict(problem()[0]).probabilities.shape == (120, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"devices": "cpu"}, "Devices"),
        ({"callbacks": [print]}, "derive it from bayeswell.Callback"),
        ({"watch": "x"}, "a function"),
        ({"early_stopping": "x"}, "KeepBest"),
        ({"resume": True}, "no folder"),
        ({"devices": bw.Devices(precision="16-mixed", accelerator="cpu")}, "bf16-mixed"),
    ],
)
def test_settings_of_the_wrong_kind_are_one_line(settings: dict[str, object], words: str) -> None:
    with pytest.raises(bw.SettingError, match=words):
        fit(network(), problem(), "map", epochs=1, **settings)


def test_what_is_no_network_or_no_number_is_refused() -> None:
    with pytest.raises(bw.NetworkError, match="build_model"):
        fit("mlp", problem(), "map")
    with pytest.raises(bw.DataError, match=r"every one is .a.; there must be two classes"):
        fit(network(), (problem()[0], np.array(["a"] * 120)), "map")
