"""The result of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.protocols import Inputs
from ..core.random import derive_seed
from ..nn import BayesianModule
from ..posteriors import num_variational_params
from ..prediction import Predictor
from ..prediction.predictor import describe_likelihood
from .checks import Check, Trained, check_fit
from .data import Columns, as_batch
from .elbo import DRAWS, FinalELBO, final_elbo, nll_of_draws, rows_to_measure
from .history import History
from .members import Member, Plan, combine


@dataclass(frozen=True, repr=False)
class Result(Predictor):
    """A trained network that predicts and can be saved.

    Args:
        histories: the epochs of each member.
        checks: what was checked after training; ``ok`` says whether all passed.
        elbo: of the final posterior under the given prior, from some of the training data; None without a density.
        temperature: of the posterior: the one that was set, or found.
        plan: one line about members and epochs that a budget chose.
        states: where training stopped; ``fit(result, data)`` continues from there.
        trained: the model that was trained, before averaging or a post-hoc part.
    """

    histories: tuple[History, ...] = field(default=(), kw_only=True)
    seed: int = field(default=0, kw_only=True)
    temperature: float = field(default=1.0, kw_only=True)
    checks: tuple[Check, ...] = field(default=(), kw_only=True)
    elbo: FinalELBO | None = field(default=None, kw_only=True)
    plan: str = field(default="", kw_only=True)
    states: tuple[Mapping[str, Any], ...] = field(default=(), kw_only=True, repr=False, compare=False)
    trained: BayesianModule | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def history(self) -> History:
        """History of the first member."""
        return self.histories[0]

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return all(check.ok is not False for check in self.checks)

    @property
    def std_ratio(self) -> float:
        """Mean posterior std over prior std: near 0 the network is deterministic."""
        return self.model.std_ratio()

    @property
    def num_variational_params(self) -> int:
        return num_variational_params(self.model.posterior)

    def measure_elbo(self, data: tuple[Inputs, Any], *, draws: int = 100, seed: int = 0) -> FinalELBO | None:
        """Return the ELBO from all the training data."""
        if self.preparation is not None:
            data = (self.preparation.inputs(data[0]), self.preparation.targets(data[1]), *data[2:])
        batch = as_batch(data, Columns(), self.model.prior.std().dtype)
        losses = nll_of_draws(self.model, self.likelihood, batch, draws, derive_seed(seed, "elbo"))
        return final_elbo(self.model, losses, len(batch.targets), seed, batch.sample_weight)

    def __repr__(self) -> str:
        name = "" if self.method is None else f"method '{self.method.name}', "
        members = f"{len(self.histories)} members, " if len(self.histories) > 1 else ""
        lines = [f"Result({name}{members}temperature {self.temperature:.3g}, seed {self.seed}", repr(self.model)]
        stopped = f" ({self.history.stopped})" if self.history.stopped else ""
        epochs = "+".join(str(len(history.epochs)) for history in self.histories)
        lines += [f"likelihood: {describe_likelihood(self.likelihood)}", f"trained {epochs} epochs{stopped}"]
        lines += [str(found) for found in (self.elbo, self.calibration) if found is not None]
        failed = [check.message for check in self.checks if check.ok is False]
        lines.append("checks: passed" if not failed else f"checks: {len(failed)} failed: {failed[0]}")
        return "\n  ".join(lines) + ")"


def make_result(plan: Plan, members: Sequence[Member]) -> Result:
    """Return the result with the ELBO of its final posterior and the checks of it."""
    model, likelihood = combine(members)
    result = Result(
        model,
        likelihood,
        preparation=plan.preparation,
        method=plan.method,
        histories=tuple(member.history for member in members),
        seed=plan.seed,
        temperature=sum(member.temperature for member in members) / len(members),
        plan=plan.note,
        states=tuple(member.state for member in members),
        trained=members[0].trained,
    )
    seed, size = derive_seed(plan.seed, "rows"), plan.data.examples
    rows = plan.data.some(rows_to_measure(size, max(1, plan.epochs)), seed)
    try:
        losses = nll_of_draws(model, likelihood, rows, DRAWS, seed)
        elbo = final_elbo(model, losses, size, seed, rows.sample_weight)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        # A model that is trained is not lost because it cannot be checked.
        return replace(result, checks=(Check.not_measured("elbo", error),))
    measured = [member.sampler_temperature for member in members if member.sampler_temperature is not None]
    trained = Trained(
        model,
        likelihood,
        rows,
        losses,
        chains=len(members) if plan.method.optimizer.samples else 0,
        temperature=sum(measured) / len(measured) if measured else math.nan,
        sampler_warnings=[line for member in members for line in member.warnings],
    )
    return replace(result, elbo=elbo, checks=check_fit(trained))
