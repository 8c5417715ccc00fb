"""A network as a pure function: weights in, one tensor of logits or means out.

Tensors are put into the places of parameters and buffers for the length of one call. This costs less than
``torch.func.functional_call``, which looks all modules up in every call. A lock lets one thread at a time do so.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..core.errors import NetworkError
from ..core.layout import Layout
from ..core.protocols import Inputs
from ..core.pytree import tree_map, tree_tensors
from ..ops import in_transform

PADDING_ROW = "padding_row"

Output = Callable[[Any], Tensor]
"""A function: what the network returns -> the tensor of its logits or means."""


class _Gone:
    """Target of a dead reference."""


_DEAD: Any = weakref.ref(_Gone())


class FunctionalNet:
    """``function(weights, *args, **kwargs)`` runs the network with these tensors, by name.

    Args:
        net: the network. Its Bayesian parameters are None between calls.
        layout: the Bayesian parameters.
    """

    def __init__(self, net: nn.Module, layout: Layout) -> None:
        self.net = net
        self.lock = threading.RLock()
        self._places: dict[str, tuple[dict[str, Any], str]] = {}
        self._recurrent = [module for module in net.modules() if isinstance(module, nn.RNNBase)]
        owners = {site.name: net.get_submodule(site.name.rpartition(".")[0]) for site in layout.sites}
        self._padded = {name: owner for name, owner in owners.items() if PADDING_ROW in owner._buffers}
        self._writes_inputs: dict[bool, bool] = {}

    def __call__(self, weights: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        before = []
        for name, owner in self._padded.items():
            if name in weights:
                weights = {**weights, name: with_padding(weights[name], owner)}
        # Compiled code does not change the network, and cannot hold a lock.
        with nullcontext() if torch.compiler.is_compiling() else self.lock:
            try:
                for name, tensor in weights.items():
                    tensors, local_name = self._places.get(name) or self._find_place(name)
                    before.append((tensors, local_name, tensors[local_name]))
                    tensors[local_name] = tensor
                if self._recurrent:
                    forget_weights(self._recurrent)
                if self._writes_inputs.get(self.net.training) is False:
                    return self.net(*args, **kwargs)
                return self._run_on_copies(args, kwargs)
            finally:
                # Backwards, as a shared module is reached by several names.
                for tensors, local_name, tensor in reversed(before):
                    tensors[local_name] = tensor
                if self._recurrent:
                    forget_weights(self._recurrent)

    def _find_place(self, name: str) -> tuple[dict[str, Any], str]:
        module_name, _, local_name = name.rpartition(".")
        module = self.net.get_submodule(module_name)
        tensors: dict[str, Any] = module._buffers if local_name in module._buffers else module._parameters
        self._places[name] = tensors, local_name
        return tensors, local_name

    def _run_on_copies(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The network writes into its inputs, or has not run in this mode yet.
        mode = self.net.training
        args, kwargs = tree_map(Tensor.clone, (args, kwargs))
        outputs = self.net(*args, **kwargs)
        if not (torch.compiler.is_compiling() or in_transform() or torch.is_inference_mode_enabled()):
            self._writes_inputs[mode] = any(tensor._version > 0 for tensor in tree_tensors((args, kwargs)))
        return outputs

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "lock": None, "_places": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock())


def unpack_inputs(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments of the network."""
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs,), {}


def forget_weights(recurrent: list[nn.RNNBase]) -> None:
    """Let recurrent layers look up their weights again; they otherwise keep those of the last call, with its graph."""
    for module in recurrent:
        module._flat_weights = [None] * len(module._flat_weights_names)
        module._flat_weight_refs = [_DEAD] * len(module._flat_weights_names)


def keep_padding(net: nn.Module, layout: Layout, parameters: Mapping[str, Tensor]) -> None:
    """Give embeddings with a padding token a buffer with its vector: torch never trains it, so it has no posterior."""
    for site in layout.sites:
        owner = net.get_submodule(site.name.rpartition(".")[0])
        # A weight that is also used elsewhere (a tied decoder) is trained there, padding row included.
        if isinstance(owner, nn.Embedding | nn.EmbeddingBag) and owner.padding_idx is not None and len(site.names) == 1:
            owner.register_buffer(PADDING_ROW, parameters[site.name].detach()[owner.padding_idx].clone())


def with_padding(weight: Tensor, owner: nn.Module) -> Tensor:
    """Return the weight of an embedding with its padding row as it was."""
    row = torch.tensor([int(owner.padding_idx)], device=weight.device)  # type: ignore[arg-type]
    return weight.index_copy(0, row, owner.get_buffer(PADDING_ROW)[None].to(weight.dtype))


def output_tensor(returned: Any, output: Output | None = None) -> Tensor:
    """Return ``output(returned)``, or without a hook the one tensor in what a network returned.

    Known are a tensor, an object with ``.logits`` (Hugging Face), a mapping with "logits", and a tuple of one tensor.
    """
    if output is None:
        found = returned if isinstance(returned, Tensor) else _only_tensor(returned)
        if not isinstance(found, Tensor):
            raise NetworkError(
                f"the network returned a {_kind(returned)}, but a likelihood takes one tensor; give `output`, a "
                "function of what the network returns"
            )
        return found
    found = output(returned)
    if not isinstance(found, Tensor):
        name = getattr(output, "__name__", type(output).__qualname__)
        raise NetworkError(f"output = {name} must return a tensor, got a {_kind(found)} from a {_kind(returned)}")
    return found


def _only_tensor(returned: Any) -> Any:
    logits = returned.get("logits") if isinstance(returned, Mapping) else getattr(returned, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(returned, tuple | list):
        tensors = [part for part in returned if isinstance(part, Tensor)]
        nested = any(isinstance(part, tuple | list | Mapping) for part in returned)
        return tensors[0] if len(tensors) == 1 and not nested else None
    return None


def _kind(returned: Any) -> str:
    kind = type(returned).__name__
    if isinstance(returned, Mapping):
        return f"{kind} of {', '.join(map(repr, returned))}"
    if isinstance(returned, tuple | list):
        parts = [f"{tuple(p.shape)}" if isinstance(p, Tensor) else type(p).__name__ for p in returned]
        return f"{kind} of {', '.join(parts)}"
    return kind


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards each submodule has the mode it had before.

    The lock of a ``BayesianModule`` is held, so that no other thread sees it in the wrong mode.
    """
    with getattr(model, "lock", nullcontext()):
        training = [module for module in model.modules() if module.training]
        for module in training:
            module.training = False
        try:
            yield
        finally:
            for module in training:
                module.training = True


class _PlainKernels:
    """Counts the blocks that need plain kernels; the first one switches and the last one switches back."""

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.before: Any = None

    def enter(self) -> None:
        with self.lock:
            self.blocks += 1
            if self.blocks == 1:
                self.before = torch.backends.mha.get_fastpath_enabled(), sdpa_kernel(SDPBackend.MATH)
                torch.backends.mha.set_fastpath_enabled(False)
                self.before[1].__enter__()

    def leave(self) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                fast, attention = self.before
                attention.__exit__(None, None, None)
                torch.backends.mha.set_fastpath_enabled(fast)


_plain = _PlainKernels()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention made of elementary operations inside the block.

    torch's fused kernels lack second derivatives, forward-mode derivatives and derivatives of single examples. torch
    switches them for the whole process: other threads meanwhile compute the same with plain kernels.
    """
    _plain.enter()
    try:
        yield
    finally:
        _plain.leave()
