"""Networks with Bayesian parameters: ``bayesian(net)``, selection, linear layers, dropout, BatchNorm statistics."""

from __future__ import annotations

from .batchnorm import has_statistics, kept_statistics, reestimate_statistics, statistics_of
from .bayesian import bayesian
from .convolution import convolve, shape_of
from .description import Description, Row
from .dropout import ADDED_DROPOUT, DrawnDropout, added_dropout, draw_masks, drawn_dropout, drop_input
from .functional import Output, evaluation_mode, output_tensor, plain_attention, unpack_inputs
from .init import reinitialized
from .linear import by_place, find_linear_layers, input_patches
from .module import BayesianModule, check_prediction, trained_params
from .select import FROZEN, TRAINED, Selection, Where, select

__all__ = [
    "ADDED_DROPOUT",
    "FROZEN",
    "TRAINED",
    "BayesianModule",
    "Description",
    "DrawnDropout",
    "Output",
    "Row",
    "Selection",
    "Where",
    "added_dropout",
    "bayesian",
    "by_place",
    "check_prediction",
    "convolve",
    "draw_masks",
    "drawn_dropout",
    "drop_input",
    "evaluation_mode",
    "find_linear_layers",
    "has_statistics",
    "input_patches",
    "kept_statistics",
    "output_tensor",
    "plain_attention",
    "reestimate_statistics",
    "reinitialized",
    "select",
    "shape_of",
    "statistics_of",
    "trained_params",
    "unpack_inputs",
]
