"""Batches read by their places in a data set, here or in worker processes, with the same result.

What reading draws at random (torch's, numpy's and Python's global generators) comes from a stream that the batch alone
decides, so it does not matter which process reads it, or what was read before. Only a data set that keeps a generator
of its own, or counts what it has read, can tell the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from .example_stream import ExampleStream


@dataclass(frozen=True)
class Task:
    """One batch: which examples, and the seed of what reading them draws at random."""

    indices: Any
    seed: int


def read_tasks(read: Callable[[Any], Any], tasks: Sequence[Task], seed: int, **how: Any) -> Iterator[Any]:
    """``read(task.indices)`` for each task, in their order; ``how`` are settings of torch's DataLoader."""
    if not how.get("num_workers"):
        how.pop("prefetch_factor", None)
    loader = DataLoader(_Reading(read), batch_size=None, sampler=tasks, collate_fn=as_it_is, **how)
    stream = ExampleStream(seed)  # torch draws a seed for the workers; not from the stream of the run
    with stream.entered():
        reader = iter(loader)
    for _ in tasks:
        with stream.entered():
            batch = next(reader)
        yield batch


class _Reading(Dataset[Any]):
    """A data set whose examples are whole batches."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __getitem__(self, task: Task) -> Any:
        with ExampleStream(task.seed).entered():
            return self.read(task.indices)


def as_it_is(batch: Any) -> Any:
    """The batch is one already."""
    return batch
