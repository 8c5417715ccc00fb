"""Diagnostics of trained networks: signal-to-noise of gradients, posterior by layer, sharpness of draws."""

from __future__ import annotations

from .layers import LayerRow, LayerSummary, layer_summary
from .sharpness import SharpnessReport, sharpness
from .signal_to_noise import GradientSNR, SNRRow, SNRWindow, gradient_snr

__all__ = [
    "GradientSNR",
    "LayerRow",
    "LayerSummary",
    "SNRRow",
    "SNRWindow",
    "SharpnessReport",
    "gradient_snr",
    "layer_summary",
    "sharpness",
]
