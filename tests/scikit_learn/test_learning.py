"""What the estimators learn and say, compared with known answers."""

from __future__ import annotations

import inspect
import subprocess
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import nn

import bayeswell as bw
from bayeswell.sklearn import BayesianClassifier, BayesianRegressor
from quick_python import QUICK_PYTHON

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.errors.BayeswellWarning")

LONG_ENOUGH: dict[str, Any] = {"epochs": 20, "batch_size": 100, "random_state": 0, "settings": {"lr": 0.05}}
"""To the optimum in few but long steps, for what is to be learned here."""


def curve(rows: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, 400 + 30 * x[:, 0] - 10 * x[:, 1] * x[:, 2] + 5 * rng.normal(size=rows)


def blobs(rows: int = 90) -> tuple[Any, Any]:
    x, y = make_blobs(rows, centers=3, random_state=0, cluster_std=0.5)
    return x, np.array(["ash", "beech", "oak"])[y]


def test_labels_of_any_kind_come_back_with_probabilities_in_the_order_of_classes() -> None:
    x, y = blobs()
    found = BayesianClassifier("bbb", epochs=20, random_state=0).fit(x, y)
    assert found.classes_.tolist() == ["ash", "beech", "oak"]
    assert found.score(x, y) > 0.95
    probabilities = found.predict_proba(x)
    np.testing.assert_array_equal(found.classes_[probabilities.argmax(1)], found.predict(x))
    split = found.predict_distribution(x)
    np.testing.assert_allclose(split.aleatoric + split.epistemic, split.entropy, atol=1e-12)


def test_noise_and_intervals_are_in_the_units_of_the_targets() -> None:
    """A linear model of linear data with noise of std 5, so that only chance keeps it from the truth.

    The learned std has a relative standard error of 1 / sqrt(2 n) = 2.9 %; an interval of 0.8 that is wrong by that
    covers 0.8 +- 2 z phi(z) 2.9 % = 0.013, and 2,000 targets add 0.009: 5 standard errors are 0.08 (rate 6e-7).
    """
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(600, 3)), rng.normal(size=(2000, 3))
    y, truth = (400 + a @ [30.0, -10.0, 0.0] + 5 * rng.normal(size=len(a)) for a in (x, new))
    found = BayesianRegressor("bbb", (), **LONG_ENOUGH).fit(x, y)
    split = found.predict_distribution(new)
    assert float(split.aleatoric_std.mean()) == pytest.approx(5, rel=5 * 0.029)
    mean, std = found.predict(new, return_std=True)
    np.testing.assert_allclose(std**2, split.variance.ravel())
    lower, upper = found.predict_interval(new, 0.8)
    assert mean.shape == std.shape == lower.shape == (2000,)
    assert ((lower <= truth) & (truth <= upper)).mean() == pytest.approx(0.8, abs=0.08)


def test_units_of_inputs_and_targets_do_not_matter() -> None:
    x, y = curve(60)
    model = BayesianRegressor("bbb", (8,), epochs=3, random_state=0)
    plain = model.fit(x, y).predict(x, return_std=True)
    mean, std = model.fit(1024 * x - 7, 0.25 * y + 3).predict(1024 * x - 7, return_std=True)
    np.testing.assert_allclose(mean, 0.25 * plain[0] + 3, rtol=1e-6)
    np.testing.assert_allclose(std, 0.25 * plain[1], rtol=1e-6)


def test_known_noise_and_counts_keep_their_units() -> None:
    x, y = curve(40)
    known = {"name": "gaussian", "noise": "known", "std": 1.5}
    found = BayesianRegressor("map", (4,), likelihood=known, epochs=2, random_state=0).fit(x, y)
    np.testing.assert_allclose(found.predict_distribution(x).aleatoric_std, 1.5, rtol=1e-6)
    counts = BayesianRegressor("map", (4,), likelihood="poisson", epochs=2, random_state=0).fit(x, np.arange(40) % 5)
    mean, std = counts.predict(x, return_std=True)
    np.testing.assert_allclose(std**2, mean, rtol=1e-6)  # a Poisson's own


def test_several_targets_have_noise_of_their_own() -> None:
    x, y = curve(300)
    both = np.column_stack([y, x[:, 0] / 100])
    found = BayesianRegressor("bbb", (20,), **LONG_ENOUGH).fit(x, both)
    mean, std = found.predict(x, return_std=True)
    assert mean.shape == std.shape == (300, 2)
    assert found.score(x, both) > 0.9
    assert std[:, 0].mean() > 100 * std[:, 1].mean()


def test_weights_of_classes_move_the_border() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1, 1, (180, 1)), rng.normal(1, 1, (20, 1))])
    y = np.repeat(["common", "rare"], [180, 20])
    # Of two normal densities of one std the log odds are linear, and so is the network.
    model = BayesianClassifier("bbb", (), epochs=30, batch_size=100, random_state=0, settings={"lr": 0.2})
    plain = model.fit(x, y).predict_proba([[0.0]])[0, 1]
    model.set_params(class_weight="balanced")
    balanced = model.fit(x, y).predict_proba([[0.0]])[0, 1]
    # At 0 both densities are equal: the odds are those of the classes, 1 : 9, and balanced 1 : 1.
    assert plain == pytest.approx(0.1, abs=0.08)
    assert balanced == pytest.approx(0.5, abs=0.12)
    model.set_params(class_weight={"common": 200 / 360, "rare": 200 / 40})
    assert model.fit(x, y).predict_proba([[0.0]])[0, 1] == balanced


def test_seeds_decide_everything_and_torch_is_left_as_it_was() -> None:
    x, y = curve(50)
    state, threads, drawn = torch.get_rng_state(), torch.get_num_threads(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = BayesianRegressor("bbb", (6,), epochs=2, random_state=3)
    one = model.fit(x, y).predict(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    np.testing.assert_array_equal(np.random.get_state()[1], drawn)  # noqa: NPY002
    torch.manual_seed(99)
    np.testing.assert_array_equal(model.fit(x, y).predict(x), one)
    source = np.random.RandomState(3)
    np.testing.assert_array_equal(model.set_params(random_state=source).fit(x, y).predict(x), one)
    assert np.abs(model.fit(x, y).predict(x) - one).max() > 0  # the source has moved on


def test_a_warm_start_is_the_longer_run() -> None:
    x, y = curve(50)
    how: dict[str, Any] = {"temperature": 0.3, "random_state": 0, "settings": {"rate": "constant"}}
    long = BayesianRegressor("bbb", (6,), epochs=6, **how).fit(x, y)
    warm = BayesianRegressor("bbb", (6,), epochs=2, warm_start=True, **how).fit(x, y)
    warm.set_params(epochs=4).fit(x, y)
    assert long.n_iter_ == warm.n_iter_ == 6
    np.testing.assert_array_equal(long.predict(x), warm.predict(x))


def test_a_warm_start_of_auto_is_one_network_that_goes_on() -> None:
    x, y = blobs()
    warm = BayesianClassifier(epochs=3, network=(6,), warm_start=True, random_state=0).fit(x, y)
    assert warm.result_.method.members == 1
    assert warm.fit(x, y).n_iter_ == 6
    with pytest.raises(ValueError, match="classes"):
        warm.fit(x, np.where(y == "oak", "elm", y))


def test_partial_fit_is_sequential_bayes() -> None:
    """Linear regression with orthogonal inputs in each part: the mean-field posterior is exact, part after part.

    With known noise std s and prior N(0, 1): precision 1 + sum x^2 / s^2, mean sum x y / s^2 / precision.
    """
    rng = np.random.default_rng(0)
    s, signs = 0.7, np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    x = np.concatenate([1.3 * np.tile(signs, (3, 1)), 0.6 * np.tile(signs, (4, 1))])
    y = x @ [0.8, -1.7] + s * rng.normal(size=len(x))
    precision = 1 + (x**2).sum(0) / s**2
    mean = x.T @ y / s**2 / precision
    model = BayesianRegressor(
        "vl", nn.Linear(2, 1, bias=False).double(), likelihood={"name": "gaussian", "noise": "known", "std": s},
        temperature=1, standardise=False, epochs=120, batch_size=100, random_state=0,
        settings={
            "prior": {"name": "normal", "std": 1.0}, "std_multiplier": 1.0, "lr": 0.1, "rate": "cosine",
            # Of the Hessian, as it is diagonal here, the estimate has no noise that steps would have to average out.
            "estimator": {"name": "variational_laplace", "curvature": "hessian"},
        },
    )  # fmt: skip
    model.partial_fit(x[:12], y[:12]).partial_fit(x[12:], y[12:])
    posterior = model.result_.model.posterior
    found = posterior.mean.detach().numpy(), posterior.std_vector().detach().numpy()
    std = precision**-0.5
    # Means to 0.15 of a std, stds to a fiftieth.
    np.testing.assert_allclose(found[0], mean, atol=0.15 * std[0])
    np.testing.assert_allclose(found[1], std, rtol=0.02)
    alone = x[12:].T @ y[12:] / s**2 / (1 + (x[12:] ** 2).sum(0) / s**2)
    assert np.abs(alone - mean).max() > 1 * std[0]  # a model that forgets the first part is told apart,
    assert 1 + (x[12:] ** 2).sum(0)[0] / s**2 < 0.5 * precision[0]  # also by its stds


@pytest.mark.parametrize("method", ["map", "laplace", "ivon", "auto"])
def test_partial_fit_meets_classes_one_after_the_other(method: str) -> None:
    x, y = blobs()
    model = BayesianClassifier(method, (6,), epochs=4, random_state=0)
    with pytest.raises(ValueError, match="first call"):
        model.partial_fit(x, y)
    first = y != "oak"
    model.partial_fit(x[first], y[first], classes=["oak", "beech", "ash"])
    assert model.predict_proba(x).shape == (90, 3)
    model.partial_fit(x, y)
    assert model.result_.method.members == 1
    with pytest.raises(ValueError, match="elm"):
        model.partial_fit(x[:2], ["elm", "ash"])
    with pytest.raises(ValueError, match="balanced"):
        model.set_params(class_weight="balanced").partial_fit(x, y)


def test_several_networks_do_not_go_on_and_say_so() -> None:
    x, y = blobs()
    model = BayesianClassifier("deep-ensemble", (6,), epochs=1, random_state=0, settings={"members": 2})
    assert hasattr(model, "partial_fit")
    assert not hasattr(model.fit(x, y), "partial_fit")
    with pytest.raises(bw.SettingError, match="begin with partial_fit or warm_start=True"):
        model.partial_fit(x, y)
    assert "classes" in inspect.signature(BayesianClassifier.partial_fit).parameters


@pytest.mark.parametrize("method", ["bbb", "auto"])
def test_early_stopping_keeps_the_best_epoch(method: str) -> None:
    x, _ = curve(40)
    y = np.random.default_rng(5).normal(size=40)  # nothing to learn: every epoch makes it worse
    model = BayesianRegressor(method, (50,), epochs=60, early_stopping=3, validation_fraction=0.3, random_state=0)
    found = model.set_params(settings={"lr": 0.05}).fit(x, y)
    assert found.n_iter_ < 60
    assert "has not improved for 3 epochs" in found.result_.stopped
    history = [record.validation["nll"] for record in found.result_.histories[0].epochs]
    assert len(history) - np.argmin(history) == 4


def test_networks_of_every_kind() -> None:
    x, y = blobs()
    given = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 3))
    before = [p.clone() for p in given.parameters()]
    model = BayesianClassifier("map", given, epochs=2, random_state=0).fit(x, y)
    assert model.predict_proba(x).dtype == np.float32  # its own
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True))
    asked: list[tuple[int, int]] = []

    def made(features: int, outputs: int) -> nn.Module:
        asked.append((features, outputs))
        return nn.Linear(features, outputs)

    model.set_params(network=made).fit(x, y)
    assert asked == [(2, 3)]
    for choice, count in (
        ((5,), 33),
        ([4, 3], 39),
        ({"name": "mlp", "hidden": [5], "activation": "tanh"}, 33),
        (None, 303),
    ):
        found = model.set_params(network=choice).fit(x, y)
        assert found.result_.model.layout.size == count
    per_input = BayesianRegressor("map", (5,), likelihood={"name": "gaussian", "noise": "per_input"}, epochs=2)
    assert per_input.fit(x, x[:, 0]).result_.model.layout.size == 27


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "bb"}, "did you mean 'bbb'"),
    "network": ({"network": (50, 0)}, "hidden sizes"),
    "network made": ({"network": lambda a, b: 3}, "must return an nn.Module"),
    "epochs": ({"epochs": 0}, "epochs = 0"),
    "draws": ({"draws": 1.5}, "draws = 1.5"),
    "settings": ({"settings": {"prioor": "normal"}}, "did you mean 'prior'"),
    "settings kind": ({"settings": 3}, "settings = 3"),
    "validation_fraction": ({"early_stopping": True, "validation_fraction": 1.0}, "validation_fraction = 1.0"),
    "early stopping of an average": ({"early_stopping": True, "method": "swag"}, "early_stopping keeps the weights"),
    "class_weight": ({"class_weight": {"elm": 2.0}}, "are not in class_weight"),
    "class_weight twice": ({"class_weight": "balanced", "likelihood": "categorical"}, "leave one out"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_meant_is_refused_in_one_line(case: str) -> None:
    x, y = blobs(30)
    given, line = BAD[case]
    with pytest.raises(ValueError, match=line) as caught:
        BayesianClassifier(**{"method": "map", "epochs": 1, **given}).fit(x, y)
    assert "\n" not in str(caught.value)


def test_arrays_that_are_read_only_are_copied() -> None:
    """In a process of its own: torch warns of them once."""
    program = (
        "import warnings, numpy as np\n"
        "from bayeswell.sklearn import BayesianRegressor\n"
        "x = np.random.default_rng(0).normal(size=(20, 2)); x.flags.writeable = False\n"
        "warnings.filterwarnings('error', message='.*not writable')\n"
        "BayesianRegressor('map', (), epochs=1).fit(x, x[:, 0]).predict(x)"
    )
    subprocess.run([QUICK_PYTHON, "-c", program], check=True)


def test_one_class_is_refused_by_its_name() -> None:
    with pytest.raises(bw.DataError, match="1 class, 'oak'"):
        BayesianClassifier().fit([[0.0], [1.0]], ["oak", "oak"])


def test_it_needs_nothing_of_the_lab() -> None:
    """What the quick interpreter has of other libraries is forgotten first, so that whoever needs it imports it."""
    program = (
        "import sys\n"
        "others = ('matplotlib', 'typer', 'optuna', 'lightning_fabric')\n"
        "for name in [name for name in sys.modules if name.split('.')[0] in others]: del sys.modules[name]\n"
        "import bayeswell.sklearn as s\n"
        "s.BayesianClassifier(); s.BayesianRegressor()\n"
        "lab = 'cli datasets diagnostics experiments plots report studies sweeps'.split()\n"
        "print([r for r in lab if f'bayeswell.{r}' in sys.modules], [m for m in others if m in sys.modules])"
    )
    found = subprocess.run([QUICK_PYTHON, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[] []"


def test_verdicts_reach_the_user_at_the_call_of_fit() -> None:
    x, y = blobs(30)
    with pytest.warns(bw.VerdictWarning) as caught:
        BayesianClassifier("bbb", (50,), epochs=2, random_state=0, settings={"lr": 1e-5}).fit(x, y)
    assert {warning.filename for warning in caught} == {__file__}
