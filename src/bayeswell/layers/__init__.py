"""What the library knows of layer kinds: which are linear in their weight, and how their units are wired."""

from .channels_last import (
    convolve_channels_last,
    gains_channels_last,
    is_for_channels_last,
    keeps_layouts,
    wide_kernels,
    with_channels_last,
)
from .convolution import convolve, shape_of
from .kernels import plain_attention, plain_kernels, without_fused_attention
from .linear import find_linear_layers, is_linear_layer
from .normalisation import batch_norm, is_plain_batch_norm, normalises_by_batch
from .one_dnn import WITH_AVX512
from .recurrent import is_plain_lstm, lstm_layers
from .statistics import kept_statistics
from .wiring import NORMALISATION_LAYERS, Wiring, wiring_of

__all__ = [
    "NORMALISATION_LAYERS",
    "WITH_AVX512",
    "Wiring",
    "batch_norm",
    "convolve",
    "convolve_channels_last",
    "find_linear_layers",
    "gains_channels_last",
    "is_for_channels_last",
    "is_linear_layer",
    "is_plain_batch_norm",
    "is_plain_lstm",
    "keeps_layouts",
    "kept_statistics",
    "lstm_layers",
    "normalises_by_batch",
    "plain_attention",
    "plain_kernels",
    "shape_of",
    "wide_kernels",
    "wiring_of",
    "with_channels_last",
    "without_fused_attention",
]
