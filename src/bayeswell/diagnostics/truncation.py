"""Low rank after training: a mean-field posterior whose matrices of stds are cut to rank k, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import CompositionError, SettingError, require_between, require_count
from ..lifting import BayesianModule
from ..metrics import accuracy, brier, ece, estimate_mean, gaussian_nll, nll, rmse
from ..posteriors import MeanField, MeanFieldPosterior
from ..predictive import ClassPrediction, nll_of_draws, predict
from ..predictive.inputs import as_targets
from ..tree import Site
from ..types import FACTORISED, Inputs, Likelihood
from .records import Record


@torch.no_grad()
def truncated(
    model: BayesianModule, rank: int, *, tie: str | tuple[str, ...] = "*", floor: float = 1e-3
) -> BayesianModule:
    """A new model whose stds of each weight matrix A are the best rank-k approximation A_k; the rest is shared.

    Only squares of stds matter to draws, but the KL holds -log std: from rank 2 on A_k may have negative entries or
    some next to 0. So the stds are |A_k|, at least ``floor`` times the median of A (k-tied does not say what it did).
    ``tie`` chooses matrices by name patterns as in the k-tied posterior; those whose smaller side is at most the rank
    stay as they are. The posterior must have independent weights; it becomes ``mean_field``.
    """
    require_count("truncated", "rank", rank)
    require_between("truncated", "floor", floor, 0, 1, open_low=True)
    if FACTORISED not in model.posterior_part.provides:
        raise CompositionError(
            f"truncated needs independent Gaussian weights, which posterior '{model.posterior_part.name}' does not "
            "have; use a model of posterior 'mean_field'"
        )
    chosen = [site for site in model.layout.sites if site.matrix_shape is not None and site.fits(tie)]
    if not chosen:
        known = ", ".join(site.name for site in model.layout.sites if site.matrix_shape) or "none"
        raise SettingError(f"truncated: tie = {tie!r} fits no weight matrix; the network has: {known}")
    stds = model.posterior.std_vector().clone()
    for site in chosen:
        if rank < min(site.matrix_shape or (0, 0)):
            part = model.layout.slices[site.name]
            stds[part] = _cut(site, stds[part], rank, floor)
    posterior = MeanFieldPosterior(model.layout, model.posterior.mean_vector(), stds)
    return model.with_posterior(MeanField(), posterior)


def _cut(site: Site, stds: Tensor, rank: int, floor: float) -> Tensor:
    matrix = site.to_matrix(stds.double().view(site.shape))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    approximation = (left[:, :rank] * values[:rank]) @ right[:rank]
    kept = approximation.abs().clamp_min(floor * float(np.median(matrix.cpu())))
    return site.from_matrix(kept).reshape(-1).to(stds.dtype)


@dataclass(frozen=True)
class TruncationRow(Record):
    """One rank (None: the posterior as it is).

    ``negative_elbo`` = ``expected_nll`` + ``kl`` / N in nats per datum; ``nll`` and ``score`` ("accuracy" or "rmse", in
    ``score_name``) are those of the averaged prediction. Errors are standard errors over the test examples, but for
    ``negative_elbo_error``, which is over draws; None of a single one. ``std_error`` is |A - A_k| / |A| over all stds,
    as they are used. Of class labels also ``brier`` (0 to 2; k-tied's table 3 prints it less 1, as ``tfp_brier``) and
    ``ece`` in 15 bins of equal width, of the averaged prediction too; else None.
    """

    rank: int | None
    negative_elbo: float
    negative_elbo_error: float | None
    expected_nll: float
    kl: float
    nll: float
    nll_error: float | None
    score_name: str
    score: float
    score_error: float | None
    std_error: float
    brier: float | None = None
    ece: float | None = None


@dataclass(frozen=True)
class TruncationTable(Record):
    """The posterior as it is, then rank by rank (k-tied, table 2)."""

    rows: tuple[TruncationRow, ...]
    examples: int
    draws: int
    dataset_size: int


def truncation_table(
    model: BayesianModule,
    likelihood: Likelihood,
    data: tuple[Inputs, Any],
    dataset_size: int,
    *,
    ranks: Sequence[int] = (1, 2, 3),
    tie: str | tuple[str, ...] = "*",
    floor: float = 1e-3,
    draws: int = 100,
    batch_size: int | None = None,
    seed: int = 0,
) -> TruncationTable:
    """-ELBO, NLL and accuracy (or RMSE) on test data of a mean-field posterior and of its rank-k approximations.

    ``dataset_size`` is the number N of training examples, by which the KL is divided. The same seed is used for every
    rank, so that their differences are not those of the draws.
    """
    require_count("truncation_table", "dataset_size", dataset_size)
    whole = model.posterior.std_vector().detach()
    rows = []
    for rank in (None, *ranks):
        one = model if rank is None else truncated(model, rank, tie=tie, floor=floor)
        error = float((one.posterior.std_vector().detach() - whole).norm() / whole.norm())
        rows.append(_measure(one, likelihood, data, dataset_size, rank, error, draws, batch_size, seed))
    return TruncationTable(tuple(rows), len(data[1]), draws, dataset_size)


def _measure(
    model: BayesianModule, likelihood: Likelihood, data: tuple[Inputs, Any], dataset_size: int, rank: int | None,
    std_error: float, draws: int, batch_size: int | None, seed: int,
) -> TruncationRow:  # fmt: skip
    inputs, targets = data[0], as_targets(data[1], len(data[1])).cpu()
    losses = nll_of_draws(model, inputs, data[1], likelihood, draws=draws, batch_size=batch_size, seed=seed)
    found = predict(model, inputs, likelihood, draws=draws, batch_size=batch_size, seed=seed)
    with torch.no_grad():
        kl = float(model.posterior.sample_and_kl(None, model.prior)[1])
    expected = estimate_mean(losses)
    squares = gaps = None
    if isinstance(found, ClassPrediction):
        given = found.probabilities, targets
        name, score, loss = "accuracy", accuracy(*given), nll(*given)
        squares, gaps = brier(*given).value, ece(*given).value
    else:
        mean, variance = found.mean.cpu().double(), found.variance.cpu().double()
        truth = targets.double().reshape(mean.shape)
        name, score, loss = "rmse", rmse(mean, truth), gaussian_nll(mean, variance, truth)
    return TruncationRow(
        rank, expected + kl / dataset_size, expected.error, expected.value, kl, loss.value, loss.error, name,
        score.value, score.error, std_error, squares, gaps,
    )  # fmt: skip
