"""Checks of pairs of parts: capabilities are compared, never classes."""

from __future__ import annotations

from ..core.errors import CompositionError
from ..core.protocols import (
    EMPIRICAL,
    FACTORIZED,
    LINEARIZED,
    LOG_STD,
    POINT,
    SAMPLED,
    WEIGHT_SAMPLE,
)
from .method import Method

_WORDS = {
    FACTORIZED: "independent Gaussian weights",
    WEIGHT_SAMPLE: "a weight vector drawn in each step",
    LOG_STD: "a mean and a log std for each weight",
    POINT: "one weight vector",
}


def check_parts(method: Method) -> None:
    """Raise CompositionError for parts that cannot work together; the ELBO checks those of its own."""
    _check_sharpness(method)
    _check_optimizer(method)
    if method.optimizer.handles_kl:
        _check_handles_kl(method)
    _check_end(method)
    _check_prediction(method)


def _refuse(who: str, need: str, whose: str, remedy: str) -> CompositionError:
    return CompositionError(f"{who} needs {_WORDS.get(need, need)}, which {whose} does not have; use {remedy}")


def _check_sharpness(method: Method) -> None:
    estimator, posterior, sharpness = method.estimator, method.posterior, method.sharpness
    if sharpness is None or sharpness.rho == 0:
        return
    if not estimator.uses_weight_gradient:
        raise CompositionError(
            f"sharpness follows the gradient in the weights, which estimator '{estimator.name}' does not take; use "
            "estimator 'weight_sampling', or no sharpness"
        )
    if sharpness.geometry == "mean_over_std" and FACTORIZED not in posterior.provides:
        who = "sharpness with geometry 'mean_over_std'"
        raise _refuse(who, FACTORIZED, f"posterior '{posterior.name}'", "geometry 'identity'")


def _check_optimizer(method: Method) -> None:
    optimizer, posterior = method.optimizer, method.posterior
    point = POINT in posterior.provides
    for part in () if method.std_optimizer is None else (optimizer, method.std_optimizer):
        if part.samples or part.handles_kl:
            raise CompositionError(
                f"`std_optimizer`: '{part.name}' moves all weights together; use 'sgd' or 'adam' for both, or no "
                "`std_optimizer`"
            )
    if optimizer.samples and not point:
        raise _refuse(f"sampler '{optimizer.name}'", POINT, f"posterior '{posterior.name}'", "posterior 'delta'")
    if optimizer.samples and method.averaging is None:
        raise CompositionError(f"sampler '{optimizer.name}' needs averaging that keeps its draws; use averaging 'bank'")
    if optimizer.samples and optimizer.lr is None and method.std_lr is not None:
        raise CompositionError(
            f"`std_lr` = {method.std_lr:g}: sampler '{optimizer.name}' finds its own learning rate; give it `lr` "
            "too, or use `std_multiplier`"
        )
    if method.alternate is not None and (point or optimizer.handles_kl):
        reason = f"posterior '{posterior.name}' has no stds" if point else f"'{optimizer.name}' moves both together"
        raise CompositionError(
            f"`alternate` = {method.alternate} trains means and stds in turn, but {reason}; use posterior 'mean_field' "
            "with optimizer 'adam'"
        )
    if method.gradient_scale is not None and (optimizer.samples or optimizer.handles_kl):
        raise CompositionError(
            f"`gradient_scale` = '{method.gradient_scale}' would change the target of '{optimizer.name}', which reads "
            "the scale of the gradient; leave it out"
        )


def _check_handles_kl(method: Method) -> None:
    optimizer, posterior, estimator = method.optimizer, method.posterior, method.estimator
    who = f"optimizer '{optimizer.name}'"
    if LOG_STD not in posterior.provides:
        raise _refuse(who, LOG_STD, f"posterior '{posterior.name}'", "posterior 'mean_field' in its log std form")
    if WEIGHT_SAMPLE not in estimator.provides or not estimator.uses_weight_gradient:
        raise _refuse(who, WEIGHT_SAMPLE, f"estimator '{estimator.name}'", "estimator 'weight_sampling'")
    for setting in ("std_lr", "std_schedule"):
        if getattr(method, setting) is not None:
            raise CompositionError(f"`{setting}` has no use: {who} moves means and stds together; leave it out")


def _check_end(method: Method) -> None:
    averaging, post_hoc, posterior = method.averaging, method.post_hoc, method.posterior
    if post_hoc is not None and averaging is not None:
        raise CompositionError(
            f"averaging '{averaging.name}' and post_hoc '{post_hoc.name}' would both make the posterior; choose one"
        )
    if post_hoc is not None and POINT not in posterior.provides:
        raise _refuse(f"post_hoc '{post_hoc.name}'", POINT, f"posterior '{posterior.name}'", "posterior 'delta'")
    if averaging is None:
        return
    for need in sorted(averaging.needs - posterior.provides):
        remedy = f"posterior '{'delta' if need == POINT else 'mean_field'}'"
        raise _refuse(f"averaging '{averaging.name}'", need, f"posterior '{posterior.name}'", remedy)
    cycles = getattr(averaging, "cycles", None)
    if cycles is not None and getattr(method.schedule, "cycles", cycles) != cycles:
        raise CompositionError(
            f"averaging '{averaging.name}' keeps the ends of {cycles} cycles, but schedule '{method.schedule.name}' "
            f"has {method.schedule.cycles}; use the same number for both"
        )


def _check_prediction(method: Method) -> None:
    if method.prediction == SAMPLED:
        return
    averaging = method.averaging
    if averaging is not None and EMPIRICAL in averaging.provides:
        raise CompositionError(
            f"`prediction` = '{method.prediction}' needs one mean network, but averaging '{averaging.name}' makes "
            f"a set of networks; use '{SAMPLED}'"
        )
    points = POINT in method.posterior.provides and averaging is None and method.post_hoc is None
    if method.members > 1 and (points or method.prediction == LINEARIZED):
        raise CompositionError(
            f"`prediction` = '{method.prediction}' needs one mean network, but `members` = {method.members} make "
            f"a set of networks; use '{SAMPLED}'"
        )
