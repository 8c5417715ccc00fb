"""What a fit ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..methods import Method
from ..metrics.chains import ChainReport
from ..predictive.predictor import Predictor
from ..types import Inputs
from .records import History
from .verdicts import FinalELBO, ParetoReport, Trust, measure_elbo, pareto_report


@dataclass(frozen=True)
class Result(Predictor):
    """A trained network that predicts, saves and says what it is.

    ``trust`` is what is known of its fidelity (``trust.trusted``, ``trust.warnings``); ``elbo`` the bound of the final
    posterior in nats with its error, from some of the training data (``measure_elbo`` takes all), None for a bank of
    networks. ``chains`` tells, for samplers, whether the chains (one a member) agree in function space; ``stopped`` why
    training ended before its time, if it did. ``temperature`` is that of the posterior: what the method gave, or what
    the fit found (``Tempering``). ``state`` is where training stood at its end (optimizer, averages,
    generators): ``fit(result, data, epochs=10)`` goes on from there.
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

    @property
    def std_ratio(self) -> float:
        """Mean of posterior std / prior std: near 0 the network is deterministic, whatever it is called."""
        return self.model.std_ratio()

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
