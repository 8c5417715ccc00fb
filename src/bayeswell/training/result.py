"""What a fit ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..methods import Method
from ..metrics.chains import ChainReport
from ..predictive.describing import described
from ..predictive.predictor import Predictor
from ..types import Inputs
from .records import History
from .verdicts import FinalELBO, ParetoReport, Trust, measure_elbo, pareto_report

_LINE = 150


@dataclass(frozen=True)
class Result(Predictor):
    """A trained network that predicts, saves and says what it is.

    ``trust`` is what is known of its fidelity (``trust.trusted``, ``trust.warnings``); ``elbo`` the bound of the final
    posterior in nats with its error, from some of the training data (``measure_elbo`` takes all), None for a bank of
    networks. ``chains`` tells, for samplers, whether the chains (one a member) agree in function space; ``stopped`` why
    training ended before its time, if it did. ``temperature`` is that of the posterior: what the method gave, or what
    the fit found (``Tempering``). ``plan``: one line on what a budget was spent on and why. ``state``: where training
    stood at its end (optimizer, averages, generators): ``fit(result, data, epochs=10)`` goes on from there.
    """

    method: Method
    histories: tuple[History, ...]
    seed: int
    chains: ChainReport | None = None
    stopped: str = ""
    temperature: float = 1.0
    state: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    elbo: FinalELBO | None = None
    trust: Trust = field(default_factory=Trust)
    plan: str = ""

    def __repr__(self) -> str:
        """A few lines: method, likelihood, parameters, temperature, and whether it is to be trusted."""
        members = f", {self.method.members} members" if self.method.members > 1 else ""
        head = f"Result(method '{self.method.name}'{members}, temperature {self.temperature:.3g}, seed {self.seed})"
        epochs = "+".join(str(len(history.epochs)) for history in self.histories[:5])
        more = f" ({self.stopped})" if self.stopped else ""
        trained = f"trained {epochs}{'+...' if len(self.histories) > 5 else ''} epochs{more}"
        return "\n  ".join([head, trained, *described(self), *self._trust_lines()])

    def _trust_lines(self) -> list[str]:
        if self.trust.trusted is None:
            return ["trust: not checked"]
        if self.trust.trusted:
            return ["trust: nothing that was checked is wrong (result.trust)"]
        first, *others = self.trust.warnings
        more = f" (and {len(others)} more: result.trust.warnings)" if others else ""
        return [f"trust: no: {first[:_LINE]}{'...' if len(first) > _LINE else ''}{more}"]

    @property
    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: near 0 the network is deterministic, whatever it is called."""
        return self.model.std_ratio()

    @property
    def variational_parameters(self) -> int:
        """How many free numbers the posterior has, as papers count them."""
        return self.model.variational_parameters

    def measure_elbo(
        self, data: tuple[Inputs, Any], *, draws: int = 100, batch_size: int | None = 1000, seed: int = 0
    ) -> FinalELBO:
        """The ELBO over the training data, as exactly as ``draws`` make it, at the run's temperature and at 1.

        Of a point it is the log joint; a bank of networks has none.
        """
        settings = {"draws": draws, "batch_size": batch_size, "seed": seed, "temperature": self.temperature}
        return measure_elbo(self.model, self.likelihood, self._prepared(data), **settings)  # type: ignore[arg-type]

    def _prepared(self, data: tuple[Inputs, Any]) -> tuple[Inputs, Any]:
        """Data as the network takes them. ELBOs are of scaled targets, as those of ``fit``."""
        own = self.preparation
        return data if own is None else (own.inputs(data[0]), own.targets(data[1]))

    def pareto_report(
        self, data: tuple[Inputs, Any], *, draws: int = 400, batch_size: int | None = None, seed: int = 0
    ) -> ParetoReport:
        """k-hat of the posterior against the one that the method aims at: given all training data, at its temperature.

        A pass over the data for each draw; above 500 weights only an exact posterior passes.
        """
        settings = {"draws": draws, "batch_size": batch_size, "seed": seed, "temperature": self.temperature}
        return pareto_report(self.model, self.likelihood, self._prepared(data), **settings)  # type: ignore[arg-type]
