"""Every plot by name: what it needs, how it is drawn, and what it says to those who do not see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import SettingError, nearest
from . import (
    calibration,
    comparing,
    examples,
    grids,
    landscapes,
    rate_range,
    regression,
    signal_to_noise,
    stds,
    training,
    uncertainty,
)
from .canvas import SINGLE, Size, new_layout, require_matplotlib, size_for
from .theme import ThemeName, find_theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plot:
    """A plot: its function takes a record (``needs`` says which) and ``ax``, or ``figure`` if it has ``panels``.

    ``describe`` gives one sentence with the numbers of a record, as plain text.
    """

    name: str
    title: str
    function: Callable[..., Any]
    needs: str
    describe: Callable[[Any], str]
    size: Size | Callable[[Any], Size] = SINGLE
    panels: bool = False

    def draw(self, record: Any, theme: ThemeName = "light") -> Figure:
        """A figure of its own, outside pyplot: it needs no display and is gone when nobody holds it."""
        find_theme(theme)
        require_matplotlib()
        from matplotlib.figure import Figure

        size = self.size(record) if callable(self.size) else self.size
        figure = Figure(figsize=size, layout=new_layout())
        place = {"figure": figure} if self.panels else {"ax": figure.add_subplot()}
        self.function(record, theme=theme, **place)
        return figure


class Plots(Mapping[str, Plot]):
    """Plots by name, in the order they stand in a report."""

    def __init__(self, *plots: Plot) -> None:
        self._plots = {plot.name: plot for plot in plots}

    def __getitem__(self, name: str) -> Plot:
        if name not in self._plots:
            raise UnknownPlot(f"there is no plot '{name}'; {nearest(str(name), self._plots)}")
        return self._plots[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plots)

    def __len__(self) -> int:
        return len(self._plots)


class UnknownPlot(SettingError, KeyError):
    """No plot has this name."""

    __str__ = SettingError.__str__


PLOTS = Plots(
    Plot(
        "comparison", "Methods compared", comparing.plot_comparison, "comparison.json",
        comparing.describe_comparison, comparing.comparison_size, panels=True,
    ),
    Plot(
        "training_curves", "Training", training.plot_training_curves, "runs of the rows of metrics.jsonl",
        training.describe_training_curves, training.training_curves_size, panels=True,
    ),
    Plot(
        "reliability", "Reliability", calibration.plot_reliability, "CalibrationBins, with its ece if known",
        calibration.describe_reliability, calibration.RELIABILITY_SIZE, panels=True,
    ),
    Plot(
        "calibration", "Calibration", calibration.plot_calibration, "runs of CalibrationBins",
        calibration.describe_calibration, calibration.calibration_size,
    ),
    Plot(
        "risk_coverage", "Risk and coverage", uncertainty.plot_risk_coverage, "runs of RiskCoverage",
        uncertainty.describe_risk_coverage, size_for,
    ),
    Plot(
        "entropy", "Entropy of predictions", uncertainty.plot_entropy, "entropies: correct, wrong, and ood if known",
        uncertainty.describe_entropy,
    ),
    Plot(
        "ood_scores", "Inside and outside the distribution", uncertainty.plot_ood_scores, "scores: inside, outside",
        uncertainty.describe_ood_scores,
    ),
    Plot(
        "examples", "Examples", examples.plot_examples, "examples with probabilities, and image and samples if known",
        examples.describe_examples, examples.examples_size, panels=True,
    ),
    Plot(
        "regression_band", "Prediction and its uncertainty", regression.plot_regression_band,
        "x, mean, epistemic_std, and aleatoric_std, truth and training data if known",
        regression.describe_regression_band,
    ),
    Plot(
        "layers", "Layers", stds.plot_layers, "LayerReport", stds.describe_layers, stds.layers_size, panels=True,
    ),
    Plot(
        "std_paths", "Stds through training", stds.plot_std_paths, "StdPath", stds.describe_std_paths,
        stds.std_paths_size,
    ),
    Plot(
        "std_heat_maps", "Stds of a layer", stds.plot_std_heat_maps, "heat_map_record", stds.describe_std_heat_maps,
        stds.std_heat_maps_size, panels=True,
    ),
    Plot(
        "spectra", "Singular values", stds.plot_spectra, "a list of Spectra", stds.describe_spectra, stds.spectra_size,
        panels=True,
    ),
    Plot(
        "snr", "Signal to noise", signal_to_noise.plot_snr, "runs of lists of SNRWindow",
        signal_to_noise.describe_snr, size_for,
    ),
    Plot(
        "loss_line", "Loss along a line", landscapes.plot_loss_line, "runs of LossLine",
        landscapes.describe_loss_line, size_for,
    ),
    Plot(
        "loss_plane", "Loss in a plane", landscapes.plot_loss_plane, "LossPlane", landscapes.describe_loss_plane,
        landscapes.PLANE_SIZE,
    ),
    Plot(
        "sharpness", "Sharpness", landscapes.plot_sharpness, "runs of SharpnessReport", landscapes.describe_sharpness,
        landscapes.sharpness_size,
    ),
    Plot(
        "momentum_landscape", "Learning rate and momentum", grids.plot_momentum_landscape,
        "rates, momenta, accuracies, and robust and stability if wanted", grids.describe_momentum_landscape,
        grids.GRID_SIZE,
    ),
    Plot(
        "beta_landscape", "Beta1 and beta2", grids.plot_beta_landscape, "beta1, beta2, accuracies",
        grids.describe_beta_landscape, grids.GRID_SIZE,
    ),
    Plot(
        "rate_range", "Learning-rate range test", rate_range.plot_rate_range, "RateRange",
        rate_range.describe_rate_range,
    ),
    Plot(
        "step_times", "Time of a training step", comparing.plot_step_times, "runs of seconds, and error if known",
        comparing.describe_step_times, comparing.step_times_size,
    ),
)  # fmt: skip
