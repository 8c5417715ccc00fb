"""The end of a fit: what can be measured at small cost, and what is wrong with it.

All of it takes about one fiftieth of the passes that training took: some examples and a few draws stand for all. It
draws from generators of its own and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...errors import BayeswellError
from ...lifting import BayesianModule
from ...nested import taken
from ...optimizers import MEANS
from ...predictive import evaluation_mode
from ...predictive.evaluate import nll_matrix
from ...types import BANK, FACTORISED, MEAN, MIXTURE, POINT, Inputs
from ..records import History
from .baseline import advice_for, constant_nll
from .curvature import can_be_checked, std_factor
from .elbo import FinalELBO, elbo_of, why_no_elbo
from .length import Length, judge_length
from .pareto import why_no_k_hat
from .trust import Note, Trust

DRAWS, MOST_EXAMPLES, LEAST_EXAMPLES = 8, 2000, 100
_PROBED, _BATCH = 64, 500
_NO_BETTER, _FAR_WORSE, _ABSURD = 0.01, 0.02, 20.0
_NATS_TO_DIVERGE = 1.0
_WIDER_THAN_PRIOR = 5.0


@dataclass(frozen=True)
class Examples:
    """Some of the data: inputs, targets and weights (None: each counts once)."""

    inputs: Inputs
    targets: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True)
class Ended:
    """A fit at its end. ``samples`` says whether it was a sampler's; ``dataset_size`` is N.

    ``untrained()`` gives model and likelihood as they were before the first step.
    """

    model: BayesianModule
    likelihood: Any
    name: str
    temperature: float
    histories: Sequence[History]
    dataset_size: int
    samples: bool
    stopped: bool
    untrained: Callable[[], tuple[BayesianModule, Any]] | None = None

    @property
    def has_mean(self) -> bool:
        """Whether the posterior has a mean network that is another one than its draws."""
        return not self.model.posterior_part.provides & {POINT, BANK, MIXTURE}


def how_many(dataset_size: int, epochs: int, members: int) -> int:
    """Examples for 8 draws, in a fiftieth of the passes of training (3 a step)."""
    affordable = int(0.02 * 3 * epochs * members * dataset_size / DRAWS)
    return min(dataset_size, MOST_EXAMPLES, max(LEAST_EXAMPLES, affordable))


def conclude(ended: Ended, train: Examples, held_out: Examples | None, known: Trust) -> tuple[FinalELBO | None, Trust]:
    """The ELBO of the final posterior, and ``known`` (chains, members) with all the rest."""
    notes: list[Note] = []
    unmeasured = [Note("k-hat", why_no_k_hat(ended.model))]
    if MIXTURE in ended.model.posterior_part.provides:
        none = "a mixture has no mean network and no one std of a weight; its members are compared instead"
        unmeasured += [Note("mean_train_nll", none), Note("std_factor", none)]
    judged = not ended.samples and not ended.stopped
    lengths = [_length(history) for history in ended.histories] if judged else []
    length = max((found for found in lengths if found is not None), key=lambda one: one.factor, default=None)
    trust = replace(known, length=length)
    elbo: FinalELBO | None = None
    try:
        model, likelihood = ended.model, ended.likelihood
        losses = _losses(ended, train, DRAWS)
        at_mean = _at_mean(ended, train) if ended.has_mean else None
        own = at_mean if at_mean is not None and model.prediction == MEAN else _mixed(losses)
        nll = _mean(own, train)
        base = _baseline(ended, train)
        centre = None if at_mean is None else _mean(at_mean, train)
        factor = None
        if can_be_checked(model, likelihood) and ended.temperature == 0:
            unmeasured.append(Note("std_factor", "at temperature 0 the best std is 0, whatever the curvature"))
        elif can_be_checked(model, likelihood):
            few = min(_PROBED, len(train.targets))
            some = taken(train.inputs, slice(few))
            factor = std_factor(model, likelihood, some, few, ended.dataset_size, ended.temperature)
        trust = replace(trust, train_nll=nll, baseline_nll=base, mean_train_nll=centre, std_factor=factor)
        found = (_against_baseline(ended, train, trust), _against_prior(ended), _against_curvature(ended, factor))
        notes += [note for note in found if note]
        if held_out is not None:
            notes += [note for note in (_against_mean(ended, held_out),) if note]
        reason = why_no_elbo(model)
        if reason:
            unmeasured.append(Note("elbo", reason))
        else:
            elbo = elbo_of(model, losses, ended.dataset_size, ended.temperature, train.weights)
    except (BayeswellError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        # What was trained is not lost for want of a verdict on it.
        unmeasured.append(Note("fit", f"{type(error).__name__}: {' '.join(str(error).split())}"))
    return elbo, replace(trust, notes=(*known.notes, *notes), unmeasured=tuple(unmeasured))


def _length(history: History) -> Length | None:
    """Of the objective; where its temperature changed on the way, of the NLL alone: totals are then no one curve."""
    rates = [epoch.rates.get(MEANS, 1.0) for epoch in history.epochs]
    one = len({epoch.temperature for epoch in history.epochs}) == 1
    return judge_length([epoch.total if one else epoch.nll for epoch in history.epochs], rates)


def _losses(ended: Ended, data: Examples, draws: int) -> Tensor:
    """(D, S)."""
    return nll_matrix(ended.model, data.inputs, data.targets, ended.likelihood, draws=draws, batch_size=_BATCH).double()


def _mixed(losses: Tensor) -> Tensor:
    """(S,): the NLL of the averaged prediction."""
    return math.log(len(losses)) - (-losses).logsumexp(0)


def _mean(losses: Tensor, data: Examples) -> float:
    return float((losses if data.weights is None else losses * data.weights.double().cpu()).mean())


@torch.no_grad()
def _at_mean(ended: Ended, data: Examples) -> Tensor:
    """(S,): the NLL of the network at the posterior's mean."""
    with evaluation_mode(ended.model):
        outputs = ended.model.call(ended.model.centre(), data.inputs)
    losses: Tensor = ended.likelihood.nll(outputs, data.targets.to(outputs.device))
    return losses.double().cpu()


def _baseline(ended: Ended, train: Examples) -> float | None:
    with torch.no_grad(), evaluation_mode(ended.model):
        drawn = next(iter(ended.model.draws(1, torch.Generator().manual_seed(0))))
        outputs = ended.model.call(drawn, taken(train.inputs, slice(2)))
    return constant_nll(ended.likelihood, outputs, train.targets.to(outputs.device), train.weights)


def _before_training(ended: Ended, train: Examples) -> float:
    """The NLL of the network at its first step; of the first epoch where that is not known."""
    if ended.untrained is None:
        epochs = ended.histories[-1].epochs
        return epochs[0].nll if epochs else math.inf
    model, likelihood = ended.untrained()
    return _mean(_mixed(_losses(replace(ended, model=model, likelihood=likelihood), train, DRAWS)), train)


def _against_baseline(ended: Ended, train: Examples, trust: Trust) -> Note | None:
    nll, base = trust.train_nll, trust.baseline_nll
    if nll is None or base is None or nll < base - _NO_BETTER:
        return None
    constant = f"a prediction that ignores the inputs {base:.3g}"
    epochs = ended.histories[-1].epochs
    if not epochs:
        advice = "look at its inputs and targets (order of classes, scaling), or train it"
        return Note("baseline", f"the network given knows nothing of these data: NLL {nll:.3g}, {constant}; {advice}")
    if not math.isfinite(nll):
        return Note("baseline", f"training has diverged: NLL {nll:.3g} on its training data, {constant}; lower lr")
    running = epochs[-1].nll if epochs else nll
    if not running < base + _NATS_TO_DIVERGE:
        start = _before_training(ended, train)
        best = min((epoch.nll for epoch in epochs), default=running)
        if running < start and running <= best + _NATS_TO_DIVERGE:
            note = f"it has learned nothing yet: NLL {nll:.3g} on its training data ({start:.3g} before training)"
            return Note("baseline", f"{note}, {constant}; {advice_for(train.targets)}")
        note = f"training has diverged: NLL {running:.3g} on its training data in the last epoch, {constant}"
        return Note("baseline", f"{note}; lower lr")
    note = f"it has learned nothing: NLL {nll:.3g} on its training data, {constant}"
    mean = trust.mean_train_nll
    if mean is not None and mean < base - 0.05:
        return Note("baseline", f"{note}, its mean network {mean:.3g}: lower temperature, or a smaller prior std")
    advice = "train longer" if trust.length is not None and not trust.length.enough else "another lr, or train longer"
    return Note("baseline", f"{note}; {advice}")


def _against_prior(ended: Ended) -> Note | None:
    """A posterior that is much wider than its prior knows less than nothing: steps that were too long (SWAG)."""
    if not ended.has_mean:
        return None
    ratio = ended.model.std_ratio()
    if ratio <= _WIDER_THAN_PRIOR:
        return None
    note = f"its stds are {ratio:.3g} times those of the prior: more is unknown than before training"
    return Note("prior", f"{note}; lower lr")


def _against_curvature(ended: Ended, factor: float | None) -> Note | None:
    if factor is None or 1 / _ABSURD <= factor <= _ABSURD:
        return None
    wide = factor > 1
    if wide and FACTORISED not in ended.model.posterior_part.provides:
        return None  # marginal stds of correlated weights
    times = f"{factor:.0f} times too wide" if wide else f"{1 / max(factor, 1e-30):.3g} times too narrow"
    note = f"the stds are {times} against the curvature of the loss (median over weights)"
    return Note("stds", f"{note}; do not trust its uncertainty: train longer, or use method laplace, bbb or sghmc")


def _against_mean(ended: Ended, held_out: Examples) -> Note | None:
    if not ended.has_mean or ended.model.prediction == MEAN:
        return None
    own, mean = _mixed(_losses(ended, held_out, 2 * DRAWS)), _at_mean(ended, held_out)
    worse = own - mean
    error = float(worse.std()) / math.sqrt(len(worse)) if len(worse) > 1 else math.inf
    if not float(worse.mean()) > max(_FAR_WORSE, 2 * error):
        return None
    note = f"its prediction is worse on validation than that of its own mean network: NLL {float(own.mean()):.3g}"
    advice = f"lower temperature (here {ended.temperature:g}), or train longer"
    return Note("validation", f"{note} against {float(mean.mean()):.3g}; {advice}")
