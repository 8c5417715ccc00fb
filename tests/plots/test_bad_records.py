"""Records with holes are drawn as far as they go; those that cannot be drawn are refused in one line."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import bayeswell as bw
from bayeswell import plots
from plots.plot_samples import SAMPLES, bins, curve, epochs

NAMES = list(plots.PLOTS)

EMPTY: dict[str, list[Any]] = {
    "training_curves": [{}, {"a": []}],
    "seed_curves": [{}, {"a": []}, {"a": [[]]}, {"a": [[{"epoch": 0, "nll": 1.0}]]}],
    "reliability": [{"low": [], "high": [], "count": [], "confidence": [], "accuracy": []}],
    "calibration": [{}, {"a": {"low": [], "high": [], "count": [], "confidence": [], "accuracy": []}}],
    "risk_coverage": [{}, {"a": {"coverage": [], "risk": []}}],
    "ood_scores": [{"inside": [], "outside": []}, {"inside": [0.5], "outside": []}],
    "entropy": [{"correct": [], "wrong": []}, {"correct": [0.2], "wrong": [], "ood": [], "classes": 3}],
    "std_heat_maps": [
        {"layer": "a", "stds": [], "approximations": {}},
        {"layer": "a", "stds": [[0.1]], "approximations": {}},
    ],
    "spectra": [[], [{"layers": []}], [{"layers": [{"layer": "a", "stds": [], "means": [1.0]}]}]],
    "snr": [{}, {"a": []}, {"a": [{"step": 1, "rows": []}]}],
    "std_paths": [{"layers": {}}, {"layers": {"a": []}}, {"layers": {"a": [0.3]}}],
    "layers": [{"layers": []}, {"layers": [{"layer": "a", "std_ratio_median": 0.0, "kl_per_weight": None}]}],
    "loss_line": [{}, {"a": {"distances": [], "losses": []}}, {"a": {"distances": [0.0], "losses": [1.0]}}],
    "loss_plane": [{"distances": [], "losses": []}, {"distances": [0.0], "losses": [[2.0]]}],
    "sharpness": [{}, {"a": {"one_step": None, "ascent": None}}],
    "momentum_landscape": [
        {"rates": [0.1], "momenta": [0.5], "accuracies": [[0.9]]},
        {"rates": [], "momenta": [], "accuracies": []},
    ],
    "beta_landscape": [
        {"beta1": [0.9], "beta2": [0.99], "accuracies": [[None]]},
        {"beta1": [0.9], "beta2": [0.99], "accuracies": [[0.3]]},
    ],
    "step_times": [{}, {"a": {"seconds": None}}, {"a": {"seconds": 0.0}}],
    "regression_band": [
        {"x": [], "mean": [], "epistemic_std": []},
        {"x": [1.0], "mean": [2.0], "epistemic_std": [0.1]},
    ],
    "examples": [{"examples": []}, {"examples": [{"kind": "a", "probabilities": []}]}],
    "comparison": [
        {"rows": []},
        {"rows": [{"method": "a", "scores": {}}]},
        {"rows": [{"method": "a", "scores": {"nll": {"mean": None}}}]},
    ],
    "rate_range": [{"rates": [], "objectives": []}, {"rates": [0.1], "objectives": [2.0]}],
    "trial_bands": [
        {"score": "nll", "epochs": [], "lower": [], "median": [], "upper": [], "trials": []},
        {"score": "nll", "epochs": [0], "lower": [0.1], "median": [0.2], "upper": [None], "trials": [3]},
        {"score": "nll", "epochs": [0], "lower": [None], "median": [None], "upper": [None], "trials": [3]},
    ],
    "robust_region": [{}, {"a": {"curvature_min": 1.0, "curvature_max": 1.0}}],
    "schedules": [{}, {"a": {"steps": [], "values": []}}, {"a": {"steps": [0.0], "values": [0.5]}}],
    "interval_coverage": [{}, {"a": {"levels": [], "observed": []}}, {"a": {"levels": [0.5], "observed": [0.4]}}],
    "quantile_calibration": [{}, {"a": {"levels": [], "observed": []}}, {"a": {"levels": [0.5], "observed": [0.4]}}],
    "residuals": [
        {"predicted": [], "residual": [], "std": []},
        {"predicted": [1.0], "residual": [0.1], "std": [0.2]},
    ],
}


def rendered(figure: Figure) -> None:
    """Drawn in full, but for the search for a good layout, which takes most of the time."""
    figure.set_layout_engine(None)
    figure.draw_without_rendering()


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_single_records_are_drawn(name: str) -> None:
    plot = plots.PLOTS[name]
    for index, record in enumerate(EMPTY[name]):
        figure, text = plot.draw(record), plot.describe(record)
        rendered(figure)
        if index == 0 and name not in {"momentum_landscape", "beta_landscape"}:
            assert any(text.get_text() == "no data" for axes in figure.axes for text in axes.texts)
            assert "no" in text or "without data" in text


def holed(value: Any, chance: np.random.Generator, share: float) -> Any:
    """Some numbers replaced by None, NaN or an infinity; whole numbers and texts are kept."""
    if isinstance(value, float) and chance.random() < share:
        return (None, math.nan, math.inf)[chance.integers(3)]
    if isinstance(value, dict):
        axes = {"curvature_min", "curvature_max"}
        axes |= {"rates", "momenta", "beta1", "beta2"} if "accuracies" in value else set()
        axes |= {"distances"} if "posterior_stds" in value else set()
        return {key: part if key in axes else holed(part, chance, share) for key, part in value.items()}
    return [holed(part, chance, share) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_missing_numbers_leave_gaps(name: str, share: float) -> None:
    plot = plots.PLOTS[name]
    record = holed(copy.deepcopy(SAMPLES[name]), np.random.default_rng(11), share)
    figure = plot.draw(record, "dark")
    text = plot.describe(record)
    assert "nan" not in text.split()
    rendered(figure)


def test_a_gap_stays_at_its_place() -> None:
    rows = epochs(4, 2.0, 1.0)
    rows[1]["nll"] = None
    del rows[2]["nll"]
    drawn = plots.plot_training_curve({"a": rows}, "nll", ax=Figure().add_subplot()).get_lines()[0]
    np.testing.assert_array_equal(np.isnan(drawn.get_ydata()), [False, True, True, False])
    np.testing.assert_array_equal(drawn.get_xdata(), range(4))


GRID = {"rates": [0.1, 0.2], "momenta": [0.5], "accuracies": [[0.1, 0.2]]}
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: plots.plot_interval_coverage({"a": {"levels": [0.5], "observed": [1.2]}}),
        "plot_interval_coverage: 'observed' of 'a' has numbers outside [0, 1]; it holds shares",
    ),
    (
        lambda: plots.plot_residuals({"predicted": [1.0], "residual": [0.5], "std": [0.0]}),
        "plot_residuals: 'std' has numbers that are not above 0; it holds stds",
    ),
    (
        lambda: plots.plot_residuals({"predicted": [1.0], "residual": [0.5, 1.0], "std": [0.1]}),
        "plot_residuals: 'predicted', 'residual' and 'std' must have equally many numbers",
    ),
    (
        lambda: plots.plot_risk_coverage([curve(1, 1)]),
        "plot_risk_coverage: runs is a list; it must map labels to records",
    ),
    (
        lambda: plots.plot_risk_coverage(curve(1, 1)),
        "the record of 'coverage' is a list; it must be a mapping with coverage, risk",
    ),
    (
        lambda: plots.plot_risk_coverage({"a": {"coverage": [1.0]}}),
        "the record of 'a' has no 'risk'; it needs coverage, risk, and has coverage",
    ),
    (
        lambda: plots.plot_risk_coverage({"a": {"coverage": [1.0], "risk": [0.1, 0.2]}}),
        "'risk' has shape (2,); it must have as many as 'coverage' numbers",
    ),
    (
        lambda: plots.plot_risk_coverage({"a": {"coverage": ["x"], "risk": [0.1]}}),
        "'coverage' is a list; it must be a list of numbers",
    ),
    (
        lambda: plots.plot_risk_coverage({"a": {"coverage": "abc", "risk": [0.1]}}),
        "'coverage' is 'abc'; it must be a list of numbers",
    ),
    (
        lambda: plots.plot_risk_coverage({"a": {"coverage": np.ones((2, 2)), "risk": [0.1]}}),
        "'coverage' is a ndarray of shape (2, 2)",
    ),
    (lambda: plots.plot_reliability(None), "plot_reliability: the record is None; it must be a mapping with low, high"),
    (
        lambda: plots.plot_reliability(bins(0.1) | {"count": [1.0]}),
        "'count' has shape (1,); it must have as many as 'low'",
    ),
    (lambda: plots.plot_training_curves({"a": [{"nll": 1.0}]}), "a row of 'a' has no number 'epoch'"),
    (
        lambda: plots.plot_training_curves({"a": {"epoch": 1}}),
        "the record of 'a' is a dict; it must be a list of records",
    ),
    (lambda: plots.plot_training_curve({"a": epochs(2, 2, 1)}, "loss"), "no epoch has 'loss'; there are: accuracy"),
    (
        lambda: plots.plot_training_curve({"a": [{"epoch": 0, "nll": "high"}]}, "nll"),
        "'nll' is a list; it must be a list of numbers",
    ),
    (
        lambda: plots.plot_std_heat_maps({"layer": "a", "stds": [[1.0], [1.0, 2.0]], "approximations": {}}),
        "'stds' is a list; it must be a list of lists of numbers, all equally long",
    ),
    (
        lambda: plots.plot_std_heat_maps({"layer": "a", "stds": [[1.0]], "approximations": {"1": [[1.0, 2.0]]}}),
        "'1' has shape (1, 2); it must have 1 lists of 1 numbers",
    ),
    (lambda: plots.heat_map_record("fc1", [[math.nan]]), "the stds of 'fc1' must be finite numbers"),
    (
        lambda: plots.plot_spectra(SAMPLES["spectra"], layers=["layers.1.weight"]),
        "there is no layer 'layers.1.weight'; did you mean",
    ),
    (lambda: plots.plot_snr(SAMPLES["snr"], layer="fc"), "plot_snr: there is no layer 'fc'; allowed: all"),
    (lambda: plots.plot_snr(SAMPLES["snr"], measure="second_moment"), "measure = 'second_moment'; did you mean"),
    (
        lambda: plots.plot_loss_plane({"distances": [0.0, 1.0], "losses": [[1.0, 2.0]]}),
        "'losses' has shape (1, 2); it must have 2 lists of 2 numbers",
    ),
    (lambda: plots.plot_sharpness({"a": {"one_step": 0.1}}), "the record of 'a' has no 'ascent'"),
    (
        lambda: plots.plot_momentum_landscape(GRID | {"rates": [0.2, 0.1]}),
        "'rates' must be finite numbers, each larger than the one before",
    ),
    (
        lambda: plots.plot_momentum_landscape(GRID | {"momenta": [1.0]}),
        "'rates' must be above 0 and 'momenta' in [0, 1)",
    ),
    (
        lambda: plots.plot_momentum_landscape(GRID | {"robust": [{"curvature_min": 3.0, "curvature_max": 2.0}]}),
        "curvature_min = 3.0 exceeds curvature_max = 2.0",
    ),
    (lambda: plots.plot_beta_landscape({"beta1": [0.9], "beta2": [0.99]}), "has no 'accuracies'"),
    (
        lambda: plots.plot_regression_band({"x": [0.0], "mean": [0.0], "epistemic_std": [-1.0]}),
        "'epistemic_std' has numbers below 0; it holds stds",
    ),
    (
        lambda: plots.plot_examples({"examples": [{"kind": "a", "probabilities": [0.5, 0.5], "label": 2}]}),
        "'label' = 2; it must be the number of a class, 0 to 1",
    ),
    (
        lambda: plots.plot_examples({"classes": ["a"], "examples": [{"kind": "a", "probabilities": [0.5, 0.5]}]}),
        "1 classes for 2 probabilities",
    ),
    (
        lambda: plots.plot_examples({"examples": [{"kind": "a", "probabilities": [1.0], "image": [1.0]}]}),
        "an 'image' must be H x W",
    ),
    (
        lambda: plots.plot_examples(
            {"examples": [{"kind": "a", "probabilities": [1.0], "image": np.full((3, 2, 2), 9.0)}]}
        ),
        "numbers outside [0, 1]",
    ),
    (
        lambda: plots.plot_examples({"examples": [{"kind": "a", "probabilities": [1.0], "samples": [[0.5, 0.5]]}]}),
        "each draw must have 1 numbers",
    ),
    (
        lambda: plots.plot_comparison_of(SAMPLES["comparison"], "acuracy"),
        "no method has the metric 'acuracy'; did you mean 'accuracy'?",
    ),
    (
        lambda: plots.plot_comparison({"rows": [{"method": "a", "scores": {"nll": 0.3}}]}),
        "the scores of 'a' must map metrics to {'mean': ...}",
    ),
    (lambda: plots.plot_step_times({"a": 0.2}), "'a' is 0.2; it must be a mapping with seconds"),
    (
        lambda: plots.plot_entropy(SAMPLES["entropy"], bins=0),
        "plot_entropy: bins = 0; it must be a whole number of at least 1",
    ),
]


@pytest.mark.parametrize(("act", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_a_record_that_cannot_be_drawn_is_refused_in_one_line(act: Callable[[], Any], message: str) -> None:
    with pytest.raises(bw.BayeswellError, match=re.escape(message)) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("foreign", [None, "text", [1, 2], {"a": {"other": 1}}, {"a": 1}], ids=str)
def test_foreign_records_are_refused_and_nothing_else_is_raised(name: str, foreign: Any) -> None:
    plot = plots.PLOTS[name]
    for act in (plot.draw, plot.describe):
        with pytest.raises(bw.BayeswellError) as caught:
            act(foreign)
        assert "\n" not in str(caught.value)
