"""A table of the parameters of a Bayesian network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """One parameter; ``note`` says why it is deterministic, or its other names."""

    name: str
    shape: tuple[int, ...]
    posterior: str
    prior_std: str
    note: str


@dataclass(frozen=True)
class Description:
    """Every parameter of the network; prints as a table."""

    rows: tuple[Row, ...]

    @property
    def bayesian_weights(self) -> int:
        return sum(math.prod(row.shape) for row in self.rows if row.posterior != "deterministic")

    def __str__(self) -> str:
        table = [("parameter", "shape", "posterior", "prior std", "note")]
        for row in self.rows:
            shape = "x".join(map(str, row.shape)) or "scalar"
            table.append((row.name, shape, row.posterior, row.prior_std, row.note))
        widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
        lines.insert(1, "-" * max(map(len, lines)))
        total = sum(math.prod(row.shape) for row in self.rows)
        lines.append(f"{self.bayesian_weights} Bayesian weights, {total - self.bayesian_weights} deterministic")
        return "\n".join(lines)
