"""What is drawn are the record's numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from bayeswell import plots
from bayeswell.diagnostics import LossLine, kl_weight_path, rate_path
from bayeswell.metrics import calibration_bins, risk_coverage
from bayeswell.optimizers.robust_region import robust_region
from bayeswell.plots.calibration import share_interval
from bayeswell.training import EpochRecord
from plots.plot_samples import SAMPLES, STDS, bins, epochs, images, line


def one() -> Any:
    return Figure().add_subplot()


def several() -> Any:
    return Figure()


def xy(drawn: Any) -> tuple[Any, Any]:
    return np.asarray(drawn.get_xdata(), float), np.asarray(drawn.get_ydata(), float)


def column(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def test_training_curves_are_the_epochs_of_each_member() -> None:
    runs = SAMPLES["training_curves"]
    nll, kl, accuracy, rates = plots.plot_training_curves(runs, figure=several())
    members = [runs["bbb"], runs["deep-ensemble"][:20], runs["deep-ensemble"][20:]]
    expected = [column(rows, name) for rows in members[:1] for name in ("nll", "validation.nll")]
    expected += [column(rows, "nll") for rows in members[1:]] + [column(rows, "validation.nll") for rows in members[1:]]
    assert len(nll.get_lines()) == 6
    for drawn, values in zip(nll.get_lines(), expected, strict=True):
        np.testing.assert_array_equal(xy(drawn)[0], range(20))
        np.testing.assert_array_equal(xy(drawn)[1], values)
    np.testing.assert_array_equal(xy(kl.get_lines()[0])[1], column(runs["bbb"], "kl"))
    assert len(kl.get_lines()) == 3  # no validation of the KL
    np.testing.assert_array_equal(xy(accuracy.get_lines()[1])[1], column(runs["bbb"], "validation.accuracy"))
    np.testing.assert_array_equal(xy(rates.get_lines()[1])[1], column(runs["bbb"], "lr.stds"))
    assert [axes.get_ylabel() for axes in (nll, kl)] == [
        "NLL as trained on\n(nats per example)",
        "KL; of a point\n-log prior (nats)",
    ]


def test_epoch_records_of_training_are_rows_too() -> None:
    rows = [EpochRecord(epoch, 3.0, 2.5 - epoch, 7.0, 0.1, {"rmse": 1.5}, {"means": 0.01}) for epoch in range(2)]
    axes = plots.plot_training_curve({"a": rows}, "nll", ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[0]), [[0, 1], [2.5, 1.5]])
    rates = plots.plot_learning_rates({"a": rows}, ax=one())
    np.testing.assert_array_equal(xy(rates.get_lines()[0])[1], [0.01, 0.01])


def test_reliability_dots_intervals_and_histogram_from_the_metric_itself() -> None:
    generator = torch.Generator().manual_seed(3)
    probabilities = torch.rand(300, 4, generator=generator).softmax(-1).pow(3)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    labels = torch.randint(4, (300,), generator=generator)
    found = calibration_bins(probabilities, labels, bins=11, binning="quantile")
    top, bottom = plots.plot_reliability(found, figure=several())
    np.testing.assert_allclose(xy(top.get_lines()[0]), [found.confidence, found.accuracy])
    (ends,) = [part.get_segments() for part in top.collections]
    for end, accuracy, count in zip(ends, found.accuracy.tolist(), found.count.tolist(), strict=True):
        for share in end[:, 1]:  # Wilson: the shares p with (accuracy - p)^2 = 1.96^2 p (1 - p) / n
            assert (accuracy - share) ** 2 == pytest.approx(1.959964**2 * share * (1 - share) / count, abs=1e-9)
    areas = [100 * bar.get_height() * bar.get_width() for bar in bottom.patches]
    np.testing.assert_allclose(areas, found.count)  # bars of unequal width: their areas are the examples


def test_the_95_percent_interval_holds_the_true_share_that_often() -> None:
    """0.95 of 2,000 bins of 40 examples at share 0.83, give or take 5 standard errors of 0.005 and of the jumps."""
    draws = np.random.default_rng(5).binomial(40, 0.83, 2000) / 40
    low, high = share_interval(draws, np.full(2000, 40.0))
    assert abs(((low <= 0.83) & (high >= 0.83)).mean() - 0.95) < 0.025


def test_calibration_shows_accuracy_less_confidence() -> None:
    record = bins(0.21)
    axes = plots.plot_calibration({"a": record}, ax=one())
    x, y = xy(axes.get_lines()[0])
    share = np.array(record["count"]) / np.sum(record["count"])
    np.testing.assert_allclose(x, [share[:place].sum() + share[place] / 2 for place in range(12)])
    np.testing.assert_allclose(y, np.subtract(record["accuracy"], record["confidence"]))
    band = axes.collections[0].get_paths()[0].vertices
    low, high = share_interval(np.array(record["accuracy"]), np.array(record["count"]))
    here = band[np.isclose(band[:, 0], x[4]), 1]
    assert [here.min(), here.max()] == pytest.approx(
        [low[4] - record["confidence"][4], high[4] - record["confidence"][4]]
    )


def test_intervals_and_quantiles_are_shares_with_their_bands() -> None:
    runs = SAMPLES["interval_coverage"]
    axes = plots.plot_interval_coverage(runs, ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[1]), [runs["bbb"]["levels"], runs["bbb"]["observed"]])
    low, high = share_interval(np.array([runs["bbb"]["observed"][8]]), np.array([120.0]))
    band = axes.collections[1].get_paths()[0].vertices
    here = band[np.isclose(band[:, 0], runs["bbb"]["levels"][8]), 1]
    assert [here.min(), here.max()] == pytest.approx([low[0], high[0]])
    runs = SAMPLES["quantile_calibration"]
    axes = plots.plot_quantile_calibration(runs, ax=one())
    expected = np.subtract(runs["map"]["observed"], runs["map"]["levels"])
    np.testing.assert_allclose(xy(axes.get_lines()[0])[1], expected)


def test_residuals_are_in_predicted_stds() -> None:
    record = {"predicted": [1.0, 2.0, 3.0, 4.0], "residual": [0.5, -3.0, 0.2, 0.1], "std": [0.5, 1.5, 0.4, 0.2]}
    axes = plots.plot_residuals(record, ax=one())
    np.testing.assert_allclose(xy(axes.get_lines()[1]), [[1, 2, 3, 4], [1, -2, 0.5, 0.5]])
    assert [text.get_text() for text in axes.texts] == ["25 % beyond ±1.96 (5 % expected)"]


def test_risk_coverage_curve_from_the_metric_itself() -> None:
    found = risk_coverage(torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.1, 0.9, 0.2, 0.4]))
    axes = plots.plot_risk_coverage({"a": found}, ax=one())
    np.testing.assert_allclose(xy(axes.get_lines()[0]), [[0.25, 0.5, 0.75, 1.0], [0, 0, 1 / 3, 0.5]])


@pytest.mark.parametrize("name", ["ood_scores", "entropy"])
def test_histograms_are_shares_of_each_group(name: str) -> None:
    record = SAMPLES[name]
    groups = ["inside", "outside"] if name == "ood_scores" else ["correct", "wrong", "ood"]
    axes = plots.PLOTS[name].function(record, bins=17, ax=one())
    steps = axes.patches[::2]
    assert len(steps) == len(groups)
    for drawn, group in zip(steps, groups, strict=True):
        shares, edges, _ = drawn.get_data()
        np.testing.assert_allclose(shares, np.histogram(record[group], edges)[0] / len(record[group]))
        assert len(edges) == 18
    if name == "entropy":
        assert axes.get_lines()[0].get_xdata()[0] == pytest.approx(math.log(10))


def test_heat_maps_and_their_approximations() -> None:
    record = SAMPLES["std_heat_maps"]
    panels = plots.plot_std_heat_maps(record, figure=several())
    left, values, right = np.linalg.svd(STDS)
    expected = [STDS, *((left[:, :k] * values[:k]) @ right[:k] for k in (1, 2))]
    limits = set()
    for axes, matrix in zip(panels, expected, strict=True):
        (image,) = axes.get_images()
        np.testing.assert_allclose(image.get_array(), matrix, rtol=1e-10)
        limits.add(image.get_clim())
    assert limits == {(STDS.min(), STDS.max())}


def test_a_large_heat_map_shows_every_nth_row_and_column() -> None:
    large = np.arange(1.0, 300 * 50 + 1).reshape(300, 50)
    (full, _, _) = plots.plot_std_heat_maps(plots.heat_map_record("w", large), figure=several())
    np.testing.assert_array_equal(full.get_images()[0].get_array(), large[::4])
    assert "every 4th" in full.get_ylabel()
    assert full.get_ylim() == (300.5, 0.5)


def test_spectra_of_stds_means_and_of_stds_before_training() -> None:
    taken = SAMPLES["spectra"]
    panels = plots.plot_spectra(taken, figure=several())
    assert [axes.get_title(loc="left") for axes in panels] == [f"layers.{n}.weight" for n in (0, 2, 4)]
    drawn = [xy(each)[1] for each in panels[1].get_lines()]
    after, before = taken[1]["layers"][1], taken[0]["layers"][1]
    wanted = (after["stds"], before["stds"], after["means"], after["centred_stds"])
    for values, expected in zip(drawn, wanted, strict=True):
        np.testing.assert_array_equal(values, expected[:15])
    (single,) = plots.plot_spectra(taken[1:], layers=["layers.4.weight"], figure=several())
    assert len(single.get_lines()) == 3


def test_signal_to_noise_over_steps() -> None:
    runs = SAMPLES["snr"]
    axes = plots.plot_snr(runs, measure="mean_square_median", ax=one())
    x, y = xy(axes.get_lines()[3])
    np.testing.assert_array_equal(x, [window["step"] for window in runs["k-tied"]])
    np.testing.assert_array_equal(y, [window["rows"][1]["mean_square_median"] for window in runs["k-tied"]])
    assert axes.get_yscale() == "log"


def test_stds_by_epoch_and_by_layer() -> None:
    path = SAMPLES["std_paths"]
    axes = plots.plot_std_paths(path, ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[1]), [range(21), path["layers"]["layers.2.weight"]])
    report = SAMPLES["layers"]
    left, right = plots.plot_layers(report, figure=several())
    np.testing.assert_array_equal(xy(left.get_lines()[0])[0], [row["std_ratio_median"] for row in report["layers"]])
    np.testing.assert_array_equal(
        [bar.get_width() for bar in right.patches], [row["kl_per_weight"] for row in report["layers"]]
    )


def test_layers_without_a_kl_have_no_panel_of_it() -> None:
    rows = [{**row, "kl": None, "kl_per_weight": None} for row in SAMPLES["layers"]["layers"]]
    record = {**SAMPLES["layers"], "layers": rows}
    (left,) = plots.PLOTS["layers"].draw(record).axes
    assert len(left.get_yticklabels()) == len(rows)
    assert "KL unknown;" in plots.PLOTS["layers"].describe(record)
    assert "KL 0.77 nats per weight" in plots.PLOTS["layers"].describe(SAMPLES["layers"])
    assert len(plots.PLOTS["layers"].draw(SAMPLES["layers"]).axes) == 2


def test_the_middle_of_a_loss_line_is_at_nought() -> None:
    record = {"a": {"distances": [-1.0, -5.55e-17, 1.0], "losses": [2.5, 0.7, 1.5]}}
    assert "2.5 at -1, lowest 0.7 at 0, 1.5 at 1" in plots.PLOTS["loss_line"].describe(record)


def test_loss_lines_planes_and_sharpness() -> None:
    record = LossLine((-1.0, 0.0, 1.0), (3.0, 0.5, 2.0), 0.2, 10, 0)
    axes = plots.plot_loss_line({"a": record}, ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[0]), [[-1, 0, 1], [3, 0.5, 2]])
    assert axes.patches[0].get_x() == -0.2
    assert axes.patches[0].get_width() == pytest.approx(0.4)
    plane = SAMPLES["loss_plane"]
    axes = plots.plot_loss_plane(plane, ax=one())
    mesh = next(part for part in axes.collections if part.get_array() is not None and part.get_array().size == 441)
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(21, 21), plane["losses"])
    (ring,) = axes.patches
    assert (ring.width, ring.height) == (0.5, 0.2)  # the first direction is drawn upwards
    runs = SAMPLES["sharpness"]
    axes = plots.plot_sharpness(runs, ax=one())
    widths = [bar.get_width() for bar in axes.patches]
    assert widths == [r["one_step"] for r in runs.values()] + [r["ascent"] for r in runs.values()]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(runs)


def test_the_momentum_landscape_has_the_borders_of_the_robust_region() -> None:
    record = SAMPLES["momentum_landscape"]
    axes = plots.plot_momentum_landscape(record, ax=one())
    shown = np.ma.filled(axes.collections[0].get_array(), np.nan).reshape(12, 14)
    np.testing.assert_array_equal(shown, np.array(record["accuracies"], float))
    low, high, stable = axes.get_lines()
    for drawn, name in ((low, "lowest"), (high, "highest")):
        rates, momenta = xy(drawn)
        expected = [getattr(robust_region(float(m), 1.5, 1.5), name) for m in momenta]
        np.testing.assert_allclose(rates, expected)
    rates, momenta = xy(stable)
    np.testing.assert_allclose(rates + 1.9 * momenta, 1.9)
    assert axes.get_xscale() == "log"


def test_the_beta_landscape_has_beta1_upwards() -> None:
    record = SAMPLES["beta_landscape"]
    axes = plots.plot_beta_landscape(record, ax=one())
    np.testing.assert_array_equal(np.asarray(axes.collections[0].get_array()).reshape(5, 5), record["accuracies"])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.5", "0.9", "0.99", "0.999", "0.9999"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "0.5", "0.8", "0.9", "0.99"]


def test_step_times_are_milliseconds() -> None:
    axes = plots.plot_step_times(SAMPLES["step_times"], ax=one())
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [2.0, 7.17, 6.14])


def test_regression_bands_are_two_stds_epistemic_and_both() -> None:
    record = {"x": [1.0, 0.0], "mean": [3.0, 2.0], "epistemic_std": [0.3, 0.6], "aleatoric_std": [0.4, 0.8]}
    axes = plots.plot_regression_band(record, ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[0]), [[0, 1], [2, 3]])  # in order of x
    for band, half in zip(axes.collections, ([2.0, 1.0], [1.2, 0.6]), strict=True):
        heights = band.get_paths()[0].vertices
        for x, mean, width in zip((0, 1), (2, 3), half, strict=True):
            here = heights[heights[:, 0] == x, 1]
            assert here.max() == pytest.approx(mean + width)
            assert here.min() == pytest.approx(mean - width)


def test_examples_show_the_image_the_mean_and_every_draw() -> None:
    record = images()
    drawn = plots.plot_examples(record, figure=several())
    assert len(drawn) == 12
    example = record["examples"][2]
    np.testing.assert_array_equal(drawn[4].get_images()[0].get_array(), example["image"])
    np.testing.assert_array_equal([bar.get_height() for bar in drawn[5].patches], example["probabilities"])
    dots, mark = drawn[5].get_lines()
    np.testing.assert_array_equal(xy(dots)[1].reshape(40, 10), example["samples"])
    assert np.abs(xy(dots)[0].reshape(40, 10) - np.arange(10)).max() < 0.375  # within their bar
    assert xy(mark)[0] == [5]


@pytest.mark.parametrize("shape", [(3, 5, 4), (5, 4, 3), (1, 5, 4), (5, 4, 1), (5, 4)])
def test_images_may_have_their_channels_first_or_last(shape: tuple[int, ...]) -> None:
    image = np.arange(math.prod(shape)).reshape(shape) / math.prod(shape)
    record = {"examples": [{"kind": "a", "image": image, "probabilities": [0.3, 0.7]}]}
    shown = plots.plot_examples(record, figure=several())[0].get_images()[0].get_array()
    assert shown.shape == ((5, 4, 3) if 3 in shape else (5, 4))
    channels_first = shape[0] in (1, 3)
    expected = image[:, 1, 2] if channels_first else image[1, 2]
    np.testing.assert_array_equal(np.atleast_1d(shown[1, 2]), np.atleast_1d(expected))


def test_of_many_classes_the_most_probable_are_shown() -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.full(30, 0.3))
    axes = plots.plot_examples({"examples": [{"kind": "a", "probabilities": probabilities}]}, figure=several())[1]
    np.testing.assert_array_equal([bar.get_height() for bar in axes.patches], np.sort(probabilities)[::-1][:10])


def test_comparison_dots_errors_and_best() -> None:
    record = SAMPLES["comparison"]
    accuracy, nll, _, brier, auroc = plots.plot_comparison(record, figure=several())
    for axes, metric, best in ((accuracy, "accuracy", max), (nll, "nll", min), (auroc, "auroc", max)):
        means = [row["scores"][metric]["mean"] for row in record["rows"]]
        dots, stars = axes.get_lines()[0], axes.get_lines()[-1]
        np.testing.assert_array_equal(xy(dots), [means, range(8)])
        assert xy(stars) == ([best(means)], [means.index(best(means))])
    bars = brier.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 0] for bar in bars][3], [0.091 - 0.01, 0.091 + 0.01])
    assert "over seeds" in accuracy.get_xlabel()
    assert "over examples" in brier.get_xlabel()
    assert [axes.get_title(loc="left")[-1] for axes in (accuracy, nll)] == ["↑", "↓"]
    unknown = plots.plot_comparison_of(record, "std_ratio", ax=one())
    assert all(each.get_marker() != "*" for each in unknown.get_lines())


def test_equally_good_methods_are_all_best() -> None:
    rows = [{"method": name, "scores": {"ece": {"mean": mean}}} for name, mean in (("a", 0.1), ("b", 0.1), ("c", 0.2))]
    axes = plots.plot_comparison_of({"rows": rows}, "ece", ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[-1])[1], [0, 1])
    rows[0]["scores"]["ece"]["best"] = rows[2]["scores"]["ece"]["best"] = True
    axes = plots.plot_comparison_of({"rows": rows}, "ece", ax=one())
    np.testing.assert_array_equal(xy(axes.get_lines()[-1])[1], [0, 2])


def test_the_rate_range_and_its_marks() -> None:
    record = SAMPLES["rate_range"]
    axes = plots.plot_rate_range(record, ax=one())
    curve, suggested, broke = axes.get_lines()
    np.testing.assert_array_equal(xy(curve), [record["rates"], record["objectives"]])
    assert suggested.get_xdata()[0] == 0.0031
    assert broke.get_xdata()[0] == 0.83


def test_the_robust_region_has_the_borders_of_the_lemma() -> None:
    axes = plots.plot_robust_region(SAMPLES["robust_region"], ax=one())
    flat_low, flat_high, steep_low, steep_high = (xy(line) for line in axes.get_lines())
    momenta = flat_low[0]
    np.testing.assert_allclose(flat_low[1], (1 - np.sqrt(momenta)) ** 2 / 2.0)
    np.testing.assert_allclose(flat_high[1], (1 + np.sqrt(momenta)) ** 2 / 2.0)
    np.testing.assert_allclose(steep_low[1], (1 - np.sqrt(momenta)) ** 2 / 0.5)
    np.testing.assert_allclose(steep_high[1], (1 + np.sqrt(momenta)) ** 2 / 8.0)
    # The area begins where the borders meet: momentum ((sqrt(16) - 1) / (sqrt(16) + 1))^2 = 0.36.
    area = axes.collections[1].get_paths()[0].vertices[:, 0]
    assert area.min() == pytest.approx(0.36, abs=0.006)


def test_schedules_are_drawn_as_they_are_planned() -> None:
    planned = {"cosine": rate_path("cosine", 40), "geometric": kl_weight_path({"name": "geometric", "ratio": 2}, 40, 8)}
    cosine, geometric = plots.plot_schedules(planned, ax=one()).get_lines()
    np.testing.assert_allclose(xy(cosine), [np.arange(40), (1 + np.cos(np.pi * np.arange(40) / 40)) / 2], atol=1e-12)
    epoch = 8 * 2.0 ** np.arange(1, 9) / (2.0 ** np.arange(1, 9)).sum()
    np.testing.assert_allclose(xy(geometric)[1], np.tile(epoch, 5))
    many = rate_path("cosine", 100_000, 500)
    assert len(many["steps"]) == 2000
    assert (many["steps"][0], many["steps"][-1]) == (0, 99_999)


def test_axes_of_ones_own_are_drawn_in() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plots.plot_loss_line({"a": line(2.0, None)}, ax=right) is right
    assert not left.get_lines()
    parts = figure.subfigures(1, 2)
    plots.plot_training_curves({"a": epochs(3, 2.0, 1.0)}, figure=parts[0])
    assert len(parts[0].axes) == 4
    assert not parts[1].axes
