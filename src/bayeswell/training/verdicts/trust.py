"""All that is known of a result's fidelity, in one record."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import Any

from ...errors import BayeswellWarning
from ...metrics.chains import ChainReport
from ...plain import fields_of, plain
from ..disagreement import Disagreement
from .length import Length
from .pareto import ParetoReport


@dataclass(frozen=True)
class Note:
    """One thing that is wrong: what it is about, and the line that says it, with numbers and the remedy."""

    about: str
    line: str


@dataclass(frozen=True)
class Trust:
    """What is known of a posterior's fidelity; ``trusted`` is for machines (None: nothing was checked).

    ``chains`` are R-hat and ESS of a sampler's predictions at training inputs, ``chains_elsewhere`` away from them;
    ``members`` how far networks that were trained one by one disagree; ``length`` whether training was still improving;
    ``std_factor`` how many times the stds are as wide as curvature and prior say; ``train_nll``, ``mean_train_nll`` and
    ``baseline_nll`` the NLL on training examples of the prediction, of the mean network and of the best constant
    prediction; ``notes`` what is wrong with these. A number that was not measured is None, ``unmeasured`` says why.
    """

    pareto: ParetoReport | None = None
    chains: ChainReport | None = None
    chains_elsewhere: ChainReport | None = None
    members: Disagreement | None = None
    length: Length | None = None
    std_factor: float | None = None
    train_nll: float | None = None
    mean_train_nll: float | None = None
    baseline_nll: float | None = None
    notes: tuple[Note, ...] = ()
    unmeasured: tuple[Note, ...] = ()

    @property
    def trusted(self) -> bool | None:
        """Whether all that was checked is well."""
        checked = (self.pareto, self.chains, self.members, self.length, self.train_nll)
        return None if all(part is None for part in checked) else not self.warnings

    @property
    def chain_warnings(self) -> tuple[str, ...]:
        """What is wrong with the chains, each line once."""
        here = () if self.chains is None else self.chains.warnings
        there = () if self.chains_elsewhere is None else self.chains_elsewhere.warnings
        told = {_said(line) for line in here}
        away = tuple(f"away from the training inputs {line}" for line in there if _said(line) not in told)
        return (*here, *away)

    @property
    def other_warnings(self) -> tuple[str, ...]:
        """What is wrong with everything else."""
        found = [
            line for part in (self.pareto, self.members, self.length) if part is not None for line in part.warnings
        ]
        return (*found, *(note.line for note in self.notes))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that is wrong."""
        return (*self.chain_warnings, *self.other_warnings)

    def as_json(self) -> dict[str, Any]:
        """The parts, the limits of the chains, ``trusted`` and ``warnings``."""
        numbers = ("std_factor", "train_nll", "mean_train_nll", "baseline_nll")
        return {
            "trusted": self.trusted,
            "warnings": list(self.warnings),
            "pareto": None if self.pareto is None else self.pareto.as_json(),
            "chains": _chains(self.chains),
            "chains_elsewhere": _chains(self.chains_elsewhere),
            "members": None if self.members is None else fields_of(self.members, finite=True),
            "length": None if self.length is None else fields_of(self.length, finite=True),
            **{name: plain(getattr(self, name), finite=True) for name in numbers},
            "unmeasured": {note.about: note.line for note in self.unmeasured},
        }


def trust(*, pareto: ParetoReport | None = None, chains: ChainReport | None = None) -> Trust:
    """Both in one record; whatever is above the usual limits is warned of."""
    found = Trust(pareto, chains)
    for line in found.warnings:
        warnings.warn(line, BayeswellWarning, stacklevel=2)
    return found


def _said(line: str) -> str:
    """What a line says, whatever its numbers are."""
    return re.sub(r"\d+(\.\d+)?", "#", line.partition(":")[0])


def _chains(chains: ChainReport | None) -> dict[str, Any] | None:
    if chains is None:
        return None
    limit = chains.r_hat_limit if not math.isnan(chains.r_hat) else None
    limits = {"r_hat_limit": limit, "ess_limit": chains.ess_limit}
    return {**plain(chains, finite=True), **limits, "good": chains.converged, "warnings": list(chains.warnings)}
