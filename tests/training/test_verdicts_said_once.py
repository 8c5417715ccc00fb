"""Verdicts are each said once, and nothing else is said beside them."""

from __future__ import annotations

import warnings

import torch

import bayeswell as bw
from bayeswell.metrics.chains import ChainReport
from bayeswell.training.disagreement import disagreement_of
from bayeswell.training.verdicts import Trust


def test_the_same_line_with_other_numbers_is_said_once() -> None:
    """Of four draws in a chain nothing can be told, here and elsewhere, up to R-hats that differ."""
    here = ChainReport(1.5, 3.0, 1, 4, 64, 0, 4.0)
    there = ChainReport(1.5, 3.0, 1, 4, 64, 30, 4.0)
    assert here.warnings != there.warnings
    assert Trust(chains=here, chains_elsewhere=there).warnings == here.warnings


def test_members_with_learned_noise_are_compared_in_silence() -> None:
    likelihood = bw.Gaussian("learned")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert disagreement_of(torch.tensor([[[1.0]], [[3.0]]]), likelihood) is not None
