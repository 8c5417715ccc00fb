"""How costs grow: with the weights of a network, the draws of a prediction, and the examples of a batch."""

from __future__ import annotations

from . import ours, peers
from .nets import NETS, wide_mlp
from .timing import Case

WIDTHS = (100, 200, 400, 800, 1600, 3200)
DRAWS = (1, 3, 10, 30, 100)
BATCHES = (16, 64, 256, 1024)

_METHODS = ("bbb", "k-tied", "flipout")
_PEERS = ("torchbnn", "ivon")


def width_cases(width: int) -> list[Case]:
    """Steps of an MLP of this width."""
    net = wide_mlp(width)
    return _steps(net.batch, width)


def batch_cases(batch: int) -> list[Case]:
    """Steps of the MLP on batches of this size."""
    return _steps(batch, 400)


def draw_cases(name: str, draws: int) -> list[Case]:
    """Predictions with so many draws, and as many plain passes."""
    net = NETS[name]
    return [
        ours.predicting(ours.PLAIN, lambda: ours.plain_passes(net, draws)),
        *(ours.predicting(m, lambda m=m: ours.method_prediction(m, net, draws)) for m in ("bbb", "k-tied")),
    ]


def _steps(batch: int, width: int) -> list[Case]:
    net = wide_mlp(width, batch)
    plain = [case for case in ours.plain_step_cases(net) if case.name == ours.PLAIN]
    wanted = {peers.PREFIX + name for name in _PEERS}
    others = [case for case in peers.step_cases(net) if case.name in wanted]
    return plain + [ours.step_case(name, net) for name in _METHODS] + others
