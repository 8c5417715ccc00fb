"""Every named method, and random legal compositions of parts, train, predict, repeat and survive a save."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.averaging import AVERAGING
from bayeswell.datasets import Split, digits
from bayeswell.gradients import Sharpness
from bayeswell.methods import METHODS, Method, assemble, find_method, method_names
from bayeswell.metrics import accuracy
from bayeswell.optimizers import OPTIMIZERS, RATES
from bayeswell.samplers import SAMPLERS
from bayeswell.training import fit, fit_member
from unjudged import unjudged

NAMES = [*METHODS, *(f"f-{name}" for name in METHODS), "f-bbb-geometry", "f-k-tied-geometry", "f-vl-geometry"]


@pytest.fixture(scope="module")
def data() -> Split:
    return digits()


def small() -> nn.Module:
    """Wide enough to learn in 16 steps, and a step costs the same at any such width."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.Softplus(), nn.Linear(40, 10))


def quiet_fit(net: nn.Module, data: Split, method: str | Method, examples: int = 400, **settings):
    with warnings.catch_warnings():
        # Short runs are too short for stds to converge, and say so.
        warnings.simplefilter("ignore", bw.BayeswellWarning)
        return fit(net, (data.train_inputs[:examples], data.train_targets[:examples]), method, **settings)


def assert_lives(data: Split, method: str | Method, folder: Path, **settings) -> None:
    """The loss falls, predictions are probabilities, a repeat is identical, and so is what was saved."""
    settings = {"epochs": 4, "batch_size": 100, "seed": 3, **settings}
    result = quiet_fit(small(), data, method, **settings)
    for history in result.histories:
        totals = [record.nll for record in history.epochs]
        assert totals[-1] < 0.9 * totals[0], totals
    found = result.predict(data.test_inputs[:50], draws=7, seed=1).probabilities
    assert found.shape == (50, 10)
    assert bool(found.isfinite().all())
    assert float(found.min()) >= 0
    torch.testing.assert_close(found.sum(-1), torch.ones(50))
    assert accuracy(found, data.test_targets[:50]) > 0.5
    with unjudged():
        again = quiet_fit(small(), data, method, **settings).predict(data.test_inputs[:50], draws=7, seed=1)
    assert torch.equal(found, again.probabilities)
    result.save(folder / "model")
    saved = bw.load(folder / "model", small())
    back = bw.predict(saved.model, data.test_inputs[:50], saved.likelihood, draws=7, seed=1)
    assert torch.equal(found, back.probabilities)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_method_lives(name: str, data: Split, tmp_path: Path) -> None:
    # Two are an ensemble. How many "auto" has by itself is in test_budget.py.
    settings: dict[str, Any] = {"members": 2} if name.endswith(("ensemble", "auto")) else {}
    if "swag" in name:
        settings["epochs"] = 6  # two snapshots, one an epoch in the last quarter
    assert_lives(data, name, tmp_path, **settings)


def compositions(count: int, seed: int) -> list[dict]:
    """``count`` legal compositions drawn from the registries; whatever is refused is refused as a composition."""
    chance = random.Random(seed)
    legal: list[dict] = []
    tries = 0
    plan = {"dataset_size": 200, "batches": 5, "epochs": 4, "generator": bw.make_generator(0)}
    while len(legal) < count and tries < 400:
        tries += 1
        chosen = {
            "posterior": chance.choice(list(bw.POSTERIORS)),
            "prior": chance.choice(list(bw.PRIORS)),
            # The score function is there for the record: its noise lets no short run learn.
            "estimator": chance.choice([e for e in bw.ESTIMATORS if e != "score_function"]),
            "divergence": chance.choice([None, *(d for d in bw.DIVERGENCES if d != "score_function")]),
            "kl_weight": chance.choice(["uniform", {"name": "geometric", "ratio": 0.9}, "linear_anneal"]),
            "stepper": chance.choice([*OPTIMIZERS, *SAMPLERS]),
            "rate": chance.choice(list(RATES)),
            "collector": chance.choice([None, None, *AVERAGING]),
            "sharpness": chance.choice([None, Sharpness(0.01), Sharpness(0.01, "mean_over_std")]),
            "temperature": chance.choice([0.1, 0.03]),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bw.BayeswellWarning)
            try:
                assemble(METHODS["bbb"].changed(**chosen), small(), "categorical", **plan)
            except (bw.CompositionError, bw.SettingError):
                continue
        legal.append(chosen)
    assert len(legal) == count, f"only {len(legal)} legal compositions in {tries} tries"
    return legal


@pytest.mark.parametrize("number", range(20))
def test_random_legal_compositions_live(number: int, data: Split, tmp_path: Path) -> None:
    (chosen,) = compositions(1, seed=number)
    method = METHODS["bbb"]
    settings = {**chosen, "epochs": 4, "batch_size": 40}
    result = quiet_fit(small(), data, method, examples=200, **settings)
    records = [record.nll for record in result.histories[0].epochs]
    assert min(records[1:]) < records[0], chosen
    found = result.predict(data.test_inputs[:20], draws=5, seed=1).probabilities
    torch.testing.assert_close(found.sum(-1), torch.ones(20))
    with unjudged():
        again = quiet_fit(small(), data, method, examples=200, **settings)
    assert torch.equal(found, again.predict(data.test_inputs[:20], draws=5, seed=1).probabilities), chosen
    result.save(tmp_path / "model")
    saved = bw.load(tmp_path / "model", small())
    back = bw.predict(saved.model, data.test_inputs[:20], saved.likelihood, draws=5, seed=1)
    assert torch.equal(found, back.probabilities), chosen


def test_members_differ_and_each_is_reproducible_on_its_own(data: Split) -> None:
    settings = {"epochs": 2, "batch_size": 50, "seed": 5}
    result = quiet_fit(small(), data, "deep-ensemble", members=3, **settings)
    bank = result.model.posterior.weights
    assert len({tuple(row.tolist()) for row in bank}) == 3
    train = (data.train_inputs[:400], data.train_targets[:400])
    for member in range(3):
        alone = fit_member(small(), train, "deep-ensemble", "categorical", member, members=3, **settings)
        assert torch.equal(alone.posterior.mean_vector(), bank[member])


def test_members_see_the_data_in_different_orders() -> None:
    seen: list[list[int]] = []

    class Spy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2, 1))

        def forward(self, x: Tensor) -> Tensor:
            seen.append(x[:, 0].int().tolist())
            return x @ self.weight.T

    x = torch.arange(8.0)[:, None]
    quiet = {"epochs": 1, "batch_size": 8, "temperature": 0.0}
    fit(Spy(), (x, torch.zeros(8, dtype=torch.long)), "deep-ensemble", members=2, **quiet)
    first, second, *_ = [batch for batch in seen if len(batch) == 8]  # before them the data are tried with two examples
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second


def test_the_callers_random_stream_is_left_alone(data: Split) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    quiet_fit(small(), data, "bbb", epochs=1)
    # ``small`` seeds with 0 before training; the stream goes on from there.
    found = torch.rand(3)
    small()
    assert torch.equal(found, torch.rand(3))
    assert not torch.equal(found, expected)


@pytest.mark.parametrize("name", ["bbb", "swag", "sgld"])
def test_networks_with_batch_norm_predict_with_statistics_of_their_own(name: str, data: Split) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.BatchNorm1d(40), nn.Softplus(), nn.Linear(40, 10))
    result = quiet_fit(net, data, name, epochs=8, batch_size=50)
    found = result.predict(data.test_inputs, draws=20, seed=0)
    assert accuracy(found.probabilities, data.test_targets) > 0.8


def test_cost_counts_passes() -> None:
    assert METHODS["map"].cost == 3
    assert find_method("f-bbb").cost == 6
    assert find_method("f-flipout").cost == 12
    assert METHODS["vl"].cost == 9
    assert METHODS["deep-ensemble"].cost == 15
    assert METHODS["bbb"].changed(estimator={"name": "weight_sampling", "draws": 4}).cost == 12


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "bbbb"}, ["unknown method 'bbbb'", "did you mean 'bbb'"]),
        ({"method": "f-swag-geometry"}, ["f-swag-geometry", "stds", "swag"]),
        ({"posteriour": "delta"}, ["no setting 'posteriour'", "did you mean 'posterior'"]),
        ({"stepper": "adm"}, ["unknown stepper 'adm'", "adam"]),
        ({"stepper": "sgld"}, ["sgld", "mean_field", "delta"]),
        ({"posterior": "delta", "stepper": "sgld"}, ["sgld", "bank"]),
        ({"post_hoc": "laplace"}, ["laplace", "mean_field", "delta"]),
        ({"stepper": "ivon", "posterior": "k_tied"}, ["ivon", "k_tied", "mean_field"]),
        ({"stepper": "ivon", "estimator": "flipout"}, ["ivon", "flipout", "weight_sampling"]),
        ({"stepper": "ivon", "prior": "laplace"}, ["ivon", "Gaussian prior"]),
        ({"posterior": "delta", "alternate": 2}, ["alternate = 2", "delta"]),
        ({"stepper": "ivon", "alternate": 2}, ["ivon", "alternate = 2"]),
        ({"stepper": None}, ["stepper"]),
        ({"dropout": "mine"}, ["dropout", "own"]),
        ({"plateau": {"stds": {"metrik": "kl"}}}, ["metrik", "metric"]),
        ({"plateau": {"means": {"metric": "nnl"}}}, ["metric = 'nnl'", "did you mean 'nll'"]),
        ({"plateau": {"mean": {"metric": "nll"}}}, ["no parameter group 'mean'", "means"]),
        ({"members": 0}, ["members = 0"]),
        ({"epochs": 0}, ["epochs = 0"]),
        ({"sharpness": {"rh": 0.1}}, ["no setting 'rh'", "rho"]),
        ({"sharpness": {"rho": -1}}, ["rho = -1"]),
        ({"prior": "scale_mixture", "divergence": "analytic"}, ["analytic", "scale_mixture", "monte_carlo"]),
        ({"method": "hwa", "epochs": 1, "collector": {"name": "hwa", "start": 0.999}}, ["hwa"]),
        ({"method": "swag", "epochs": 2}, ["swag"]),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings: dict, words: list[str], data: Split) -> None:
    with pytest.raises((bw.SettingError, bw.CompositionError)) as caught:
        quiet_fit(small(), data, **{"method": "bbb", "epochs": 4, **settings})
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_run_that_explodes_stops_before_the_step_and_keeps_what_was_learned(data: Split) -> None:
    with pytest.raises((bw.DataError, bw.DivergenceError), match=r"step \d+: .*no step was taken") as caught:
        quiet_fit(small(), data, "map", stepper={"name": "sgd", "lr": 1e30}, epochs=2)
    assert isinstance(caught.value.model, bw.BayesianModule)
    # Step 0 itself was finite: it is the last good one.
    assert bool(caught.value.model.posterior.mean.isfinite().all())


def test_a_gradient_that_is_not_finite_names_its_parameter() -> None:
    class Blows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            # sqrt has an infinite slope at 0, and only the second layer's weight is under it.
            return self.first(x).detach().sum(-1, keepdim=True) + (self.second.weight.sum(1) * 0).sqrt()

    with pytest.raises(bw.DivergenceError, match=r"step 0: the gradient of 'second\.weight' is not finite"):
        fit(Blows(), (torch.ones(4, 2), torch.zeros(4, dtype=torch.long)), "map", epochs=1)


def test_gradients_whose_squares_overflow_are_refused() -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) * 1e25

    data = (torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
    # Adam's second moments would be infinite, and its steps zero for ever. Clipped it is a gradient like any other:
    # tests/training/test_divergence_by_name.py.
    with pytest.raises(bw.DivergenceError, match=r"step 0: the gradient of .* is not finite"):
        fit(Steep(), data, "map", epochs=1)


def test_a_complex_parameter_is_trained_beside_the_bayesian_ones() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.phase = nn.Linear(2, 3), nn.Parameter(torch.ones(3, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (self.first(x) * self.phase).real

    found = fit(Turned(), (torch.randn(8, 2), torch.arange(8) % 3), "map", epochs=2)
    assert not torch.equal(found.model.net.get_parameter("phase"), torch.ones(3, dtype=torch.complex64))


def test_every_name_is_found_and_says_what_it_is() -> None:
    for name in method_names():
        method = find_method(name)
        assert method.summary
        assert method.paper
        assert method.cost >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", list(METHODS))
def test_methods_beat_logistic_regression_on_digits(name: str, data: Split) -> None:
    from sklearn.linear_model import LogisticRegression

    linear = LogisticRegression(max_iter=2000).fit(data.train_inputs.flatten(1), data.train_targets)
    baseline = linear.score(data.test_inputs.flatten(1), data.test_targets)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    result = quiet_fit(net, data, name, examples=len(data.train_targets), epochs=40, batch_size=50)
    found = accuracy(result.predict(data.test_inputs, draws=50).probabilities, data.test_targets)
    assert found > baseline
