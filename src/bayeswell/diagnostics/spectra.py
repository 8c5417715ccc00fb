"""Singular values of the matrices of stds and of means: how near to low rank a posterior is.

k-tied (Swiatkowski et al. 2020, figure 3): the matrix of stds of a trained mean-field posterior has one or two
dominant singular values, that of the means has not. But stds that are all equal have rank 1 already, so the claim
needs two controls: the spectrum at initialisation, and that of the matrix with its mean taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, require_count
from ..lifting import BayesianModule
from ..training import Callback, Run
from .records import Record


@dataclass(frozen=True)
class LayerSpectrum(Record):
    """Explained variance gamma_k^2 / sum gamma^2 of each singular value gamma_k, largest first, of one weight matrix.

    ``rows`` are output units, ``columns`` inputs x kernel area: a convolution kernel is the (h w c_in) x c_out matrix
    (its transpose has the same singular values). ``centred_stds`` and ``centred_log_stds`` are the spectra with the
    mean over the whole matrix taken away (empty if nothing is left: all stds are equal, or there are none).
    """

    layer: str
    rows: int
    columns: int
    stds: tuple[float, ...]
    means: tuple[float, ...]
    centred_stds: tuple[float, ...]
    centred_log_stds: tuple[float, ...]


@dataclass(frozen=True)
class Spectra(Record):
    """The spectra of all weight matrices, after ``step`` steps of a member's training (None: not known)."""

    layers: tuple[LayerSpectrum, ...]
    step: int | None = None
    member: int = 0


@torch.no_grad()
def spectra(model: BayesianModule, *, most: int = 50, step: int | None = None, member: int = 0) -> Spectra:
    """The spectra of a model's posterior; of each the first ``most`` values (the shares are of all of them)."""
    require_count("spectra", "most", most)
    means, stds = (vector.double() for vector in (model.posterior.mean_vector(), model.posterior.std_vector()))
    layers = []
    for site, part in zip(model.layout.sites, model.layout.slices.values(), strict=True):
        if site.matrix_shape is None:
            continue
        mean, std = (site.to_matrix(vector[part].view(site.shape)) for vector in (means, stds))
        logs = std.log() if bool((std > 0).all()) else torch.zeros_like(std)
        found = [explained_variance(matrix)[:most] for matrix in (std, mean, _centred(std), _centred(logs))]
        layers.append(LayerSpectrum(site.name, *site.matrix_shape, *found))
    if not layers:
        raise DataError("spectra: the network has no Bayesian weight matrix")
    return Spectra(tuple(layers), step, member)


def explained_variance(matrix: Tensor) -> tuple[float, ...]:
    """gamma_k^2 / sum gamma^2 of each singular value, largest first; empty for a matrix of zeros."""
    squares = torch.linalg.svdvals(matrix.double()).square()
    total = squares.sum()
    return tuple((squares / total).tolist()) if float(total) > 0 else ()


def _centred(matrix: Tensor) -> Tensor:
    away = matrix - matrix.mean()
    # What is left of equal numbers is rounding, which has a spectrum but no meaning.
    return away if float(away.abs().max()) > 1e-6 * float(matrix.abs().max()) else torch.zeros_like(matrix)


class SpectrumTrace(Callback):
    """Takes the spectra before the first step and after the last."""

    def __init__(self, most: int = 50) -> None:
        require_count("spectrum trace", "most", most)
        self.most = most
        self.taken: list[Spectra] = []

    def start(self, run: Run) -> None:
        if run.step == 0:
            self._take(run)

    def end(self, run: Run) -> None:
        self._take(run)

    def _take(self, run: Run) -> None:
        self.taken.append(spectra(run.assembly.model, most=self.most, step=run.step, member=run.member))

    def state_dict(self) -> dict[str, Any]:
        return {"taken": [one.as_json() for one in self.taken]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.taken = [spectra_from_json(one) for one in state["taken"]]


def spectra_from_json(record: Mapping[str, Any]) -> Spectra:
    """The inverse of ``as_json``."""
    layers: list[dict[str, Any]] = [
        {k: tuple(v) if isinstance(v, list) else v for k, v in layer.items()} for layer in record["layers"]
    ]
    return Spectra(tuple(LayerSpectrum(**layer) for layer in layers), record["step"], record["member"])
