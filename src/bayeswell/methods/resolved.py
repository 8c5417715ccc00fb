"""A method whose parts are objects: made once from names and settings; after that nobody asks for names or classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..averaging import AVERAGING
from ..composition import check_divergence_needs, check_estimator
from ..divergences import DIVERGENCES
from ..errors import CompositionError, SettingError, nearest
from ..estimators import ESTIMATORS
from ..gradients import Sharpness
from ..optimizers import RATES, Alternating, Plateau
from ..post_hoc import POST_HOC
from ..posteriors import POSTERIORS
from ..priors import PriorChoice
from ..registry import known_settings
from ..schedules import KL_WEIGHTS
from ..types import (
    BANK,
    LINEARISED,
    LOG_STD,
    POINT,
    SAMPLED,
    CollectorPart,
    Divergence,
    Estimator,
    KLWeight,
    PosteriorPart,
    PostHocPart,
    Rate,
    Stepper,
)
from .method import OWN_DROPOUT, Method
from .steppers import find_stepper
from .tempering import AUTO, COLD_START, PRIOR_WEIGHT

EPOCH_METRICS = ("total", "nll", "kl")
"""What a plateau may listen to: means over an epoch."""
HELD_OUT = "validation."
"""Before the name of a score on validation data, which a plateau may listen to as well."""
_NOISY_SHARE = 4 / 9
_WIDE = 0.1
"""See ``ResolvedMethod.planned``; the evidence is in ``docs/decisions.md``."""
_HELD_OUT_SCORES = ("nll", "accuracy", "ece", "brier", "rmse", "minus_elbo", "minus_elbo_tempered")


@dataclass(frozen=True)
class ResolvedMethod:
    """The parts of a method, each with the members that its protocol in ``types`` promises.

    The stepper is at the temperature that training starts with. ``prior`` is laid out over a network, site by site.
    """

    method: Method
    posterior: PosteriorPart
    prior: PriorChoice
    estimator: Estimator
    divergence: Divergence | None
    kl_weight: KLWeight
    stepper: Stepper
    std_stepper: Stepper | None
    rate: Rate
    std_rate: Rate | None
    plateaus: Mapping[str, Plateau]
    alternating: Alternating | None
    sharpness: Sharpness | None
    collector: CollectorPart | None
    post_hoc: PostHocPart | None

    @property
    def name(self) -> str:
        """The method's."""
        return self.method.name

    @property
    def needs_validation(self) -> str:
        """The score on validation data that something listens to, or nothing."""
        return next((one.metric for one in self.plateaus.values() if one.metric.startswith(HELD_OUT)), "")

    @property
    def objective_temperature(self) -> float:
        """What scales the divergence in the objective: nothing where the stepper takes care of it itself."""
        return 0.0 if self.stepper.handles_divergence else self.first_temperature

    @property
    def tempers_itself(self) -> bool:
        """Whether the temperature follows from the fit: for whatever has a spread that depends on it."""
        point = POINT in self.posterior.provides
        spread = not point or self.stepper.samples or self.post_hoc is not None or self.method.dropout == OWN_DROPOUT
        return self.method.temperature == AUTO and spread

    @property
    def first_temperature(self) -> float:
        """The temperature that training starts with."""
        own = self.method.temperature
        if isinstance(own, str):
            return COLD_START if self.tempers_itself else PRIOR_WEIGHT
        return own

    def planned(self, stepper: Stepper, total_steps: int) -> Stepper:
        """The stepper for a run of so many steps: a rate that depends on the length has a number from here on.

        At a temperature of 0.1 and more that was given draws are wide: most of a gradient is the noise of the draw, and
        Adam's steps, of one length, mostly go to and fro. To get as far they have to be longer: those of a run of 4/9
        of the length, 0.6 / sqrt(steps) in the place of 0.4 / sqrt(steps). (Variational Laplace draws nothing; it ends
        as near to NUTS with either.)
        """
        wide = not self.tempers_itself and self.first_temperature >= _WIDE
        noisy = wide and POINT not in self.posterior.provides and not stepper.handles_divergence
        return stepper.planned(max(1, round(total_steps * _NOISY_SHARE)) if noisy else total_steps)

    @property
    def shown_temperature(self) -> float | None:
        """What scales the divergence in the recorded total, where the objective itself leaves it to the stepper."""
        if not self.stepper.handles_divergence:
            return None
        own: float = getattr(self.stepper, "temperature", self.first_temperature)
        return own


def resolve(method: Method) -> ResolvedMethod:
    """The method's parts; whatever cannot work together in any network is refused here."""
    resolved = ResolvedMethod(
        method=method,
        posterior=POSTERIORS.resolve(method.posterior),
        prior=method.prior,
        estimator=ESTIMATORS.resolve(method.estimator),
        divergence=None if method.divergence is None else DIVERGENCES.resolve(method.divergence),
        kl_weight=KL_WEIGHTS.resolve(method.kl_weight),
        stepper=find_stepper(method.stepper),
        std_stepper=None if method.std_stepper is None else find_stepper(method.std_stepper),
        rate=RATES.resolve(method.rate),
        std_rate=None if method.std_rate is None else RATES.resolve(method.std_rate),
        plateaus={name: _plateau(choice) for name, choice in (method.plateau or {}).items()},
        alternating=None if method.alternate is None else Alternating(method.alternate),
        sharpness=method.sharpness_part,
        collector=None if method.collector is None else AVERAGING.resolve(method.collector),
        post_hoc=None if method.post_hoc is None else POST_HOC.resolve(method.post_hoc),
    )
    resolved = dataclasses.replace(resolved, stepper=resolved.stepper.tempered(resolved.first_temperature))
    check_estimator(resolved.posterior, resolved.estimator)
    if resolved.divergence is not None:
        check_divergence_needs(resolved.posterior, resolved.estimator, resolved.divergence)
    if resolved.sharpness is not None:
        resolved.sharpness.check_estimator(resolved.estimator)
    _check_stepper(resolved)
    _check_end(resolved)
    return resolved


def _plateau(choice: Any) -> Plateau:
    if isinstance(choice, str):
        choice = {"metric": choice}
    if not isinstance(choice, Plateau):
        if not isinstance(choice, Mapping):
            raise SettingError(f"plateau = {choice!r}; give a Plateau, or its settings such as {{'metric': 'nll'}}")
        settings = known_settings("plateau", Plateau, choice)
        if "metric" not in settings:
            raise SettingError(f"plateau: which metric? allowed: {', '.join(EPOCH_METRICS)}")
        choice = Plateau(**settings)
    plateau: Plateau = choice
    allowed = (*EPOCH_METRICS, *(HELD_OUT + score for score in _HELD_OUT_SCORES))
    if str(plateau.metric).split(".")[0] == "test":
        raise SettingError(
            f"plateau: metric = '{plateau.metric}': nothing is chosen by test data; use '{HELD_OUT}nll', or another "
            "score on validation data"
        )
    if plateau.metric not in allowed:
        raise SettingError(f"plateau: metric = '{plateau.metric}'; {nearest(plateau.metric, allowed)}")
    return plateau


def _check_stepper(method: ResolvedMethod) -> None:
    """A sampler moves points; a stepper that takes care of the divergence moves means and log stds."""
    stepper, posterior = method.stepper, method.posterior
    for one in () if method.std_stepper is None else (stepper, method.std_stepper):
        if one.samples or one.handles_divergence:
            raise CompositionError(
                f"std_stepper: '{one.name}' moves all weights by itself, and no other beside it; use 'sgd', 'adam' or "
                "its kin for both"
            )
    point = POINT in posterior.provides
    if stepper.samples and not point:
        raise CompositionError(
            f"sampler '{stepper.name}' moves one weight vector, but posterior '{posterior.name}' is a "
            "distribution; use posterior 'delta'"
        )
    if stepper.samples and method.collector is None:
        raise CompositionError(f"sampler '{stepper.name}' needs a collector that keeps its draws; use collector 'bank'")
    if method.alternating is not None and (stepper.handles_divergence or point):
        reason = (
            f"optimizer '{stepper.name}' moves means and stds together"
            if stepper.handles_divergence
            else f"posterior '{posterior.name}' has no stds"
        )
        raise CompositionError(
            f"alternate = {method.alternating.epochs} trains means and stds in turn, but {reason}; use posterior "
            "'mean_field' or 'k_tied' with another optimizer"
        )
    if not stepper.handles_divergence:
        return
    if LOG_STD not in posterior.provides:
        raise CompositionError(
            f"optimizer '{stepper.name}' moves means and log stds, which posterior '{posterior.name}' does "
            "not have in that form; use posterior 'mean_field' with parameter 'log_std'"
        )
    if not method.estimator.shares_draws:
        raise CompositionError(
            f"optimizer '{stepper.name}' reads the curvature off drawn weights, which estimator "
            f"'{method.estimator.name}' does not share with it; use estimator 'weight_sampling'"
        )
    if not method.estimator.differentiates_weights:
        raise CompositionError(
            f"optimizer '{stepper.name}' reads the curvature off the gradient in the weights, which estimator "
            f"'{method.estimator.name}' never takes; use estimator 'weight_sampling'"
        )


def _check_end(method: ResolvedMethod) -> None:
    """What may come after training, and how the end of it predicts."""
    collector, post_hoc, posterior = method.collector, method.post_hoc, method.posterior
    if collector is not None:
        for need in sorted(collector.needs - posterior.provides):
            raise CompositionError(
                f"collector '{collector.name}' needs a posterior with '{need}', which '{posterior.name}' is not; use "
                f"posterior '{'delta' if need == POINT else 'mean_field'}'"
            )
    cycles = getattr(collector, "cycles", None)
    if collector is not None and cycles is not None and getattr(method.rate, "cycles", cycles) != cycles:
        raise CompositionError(
            f"collector '{collector.name}' looks at the ends of {cycles} cycles, but rate '{method.rate.name}' has "
            f"{getattr(method.rate, 'cycles', None)}; give both the same number"
        )
    if collector is not None and cycles is not None and getattr(method.rate, "cycle_steps", None) is not None:
        raise CompositionError(
            f"collector '{collector.name}' counts cycles, but rate '{method.rate.name}' has cycle_steps; give both "
            "the same number of cycles"
        )
    if post_hoc is not None and POINT not in posterior.provides:
        raise CompositionError(
            f"post_hoc '{post_hoc.name}' starts from one weight vector, but posterior '{posterior.name}' is a "
            "distribution; use posterior 'delta'"
        )
    if post_hoc is not None and collector is not None:
        raise CompositionError(
            f"collector '{collector.name}' and post_hoc '{post_hoc.name}' would both make the posterior; choose one"
        )
    members = method.method.members
    ends_in_bank = collector is not None and BANK in collector.provides
    prediction = method.method.prediction
    # Members that are distributions have a mean network each; members that are points make a bank.
    points = POINT in posterior.provides and collector is None and post_hoc is None
    without_centre = members > 1 if prediction == LINEARISED else members > 1 and points
    if prediction != SAMPLED and (without_centre or ends_in_bank):
        bank = f"members = {members} make" if members > 1 else f"collector '{collector and collector.name}' makes"
        raise CompositionError(
            f"{method.name}: prediction = '{prediction}' needs one centre, but {bank} a bank of networks; use "
            f"prediction = '{SAMPLED}'"
        )
