"""A network whose rest is frozen: nothing of it moves while its Bayesian parameters train."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ..tree import Layout
from .dropout import DrawnDropout


def keep_in_evaluation(net: nn.Module, layout: Layout) -> None:
    """Evaluation mode for every module without a Bayesian parameter of its own: what it gives are the given features.

    So BatchNorm normalises by its statistics, which stay as they are (also where its scale is Bayesian), and ordinary
    dropout is off. Dropout that is drawn with the weights (mc-dropout) is part of the posterior, and stays on.
    """
    owners = {net.get_submodule(name.rpartition(".")[0]) for site in layout.sites for name in site.names}
    for module in net.modules():
        if isinstance(module, _NormBase) or not (module in owners or isinstance(module, DrawnDropout)):
            module.training = False


def moving_statistics(net: nn.Module) -> list[str]:
    """BatchNorm layers whose own parameters are all frozen, but whose running statistics training would move."""
    return [
        name
        for name, module in net.named_modules()
        if isinstance(module, _NormBase) and module.running_mean is not None and module.training
        and (own := list(module.parameters(recurse=False))) and not any(p.requires_grad for p in own)
    ]  # fmt: skip
