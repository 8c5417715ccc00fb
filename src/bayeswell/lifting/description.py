"""What a lifted network is made of, parameter by parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One parameter: its posterior, prior and estimator, or why it is deterministic."""

    name: str
    shape: tuple[int, ...]
    posterior: str
    prior: str
    estimator: str
    note: str


@dataclass(frozen=True)
class Description:
    """Every parameter of the network; prints as a table.

    ``variational_parameters`` counts the free numbers of the posterior; ``rest`` says whether the deterministic
    parameters are "trained" or "frozen".
    """

    rows: tuple[Row, ...]
    variational_parameters: int = 0
    rest: str = "trained"

    @property
    def bayesian_weights(self) -> int:
        """How many weights have a posterior."""
        return sum(math.prod(row.shape) for row in self.rows if row.posterior != "deterministic")

    @property
    def deterministic_weights(self) -> int:
        """How many weights have none."""
        return sum(math.prod(row.shape) for row in self.rows if row.posterior == "deterministic")

    def __str__(self) -> str:
        header = ("parameter", "shape", "posterior", "prior", "estimator", "note")
        table = [header]
        for row in self.rows:
            shape = "x".join(map(str, row.shape)) or "scalar"
            table.append((row.name, shape, row.posterior, row.prior, row.estimator, row.note))
        widths = [max(len(line[column]) for line in table) for column in range(len(header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        numbers = f"{self.bayesian_weights} Bayesian weights ({self.variational_parameters} variational parameters)"
        rest = f", which are {self.rest}" if self.deterministic_weights else ""
        lines.append(f"{numbers}, {self.deterministic_weights} deterministic{rest}")
        return "\n".join(lines)
