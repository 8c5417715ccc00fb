"""What a run begins from: a network, or what was trained before."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import CompositionError, SettingError
from ..lifting import BayesianModule, DrawnDropout, Saved, Trained, Where, uncalibrated
from ..likelihoods import LIKELIHOODS, ClassLikelihood
from ..methods import AUTO, Method, ResolvedMethod, find_method, resolve, within_budget
from ..priors import is_posterior
from .data import Batches
from .run import Run

USUAL_METHOD, USUAL_LIKELIHOOD = "auto", "categorical"


@dataclass(frozen=True)
class Beginning:
    """The parts of a method, and the network or the trained model that they are put to.

    ``state`` is where an earlier training ended after ``epochs_done`` epochs, if this one is to go on from there.
    ``given`` names the settings of the method that ``fit`` was given.
    """

    parts: ResolvedMethod
    likelihood: Any
    module: nn.Module
    trained: Trained | None = None
    state: Mapping[str, Any] | None = None
    epochs_done: int = 0
    given: frozenset[str] = frozenset()

    @property
    def method(self) -> Method:
        """The method that was asked for."""
        return self.parts.method

    def within_budget(self, examples: int, epochs: int) -> tuple[Beginning, int, str]:
        """With the members that the method's budget pays for, how many epochs each, and a line on them."""
        classes = isinstance(LIKELIHOODS.resolve(self.likelihood), ClassLikelihood)
        plan = within_budget(self.method, examples, epochs, classes, self.given)
        if self.trained is not None:
            _refuse_members(plan.method)
        return (dataclasses.replace(self, parts=resolve(plan.method)) if plan.note else self), plan.epochs, plan.note

    def on(self, device: torch.device) -> nn.Module | Trained:
        """The network, or the trained model, on a device; a copy where it has to move."""
        if self.trained is None:
            return self.module if device.type == "cpu" else copy.deepcopy(self.module).to(device)
        moved = self.trained.model if device.type == "cpu" else copy.deepcopy(self.trained.model).to(device)
        return dataclasses.replace(self.trained, model=moved)

    def with_data(self, batches: Batches) -> Beginning:
        """The same for these data: the state goes on only with the data and batches that it comes from.

        Step counts, the size of the data in a stepper, draws in a bank: all speak of those. With other data training
        begins anew from the trained posterior.
        """
        if self.state is None or self.trained is None or self.state["data"] == data_mark(batches):
            return self
        trained = dataclasses.replace(self.trained, refilled=False)
        return dataclasses.replace(self, trained=trained, state=None, epochs_done=0)


def data_mark(batches: Batches) -> list[Any]:
    """How many examples and batches there are, and their checksum: the same for the same data."""
    return [batches.examples, batches.count, batches.fingerprint()]


def beginning(
    net: nn.Module | Saved,
    method: str | Method | None,
    likelihood: Any,
    settings: Mapping[str, Any],
    where: Where = "all",
) -> Beginning:
    """What ``fit`` was given, with everything that was left open filled in."""
    if not isinstance(net, Saved | BayesianModule):
        parts = resolve(find_method(method or USUAL_METHOD).changed(**settings))
        own = USUAL_LIKELIHOOD if likelihood is None else likelihood
        return Beginning(parts, own, net, given=frozenset(settings))
    net = uncalibrated(net) if isinstance(net, Saved) else net
    earlier: Method | None = getattr(net, "method", None)
    state: Mapping[str, Any] | None = getattr(net, "state", None)
    if method is None and earlier is None:
        raise SettingError("which method? a model alone does not say how it was trained: fit(model, data, method=...)")
    chosen = find_method(method if method is not None else earlier or USUAL_METHOD).changed(**settings)
    if is_posterior(chosen.prior) and chosen.temperature == AUTO and hasattr(net, "temperature"):
        chosen = chosen.changed(temperature=net.temperature)  # old and new data count alike
    _refuse_members(chosen)
    # Asked for now, not in an earlier call: a result of sequential Bayes goes on under the prior that it has.
    asked = is_posterior(chosen.prior) and ("prior" in settings or method is not None)
    same = chosen == earlier and likelihood is None and not asked
    goes_on = state is not None and same
    model = net.model if isinstance(net, Saved) else net
    _refuse_idle(model, chosen, settings, where)
    trained = Trained(model, "prior" not in settings and not asked, goes_on)
    own_likelihood = getattr(net, "likelihood", None) if likelihood is None else likelihood
    if own_likelihood is None:
        raise SettingError("which likelihood? a model alone does not say: fit(model, data, likelihood=...)")
    return Beginning(
        resolve(chosen),
        own_likelihood,
        trained.model,
        trained,
        state if goes_on else None,
        int(state["position"][0]) if state is not None and goes_on else 0,
        frozenset(settings),
    )


def _refuse_members(method: Method) -> None:
    """Refuse several networks where training begins from what was trained before."""
    if method.members > 1:
        raise CompositionError(
            f"method '{method.name}' has members = {method.members}: its networks are trained one by one and gathered, "
            "and cannot go on together; train longer from the start, or begin with one network (members=1)"
        )


def _refuse_idle(model: BayesianModule, method: Method, settings: Mapping[str, Any], where: Where) -> None:
    """Refuse what a trained model has decided already."""
    what = "where" if where != "all" else next((name for name in ("means", "rest") if name in settings), "")
    if what:
        raise SettingError(
            f"{what} has no use here: the trained model has its Bayesian parameters, and goes on from them"
        )
    drawn = any(isinstance(module, DrawnDropout) for module in model.net.modules())
    if "dropout" in settings or (method.dropout is not None) != drawn:
        raise CompositionError(
            f"method '{method.name}' and the trained model differ in dropout that is drawn, which cannot be put into a "
            "trained model or taken out; train a network anew"
        )


def end_state(run: Run) -> dict[str, Any]:
    """Where a run stands at its end; its own where the model that is kept will be changed on the way there."""
    state = run.state_dict()
    state["callbacks"], state["data"] = {}, data_mark(run.batches)
    return copy.deepcopy(state) if run.assembly.collector is not None else state
