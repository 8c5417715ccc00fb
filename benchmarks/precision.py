"""The same step in bfloat16, and of networks that torch.compile has compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import ours
from .nets import Net
from .timing import Case, Step

COMPILED = "{}, compiled"
BF16_METHODS = ("bbb", "k-tied")


def bf16_cases(net: Net) -> list[Case]:
    """Ordinary training and methods, all under autocast, as ``fit(..., precision="bf16-mixed")`` computes."""
    plain = [_alone(name, lambda: _in_bf16(ours.plain_step(net))) for name in (ours.PLAIN, ours.PLAIN_AGAIN)]
    return plain + [_alone(name, lambda name=name: _in_bf16(ours.method_step(name, net))) for name in BF16_METHODS]


def compiled_cases(net: Net) -> list[Case]:
    """Ordinary training and mean-field, each of the network as it is and of the compiled one."""
    inner = compiled(net)
    return [
        _alone(ours.PLAIN, lambda: ours.plain_step(net)),
        _alone(COMPILED.format(ours.PLAIN), lambda: ours.plain_step(inner)),
        _alone("bbb", lambda: ours.method_step("bbb", net)),
        _alone(COMPILED.format("bbb"), lambda: ours.method_step("bbb", inner)),
    ]


def compiled(net: Net, **settings: Any) -> Net:
    """The net whose networks are compiled as a whole: a break of the graph would be an error."""

    def build(*given: Any) -> nn.Module:
        made: Any = torch.compile(net.build(), fullgraph=True, **settings)
        return made  # type: ignore[no-any-return]

    return dataclasses.replace(net, model=build)


def _alone(name: str, build: Callable[[], Step]) -> Case:
    """Long enough to be timed by itself."""
    return Case(name, build, calls=1, settle=0)


def _in_bf16(step: Step) -> Step:
    """The step under autocast, its backward pass and update too: those follow the types that they are given."""

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            step()

    return run
