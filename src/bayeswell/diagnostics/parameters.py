"""Which numbers of the trained state belong to which layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ..lifting import BayesianModule
from ..posteriors.k_tied import KTiedPosterior
from ..posteriors.matrix_normal import MatrixNormalPosterior

MEANS, STDS, DETERMINISTIC = "means", "stds", "deterministic"


@dataclass(frozen=True)
class Share:
    """Rows ``start`` to ``stop`` of one parameter of the model, which belong to one layer."""

    group: str
    layer: str
    parameter: str
    start: int
    stop: int

    def of(self, tensor: Tensor) -> Tensor:
        """The share's numbers of a tensor that has the parameter's shape, flat."""
        return tensor.reshape(len(tensor) if tensor.dim() else 1, -1)[self.start : self.stop].reshape(-1)


def shares_of(model: BayesianModule) -> list[Share]:
    """All trained numbers of a model, layer by layer.

    ``means`` and ``stds`` (whatever shapes q: log stds, rho, tied factors, covariance factors) of each Bayesian
    parameter, then the network's deterministic parameters. A factor that belongs to no single layer has its own name
    in the layer's place.
    """
    shares = []
    for name, parameter in model.posterior.named_parameters():
        group = MEANS if name == "mean" else STDS
        for layer, start, stop in _rows(model, name, parameter):
            shares.append(Share(group, layer, f"posterior.{name}", start, stop))
    for name, parameter in model.net.named_parameters():
        shares.append(Share(DETERMINISTIC, name, f"net.{name}", 0, len(parameter) if parameter.dim() else 1))
    return shares


def _rows(model: BayesianModule, name: str, parameter: Tensor) -> Iterator[tuple[str, int, int]]:
    """(layer, first row, behind the last row) of one parameter of q."""
    layout, posterior = model.layout, model.posterior
    sizes: list[tuple[str, int]] | None = None
    if isinstance(posterior, KTiedPosterior) and name != "mean":
        tied = name == "log_factors"
        sizes = [(s.name, sum(s.matrix_shape or (0, 0)) * posterior.rank if tied else s.size) for s in layout.sites
                 if (s.name in posterior.tied) == tied]  # fmt: skip
    elif isinstance(posterior, MatrixNormalPosterior) and name != "mean":
        matrices = [site for site in layout.sites if site.matrix_shape is not None]
        if name.startswith("scales."):
            yield matrices[int(name.split(".")[1])].name, 0, len(parameter)
            return
        sizes = [(site.name, site.size) for site in layout.sites if site.matrix_shape is None]
    elif parameter.dim() and len(parameter) == layout.size:
        sizes = [(site.name, site.size) for site in layout.sites]
    if sizes is None:
        yield name, 0, len(parameter) if parameter.dim() else 1
        return
    at = 0
    for layer, size in sizes:
        yield layer, at, at + size
        at += size
