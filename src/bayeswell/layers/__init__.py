"""What the library knows of layer kinds: which are linear in their weight, and how their units are wired."""

from .convolution import convolve, shape_of
from .kernels import plain_attention, plain_kernels, without_fused_attention
from .linear import find_linear_layers, is_linear_layer
from .recurrent import is_plain_lstm, lstm_layers
from .statistics import kept_statistics
from .wiring import NORMALISATION_LAYERS, Wiring, wiring_of

__all__ = [
    "NORMALISATION_LAYERS",
    "Wiring",
    "convolve",
    "find_linear_layers",
    "is_linear_layer",
    "is_plain_lstm",
    "kept_statistics",
    "lstm_layers",
    "plain_attention",
    "plain_kernels",
    "shape_of",
    "wiring_of",
    "without_fused_attention",
]
