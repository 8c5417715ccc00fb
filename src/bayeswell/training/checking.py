"""Data looked at once, before any training: what is wrong is told in one line, with the row of the data given.

Tensors in memory are looked at whole. Loaders and data sets cannot be read twice cheaply: their first examples are
tried, and every batch is looked at as it is met, by its places in the data set.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ..batches import Collated
from ..errors import DataError, NetworkError
from ..lifting import BayesianModule
from ..likelihoods import LIKELIHOODS, check_targets
from ..modes import evaluation_mode
from ..nested import map_tensors
from ..objectives.checked import require_finite
from ..outputs import Output, apply, require_tensor, tensor_of
from ..predictive.trial import in_real_numbers, tried
from ..refusals import with_row
from ..types import Inputs
from .data import Batches, ReadBatches, TensorBatches
from .examples import dtype_of, first_examples


class Trial:
    """A network that can be tried with a few inputs, and what its likelihood asks of targets."""

    def __init__(self, net: nn.Module, likelihood: Any, output: Output | None) -> None:
        lazy = next((name for name, p in net.named_parameters() if isinstance(p, UninitializedParameter)), None)
        if lazy is not None:
            raise NetworkError(f"parameter '{lazy}' has no shape yet (a lazy layer): call the network once before")
        if isinstance(net, BayesianModule):  # which knows its own hook
            net, output = net if output is None else net.with_output(output), None
        self.net, self.output, self.likelihood = net, output, LIKELIHOODS.resolve(likelihood)
        self.dtype = dtype_of(net)
        if self.dtype == torch.float16:
            raise NetworkError(
                "the network's weights are float16, in which stds and steps underflow: give net.float(), and for speed "
                "devices=Devices(precision='bf16-mixed')"
            )
        self.device = next((parameter.device for parameter in net.parameters()), torch.device("cpu"))

    def look_at(self, batches: Batches, name: str = "") -> None:
        """Refuse data that cannot be trained on; whole numbers that the network takes as real ones become such."""
        if isinstance(batches, ReadBatches):
            inputs, targets = batches.few()
            outputs, batches.as_real = self._outputs(inputs, len(targets))
            # Places of a sequence may differ from batch to batch: the objective looks at those.
            if outputs is not None and outputs.dim() <= 2:
                batches.check = functools.partial(self._check_targets, outputs=outputs)
        elif isinstance(batches, TensorBatches):
            with rows_named(name):
                require_finite("the inputs", batches.inputs)
            size = batches.batch_size if batches.batch_size > 1 else batches.examples
            outputs, as_real = self._outputs(first_examples(batches.inputs, size), size)
            batches.inputs = in_real_numbers(batches.inputs, as_real, self.dtype)
            if outputs is not None:
                with rows_named(name):
                    self._check_targets(batches.targets, outputs)

    def look_at_read(self, inputs: Inputs, targets: Tensor, name: str) -> None:
        """The same of held-out data, which are in memory."""
        start = 0
        whole = not isinstance(inputs, Collated)
        for piece, size in [(inputs, len(targets))] if whole else zip(inputs.pieces, inputs.sizes, strict=True):
            try:
                require_finite("the inputs", piece)
            except DataError as error:
                row = with_row(error, range(start, start + size), "row {} of the data")
                raise DataError(f"{name}: {row}") from None
            start += size
        try:
            outputs, _ = self._outputs(first_examples(inputs, 2), 2)
        except (DataError, NetworkError) as error:
            raise type(error)(f"{name}: {error}") from error
        if outputs is not None and outputs.dim() <= 2:
            with rows_named(name):
                self._check_targets(targets, outputs)

    def _outputs(self, inputs: Inputs, most: int) -> tuple[Tensor | None, frozenset[str]]:
        """Of a few examples, where the likelihood is one that looks at them."""
        with evaluation_mode(self.net):
            found = tried(self._call, inputs, self.dtype, most)
        outputs = found.outputs if self.output is None else apply(self.output, found.outputs)
        if not hasattr(self.likelihood, "check"):
            known = tensor_of(outputs)
            return (known if isinstance(known, Tensor) and known.dim() else None), found.as_real
        return require_tensor(outputs), found.as_real

    def _call(self, inputs: Inputs) -> Any:
        placed = map_tensors(inputs, lambda tensor: tensor.to(self.device))
        if isinstance(placed, dict):
            return self.net(**placed)
        return self.net(*placed) if isinstance(placed, tuple) else self.net(placed)

    def _check_targets(self, targets: Tensor, outputs: Tensor) -> None:
        if outputs.dim() == 0:
            raise NetworkError("the network returned a single number; the first axis must count the examples")
        if len(targets) == 0:
            raise DataError("the batch is empty: it has no targets")
        if targets.is_floating_point():
            require_finite("the targets", targets)
        shape = (len(targets), *outputs.shape[1:])
        check_targets(self.likelihood, targets, outputs[:1].detach().to(targets.device).expand(shape))


@contextmanager
def rows_named(name: str = "") -> Iterator[None]:
    """Within the block an index in an error counts the rows of the data: say so."""
    try:
        yield
    except DataError as error:
        told = with_row(error, of="row {} of the data")
        raise DataError(f"{name}: {told}" if name else str(told)) from None
