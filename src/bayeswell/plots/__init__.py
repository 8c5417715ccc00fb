"""Pictures of records: functions that take what was measured and return matplotlib axes."""

from .calibration import plot_calibration, plot_reliability
from .comparing import HIGHER_IS_BETTER, LOWER_IS_BETTER, plot_comparison, plot_comparison_of, plot_step_times
from .examples import plot_examples
from .exporting import figure_to_png_data_uri, figure_to_svg
from .grids import plot_beta_landscape, plot_momentum_landscape
from .landscapes import plot_loss_line, plot_loss_plane, plot_sharpness
from .quantiles import plot_interval_coverage, plot_quantile_calibration, plot_residuals
from .rate_range import plot_rate_range
from .registry import PLOTS, Plot
from .regression import plot_regression_band
from .schedules import plot_robust_region, plot_schedules
from .seed_curves import plot_seed_curves
from .signal_to_noise import plot_snr
from .stds import heat_map_record, plot_layers, plot_spectra, plot_std_heat_maps, plot_std_paths
from .theme import THEMES, Theme, style_variables
from .training import plot_learning_rates, plot_training_curve, plot_training_curves
from .trials import plot_trial_bands
from .uncertainty import plot_entropy, plot_ood_scores, plot_risk_coverage

__all__ = [
    "HIGHER_IS_BETTER",
    "LOWER_IS_BETTER",
    "PLOTS",
    "THEMES",
    "Plot",
    "Theme",
    "figure_to_png_data_uri",
    "figure_to_svg",
    "heat_map_record",
    "plot_beta_landscape",
    "plot_calibration",
    "plot_comparison",
    "plot_comparison_of",
    "plot_entropy",
    "plot_examples",
    "plot_interval_coverage",
    "plot_layers",
    "plot_learning_rates",
    "plot_loss_line",
    "plot_loss_plane",
    "plot_momentum_landscape",
    "plot_ood_scores",
    "plot_quantile_calibration",
    "plot_rate_range",
    "plot_regression_band",
    "plot_reliability",
    "plot_residuals",
    "plot_risk_coverage",
    "plot_robust_region",
    "plot_schedules",
    "plot_seed_curves",
    "plot_sharpness",
    "plot_snr",
    "plot_spectra",
    "plot_std_heat_maps",
    "plot_std_paths",
    "plot_step_times",
    "plot_training_curve",
    "plot_training_curves",
    "plot_trial_bands",
    "style_variables",
]
