"""Every plot by name: what it needs, how it is drawn, and what it says to those who do not see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import SettingError, nearest
from .calibration import describe_calibration, describe_reliability, plot_calibration, plot_reliability
from .canvas import OUTSIDE_PYPLOT, Figure
from .comparing import describe_comparison, describe_step_times, plot_comparison, plot_step_times
from .examples import describe_examples, plot_examples
from .grids import describe_beta_landscape, describe_momentum_landscape, plot_beta_landscape, plot_momentum_landscape
from .landscapes import (
    describe_loss_line,
    describe_loss_plane,
    describe_sharpness,
    plot_loss_line,
    plot_loss_plane,
    plot_sharpness,
)
from .quantiles import (
    describe_interval_coverage,
    describe_quantile_calibration,
    describe_residuals,
    plot_interval_coverage,
    plot_quantile_calibration,
    plot_residuals,
)
from .rate_range import describe_rate_range, plot_rate_range
from .regression import describe_regression_band, plot_regression_band
from .schedules import describe_robust_region, describe_schedules, plot_robust_region, plot_schedules
from .seed_curves import describe_seed_curves, plot_seed_curves
from .signal_to_noise import describe_snr, plot_snr
from .stds import (
    describe_layers,
    describe_spectra,
    describe_std_heat_maps,
    describe_std_paths,
    plot_layers,
    plot_spectra,
    plot_std_heat_maps,
    plot_std_paths,
)
from .theme import ThemeName
from .training import describe_training_curves, plot_training_curves
from .trials import describe_trial_bands, plot_trial_bands
from .uncertainty import (
    describe_entropy,
    describe_ood_scores,
    describe_risk_coverage,
    plot_entropy,
    plot_ood_scores,
    plot_risk_coverage,
)


@dataclass(frozen=True)
class Plot:
    """A plot: its function takes a record (``needs`` says which) and ``ax``, or ``figure`` if it has ``panels``.

    ``describe`` gives one sentence with the numbers of a record, as plain text.
    """

    name: str
    title: str
    function: Callable[..., Any]
    describe: Callable[[Any], str]
    needs: str
    panels: bool = False

    def draw(self, record: Any, theme: ThemeName = "light") -> Figure:
        """A figure of its own, outside pyplot: it needs no display and is gone when nobody holds it."""
        place = {"figure" if self.panels else "ax": OUTSIDE_PYPLOT}
        drawn = self.function(record, theme=theme, **place)
        found: Figure = (drawn[0] if self.panels else drawn).get_figure(root=True)
        return found


class UnknownPlot(SettingError, KeyError):
    """No plot has this name."""

    __str__ = SettingError.__str__


class Plots(dict[str, Plot]):
    """Plots by name, in the order they stand in a report."""

    def __missing__(self, name: str) -> Plot:
        raise UnknownPlot(f"there is no plot '{name}'; {nearest(str(name), self)}")


_LISTED = (
    Plot("comparison", "Methods compared", plot_comparison, describe_comparison, "comparison.json", panels=True),
    Plot("training_curves", "Training", plot_training_curves, describe_training_curves,
         "runs of the rows of metrics.jsonl", panels=True),
    Plot("seed_curves", "Training, mean and std over seeds", plot_seed_curves, describe_seed_curves,
         "runs of lists of the rows of metrics.jsonl, one a seed", panels=True),
    Plot("trial_bands", "Trials of a sweep", plot_trial_bands, describe_trial_bands,
         "score, epochs, lower, median, upper, trials: bands of a sweep"),
    Plot("reliability", "Reliability", plot_reliability, describe_reliability,
         "CalibrationBins, with its ece if known", panels=True),
    Plot("calibration", "Calibration", plot_calibration, describe_calibration, "runs of CalibrationBins"),
    Plot("risk_coverage", "Risk and coverage", plot_risk_coverage, describe_risk_coverage, "runs of RiskCoverage"),
    Plot("entropy", "Entropy of predictions", plot_entropy, describe_entropy,
         "entropies: correct, wrong, and ood if known"),
    Plot("ood_scores", "Inside and outside the distribution", plot_ood_scores, describe_ood_scores,
         "scores: inside, outside"),
    Plot("examples", "Examples", plot_examples, describe_examples,
         "examples with probabilities, and image and samples if known", panels=True),
    Plot("regression_band", "Prediction and its uncertainty", plot_regression_band, describe_regression_band,
         "x, mean, epistemic_std, and aleatoric_std, truth and training data if known"),
    Plot("interval_coverage", "Coverage of intervals", plot_interval_coverage, describe_interval_coverage,
         "runs of levels, observed, and count if known"),
    Plot("quantile_calibration", "Calibration of quantiles", plot_quantile_calibration, describe_quantile_calibration,
         "runs of levels, observed, and count if known"),
    Plot("residuals", "Residuals", plot_residuals, describe_residuals, "predicted, residual, std"),
    Plot("layers", "Layers", plot_layers, describe_layers, "LayerReport", panels=True),
    Plot("std_paths", "Stds through training", plot_std_paths, describe_std_paths, "StdPath"),
    Plot("std_heat_maps", "Stds of a layer", plot_std_heat_maps, describe_std_heat_maps,
         "heat_map_record", panels=True),
    Plot("spectra", "Singular values", plot_spectra, describe_spectra, "a list of Spectra", panels=True),
    Plot("snr", "Signal to noise", plot_snr, describe_snr, "runs of lists of SNRWindow"),
    Plot("loss_line", "Loss along a line", plot_loss_line, describe_loss_line, "runs of LossLine"),
    Plot("loss_plane", "Loss in a plane", plot_loss_plane, describe_loss_plane, "LossPlane"),
    Plot("sharpness", "Sharpness", plot_sharpness, describe_sharpness, "runs of SharpnessReport"),
    Plot("momentum_landscape", "Learning rate and momentum", plot_momentum_landscape, describe_momentum_landscape,
         "rates, momenta, accuracies, and robust and stability if wanted"),
    Plot("beta_landscape", "Beta1 and beta2", plot_beta_landscape, describe_beta_landscape, "beta1, beta2, accuracies"),
    Plot("rate_range", "Learning-rate range test", plot_rate_range, describe_rate_range, "RateRange"),
    Plot("robust_region", "Robust region of SGD", plot_robust_region, describe_robust_region,
         "runs of curvature_min, curvature_max"),
    Plot("schedules", "Schedules", plot_schedules, describe_schedules, "runs of steps, values"),
    Plot("step_times", "Time of a training step", plot_step_times, describe_step_times,
         "runs of seconds, and error if known"),
)  # fmt: skip
PLOTS = Plots({plot.name: plot for plot in _LISTED})
"""Every plot by name, with what it needs and shows."""
