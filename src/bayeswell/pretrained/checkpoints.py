"""The snapshots of a training that is over: networks, state dicts, or files of tensors."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DataError, FileError, NetworkError
from ..persistence.contents import decode_tensors

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
Checkpoint = Mapping[str, Tensor] | nn.Module | str | os.PathLike[str]


def networks_of(net: nn.Module, checkpoints: Sequence[Checkpoint]) -> Iterator[nn.Module]:
    """A copy of the network with the numbers of each checkpoint in turn: one network in memory, whatever their number.

    Files are safetensors; a file that ``torch.save`` wrote is a pickle, which could run code, and is left to its owner.
    """
    own = copy.deepcopy(net)
    for number, checkpoint in enumerate(checkpoints):
        what, state = _state(number, checkpoint)
        try:
            own.load_state_dict(dict(state), strict=True)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise NetworkError(f"{what} does not fit the network: {' '.join(str(error).split())}") from error
        yield own


def _state(number: int, checkpoint: Any) -> tuple[str, Mapping[str, Any]]:
    """What to call it in a message, and its tensors by name."""
    what = f"checkpoint {number}"
    if isinstance(checkpoint, nn.Module):
        return what, checkpoint.state_dict()
    if isinstance(checkpoint, Mapping):
        wrong = next((key for key, value in checkpoint.items() if not isinstance(value, Tensor)), None)
        if wrong is not None:
            raise DataError(
                f"{what} holds a {type(checkpoint[wrong]).__name__} under {wrong!r}; give the state dict itself, names "
                "and tensors (`saved['state_dict']`, say)"
            )
        return what, checkpoint
    if isinstance(checkpoint, str | os.PathLike):
        return f"{what} ({os.fspath(checkpoint)!r})", _from_file(what, Path(checkpoint))
    raise DataError(
        f"{what} is of type {type(checkpoint).__name__}; give state dicts, networks, or paths of .safetensors files"
    )


def _from_file(what: str, path: Path) -> dict[str, Tensor]:
    if path.suffix in _PICKLES:
        raise FileError(
            f"{what}: {str(path)!r} is a pickle, and a pickle can run code: read it yourself, "
            "torch.load(path, weights_only=True), and give the state dict"
        )
    try:
        found = decode_tensors(path.read_bytes())
    except OSError as error:
        raise FileError(f"{what}: {str(path)!r} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise FileError(f"{what}: {str(path)!r}: {error}") from error
    return found


class AveragedBuffers:
    """Means of the real buffers (BatchNorm's statistics) over networks; of whole numbers the last."""

    def __init__(self) -> None:
        self.count, self.means = 0, dict[str, Tensor]()

    def add(self, net: nn.Module) -> None:
        """Take in the buffers of one more network."""
        self.count += 1
        for name, buffer in net.named_buffers():
            if not buffer.is_floating_point():
                self.means[name] = buffer.clone()
                continue
            wide = buffer.detach().double()
            mean = self.means.get(name, torch.zeros_like(wide))
            self.means[name] = mean + (wide - mean) / self.count


def put_buffers(net: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give a network buffers by name; one that it has not is left out."""
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            if name in values:
                buffer.copy_(values[name])
