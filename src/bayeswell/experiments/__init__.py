"""Experiments: from names to a run, its result, and several side by side."""

from .comparing import compare
from .config_file import read_config
from .config_parsing import build_method, merged, parse_settings, parse_value
from .data_card import DataCard
from .evaluating import evaluate, load_model
from .experiment import Experiment, experiment_settings
from .inspecting import inspect_run, inspection_of
from .loggers import CsvLog, TensorBoardLog
from .paths import path_of, place_in
from .predicting import predict_file, write_predictions
from .problem import Problem, load_problem
from .running import RunFailed, experiment_of, finished_result, resume_run, run

__all__ = [
    "CsvLog",
    "DataCard",
    "Experiment",
    "Problem",
    "RunFailed",
    "TensorBoardLog",
    "build_method",
    "compare",
    "evaluate",
    "experiment_of",
    "experiment_settings",
    "finished_result",
    "inspect_run",
    "inspection_of",
    "load_model",
    "load_problem",
    "merged",
    "parse_settings",
    "parse_value",
    "path_of",
    "place_in",
    "predict_file",
    "read_config",
    "resume_run",
    "run",
    "write_predictions",
]
