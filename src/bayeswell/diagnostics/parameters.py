"""Which numbers of the trained state belong to which layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..lifting import BayesianModule

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
        for layer, start, stop in model.posterior.rows_by_site(name, parameter):
            shares.append(Share(group, layer, f"posterior.{name}", start, stop))
    for name, parameter in model.net.named_parameters():
        shares.append(Share(DETERMINISTIC, name, f"net.{name}", 0, len(parameter) if parameter.dim() else 1))
    return shares
