"""A dozen mistakes that everybody makes once, and the line that each gets: before any training, nothing half done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayeswell as bw


def net(outputs: int = 3) -> nn.Module:
    """An ordinary network."""
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, outputs))


def main() -> None:
    """Make the mistakes, print the answers; then do it right."""
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    y = x[:, :3].argmax(1)
    hole, ten = x.clone(), y.clone()
    hole[17, 2], ten[41] = math.nan, 3
    pictures = torch.randint(0, 256, (200, 28, 28), dtype=torch.uint8)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(784, 3))
    shuffled = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    result = bw.fit(net(), (x, y), "map", epochs=1, progress=False)

    mistakes: dict[str, Callable[[], Any]] = {
        "a missing value": lambda: bw.fit(net(), (hole, y)),
        "labels from 1 to 3": lambda: bw.fit(net(), (x, y + 1)),
        "one label mistyped": lambda: bw.fit(net(), (x, ten)),
        "one-hot labels": lambda: bw.fit(net(), (x, nn.functional.one_hot(y, 3))),
        "labels as real numbers": lambda: bw.fit(net(), (x, y.float())),
        "one row short": lambda: bw.fit(net(), (x, y[:-1])),
        "one column short": lambda: bw.fit(net(), (x[:, :3], y)),
        "pictures in bytes": lambda: bw.fit(flat, (pictures, y)),
        "a misspelt method": lambda: bw.fit(net(), (x, y), "deep_ensembel"),
        "a misspelt setting": lambda: bw.fit(net(), (x, y), epoch=10),
        "no validation to stop by": lambda: bw.fit(net(), (x, y), early_stopping=5),
        "real targets, one output too many": lambda: bw.fit(net(2), (x, x[:, 0]), likelihood="gaussian"),
        "a loader that shuffles": lambda: result.predict(shuffled),
        "columns without a target": lambda: bw.fit(net(), {"input": x, "diagnosis": y}),
    }
    for name, mistake in mistakes.items():
        try:
            mistake()
        except bw.BayeswellError as error:
            line = str(error).partition(" allowed: ")[0]
            print(f"{name}:\n    {type(error).__name__}: {line}")
        else:
            raise AssertionError(f"{name} passed unseen")

    columns = {"input": x, "diagnosis": y}
    result = bw.fit(net(), columns, "map", epochs=30, target="diagnosis", progress=False)
    in_order = DataLoader(TensorDataset(x, y), batch_size=50)
    found = result.predict(in_order)
    assert isinstance(found, bw.ClassPrediction)
    share = float((found.probabilities.argmax(1) == y).float().mean())
    print(f"\n{len(mistakes)} mistakes, {len(mistakes)} lines. Done right, {share:.0%} of the labels are found.")


if __name__ == "__main__":
    main()
