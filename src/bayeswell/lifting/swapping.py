"""What some torch modules need when their parameters are swapped for the length of a call."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..tree import Layout


class _Gone:
    """Something that is no more: references to it are dead."""


_DEAD: Any = weakref.ref(_Gone())
PADDING = "padding_row"


def forget_weights(recurrent: Iterable[nn.RNNBase]) -> None:
    """Let recurrent layers look their weights up anew, and keep no tensor (and graph) of the last call.

    They keep a list of their weights and renew it where a weight is another object than the one they remember.
    """
    for module in recurrent:
        module._flat_weights = [None] * len(module._flat_weights_names)
        module._flat_weight_refs = [_DEAD] * len(module._flat_weights_names)


class Slots:
    """The places in a network where its Bayesian parameters were, to be filled for the length of a call.

    ``torch.func.functional_call`` does the same for any tensor of any module, and looks the modules up in every call;
    here they are looked up once.
    """

    def __init__(self, net: nn.Module, layout: Layout) -> None:
        self._second = second_names(net, layout)
        self._owners: dict[str, tuple[nn.Module, str]] = {}
        for site in layout.sites:
            for name in site.names:
                if name not in self._second:
                    module_name, _, local_name = name.rpartition(".")
                    self._owners[name] = (net.get_submodule(module_name), local_name)
        self._known = self._owners.keys() | self._second

    def contents(self) -> list[Any]:
        """What the slots hold now: nothing, but for a call within a call."""
        return [module._parameters[local_name] for module, local_name in self._owners.values()]

    def fill(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Put tensors into the slots; those that have no slot (drawn dropout) come back."""
        for name, (module, local_name) in self._owners.items():
            # Not by setattr: a plain tensor may stand where a parameter was, as in functional_call.
            module._parameters[local_name] = tensors[name]  # type: ignore[assignment]
        return {name: tensor for name, tensor in tensors.items() if name not in self._known}

    def restore(self, contents: list[Any]) -> None:
        """Put back what ``contents`` gave."""
        for (module, local_name), content in zip(self._owners.values(), contents, strict=True):
            module._parameters[local_name] = content


def second_names(net: nn.Module, layout: Layout) -> frozenset[str]:
    """Further names of a slot that has one already: a module that stands in two places has one set of slots."""
    seen, second = set(), set()
    for site in layout.sites:
        for name in site.names:
            module_name, _, local_name = name.rpartition(".")
            slot = (id(net.get_submodule(module_name)), local_name)
            if slot in seen:
                second.add(name)
            seen.add(slot)
    return frozenset(second)


def keep_padding(net: nn.Module, layout: Layout, parameters: dict[str, nn.Parameter]) -> None:
    """Give embeddings with a padding token a buffer with its vector: torch never trains it, so it has no posterior."""
    for site in layout.sites:
        owner = net.get_submodule(site.name.rpartition(".")[0])
        # A weight that is also used elsewhere (a tied decoder) is trained there, padding row and all.
        if isinstance(owner, nn.Embedding | nn.EmbeddingBag) and owner.padding_idx is not None and len(site.names) == 1:
            owner.register_buffer(PADDING, parameters[site.name].detach()[owner.padding_idx].clone())


def padded_embeddings(net: nn.Module, layout: Layout) -> dict[str, nn.Module]:
    """The embeddings that keep a padding row, by the name of their weight."""
    return {
        site.name: owner
        for site in layout.sites
        if PADDING in (owner := net.get_submodule(site.name.rpartition(".")[0]))._buffers
    }


def with_padding(weight: Tensor, owner: nn.Module) -> Tensor:
    """The weight with the padding row as it was."""
    row = torch.tensor([int(owner.padding_idx)], device=weight.device)  # type: ignore[arg-type]
    return weight.index_copy(0, row, owner.get_buffer(PADDING)[None].to(weight.dtype))
