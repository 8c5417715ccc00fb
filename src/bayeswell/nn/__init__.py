"""Networks with Bayesian parameters: ``bayesian(net)``, selection, linear layers, dropout, BatchNorm statistics."""

from __future__ import annotations

from .batchnorm import has_statistics, kept_statistics, reestimate_statistics, statistics_of
from .bayesian import bayesian
from .contexts import evaluation_mode, plain_attention
from .convolution import convolve, shape_of
from .description import Description, Row
from .dropout import DrawnDropout, added_dropout, draw_masks, drawn_dropout
from .functional import unpack_inputs
from .init import reinitialized
from .linear import find_linear_layers
from .module import BayesianModule, check_prediction, trained_params
from .outputs import Output, output_tensor
from .select import FROZEN, TRAINED, Selection, Where, select

__all__ = [
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
    "check_prediction",
    "convolve",
    "draw_masks",
    "drawn_dropout",
    "evaluation_mode",
    "find_linear_layers",
    "has_statistics",
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
