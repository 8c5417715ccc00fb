"""What training and its posterior look like from inside: plain records of numbers, for files and for pictures."""

from ..metrics.pareto import fit_generalised_pareto, k_hat, k_hat_limit
from .fidelity import Fidelity, Probabilities, fidelity, fidelity_to_file, read_probabilities
from .landscapes import LossLine, LossPlane, filter_normalised, loss_line, loss_plane
from .layers import LayerReport, LayerRow, layer_report
from .records import Record
from .schedules import RateTrace, kl_weight_path, rate_path
from .sharpness import DrawSharpness, SharpnessReport, sharpness
from .signal_to_noise import GradientSNR, SNRRow, SNRWindow, gradient_snr
from .spectra import LayerSpectrum, Spectra, SpectrumTrace, explained_variance, spectra
from .std_movement import StdMovement, StdPath, StdTrace, std_movement
from .step_trace import StepTrace
from .truncation import TruncationRow, TruncationTable, truncated, truncation_table
from .trust import ParetoReport, Trust, importance_ratios, pareto_report, trust

__all__ = [
    "DrawSharpness",
    "Fidelity",
    "GradientSNR",
    "LayerReport",
    "LayerRow",
    "LayerSpectrum",
    "LossLine",
    "LossPlane",
    "ParetoReport",
    "Probabilities",
    "RateTrace",
    "Record",
    "SNRRow",
    "SNRWindow",
    "SharpnessReport",
    "Spectra",
    "SpectrumTrace",
    "StdMovement",
    "StdPath",
    "StdTrace",
    "StepTrace",
    "TruncationRow",
    "TruncationTable",
    "Trust",
    "explained_variance",
    "fidelity",
    "fidelity_to_file",
    "filter_normalised",
    "fit_generalised_pareto",
    "gradient_snr",
    "importance_ratios",
    "k_hat",
    "k_hat_limit",
    "kl_weight_path",
    "layer_report",
    "loss_line",
    "loss_plane",
    "pareto_report",
    "rate_path",
    "read_probabilities",
    "sharpness",
    "spectra",
    "std_movement",
    "truncated",
    "truncation_table",
    "trust",
]
