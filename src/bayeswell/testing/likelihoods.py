"""Checks of likelihoods: the NLL, and all else that must be of the same distribution."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import BayeswellError
from ..likelihoods import for_outputs
from ..random import make_generator
from .laws import Law
from .problems import normal
from .report import Omitted, PartError, Suite, require, require_close, require_mean, require_same
from .targets import COPIES, Case

_AWAY = 0.2
"""How far from the outputs those of a likelihood ratio are."""


def nll_is_one_number_an_example(case: Case) -> None:
    """(S,), and each is its example's own: another order or fewer examples change nothing else."""
    losses = case.part.nll(case.outputs, case.targets)
    count = len(case.outputs)
    require(losses.shape == (count,), f"nll has shape {tuple(losses.shape)}, expected ({count},)")
    order = torch.randperm(count, generator=make_generator(1))[: count - 1]
    require_close(
        "nll of some examples in another order", case.part.nll(case.outputs[order], case.targets[order]), losses[order]
    )


def nll_has_its_gradient(case: Case) -> None:
    """autograd agrees with finite differences in the outputs."""
    outputs, direction, step = case.outputs.clone().requires_grad_(), normal(*case.outputs.shape, seed=3), 1e-5
    losses = case.part.nll(outputs, case.targets).sum()
    require(losses.requires_grad, "nll carries no gradient to the outputs")
    (found,) = torch.autograd.grad(losses, outputs)
    with torch.no_grad():
        up, down = (case.part.nll(case.outputs + sign * step * direction, case.targets) for sign in (1, -1))
    require_close(
        "the gradient of nll",
        (found * direction).flatten(1).sum(1) if found.dim() > 1 else found * direction,
        (up - down) / (2 * step),
        1e-4,
    )


def nll_is_normalised(case: Case) -> None:
    """exp(-nll) over all targets sums, or integrates, to one."""
    for example in range(3):
        total = case.law(example).total
        require(
            abs(total - 1) < 1e-4, f"exp(-nll) of example {example} adds up to {total:.6g} over all targets, expected 1"
        )


def samples_as_the_nll_says(case: Case) -> None:
    """Drawn targets have the law exp(-nll): frequencies of counts and classes, uniform ranks of reals."""
    _, drawn = case.sampled(make_generator(4))
    for example in range(3):
        law = case.law(example)
        require_mean(
            f"the {law.statistic} of targets drawn for example {example}",
            law.scores(drawn.reshape(len(case.outputs), COPIES, -1)[example, :, 0]),
            law.expected,
        )


def the_score_of_drawn_targets_vanishes(case: Case) -> None:
    """E[d nll / d outputs] = 0 over targets from the model: sampling and nll belong together."""
    many, drawn = case.sampled(make_generator(5))
    many = many.clone().requires_grad_()
    (score,) = torch.autograd.grad(case.part.nll(many, drawn).sum(), many)
    require_mean("the score at drawn targets", _by_copy(score, case), torch.zeros(case.outputs.numel()))


def likelihood_ratios_of_drawn_targets_average_to_one(case: Case) -> None:
    """E[p(y given f') / p(y given f)] = 1 over targets drawn given f: also where a target is several numbers."""
    many, drawn = case.sampled(make_generator(9))
    with torch.no_grad():
        away = _AWAY * normal(*case.outputs.shape, seed=10).sign().repeat_interleave(COPIES, 0)
        ratios = (case.part.nll(many, drawn) - case.part.nll(many + away, drawn)).exp()
    require_mean("a likelihood ratio at drawn targets", _by_copy(ratios, case), torch.ones(len(case.outputs)))


def the_generator_decides(case: Case) -> None:
    """The same generator gives the same targets, without gradient; the global one is left alone."""
    if not hasattr(case.part, "sample_targets"):
        raise Omitted("the likelihood has no `sample_targets`")
    outputs, before = case.outputs.clone().requires_grad_(), torch.get_rng_state()
    first, again = (case.part.sample_targets(outputs, make_generator(6)) for _ in range(2))
    require_same("two draws of targets with the same generator", again, first)
    require(not first.requires_grad, "drawn targets carry a gradient")
    require(torch.equal(before, torch.get_rng_state()), "sample_targets draws from the global generator")


def curvature_root_is_one(case: Case) -> None:
    """E[u u'] is E[score score'] of drawn targets: both are the expected Hessian of the NLL."""
    if not hasattr(case.part, "curvature_root"):
        raise Omitted("the likelihood has no `curvature_root`")
    many, drawn = case.sampled(make_generator(7))
    many = many.clone().requires_grad_()
    (score,) = torch.autograd.grad(case.part.nll(many, drawn).sum(), many)
    root = case.part.curvature_root(many.detach(), make_generator(8))
    require(root.shape == many.shape, f"curvature_root has shape {tuple(root.shape)}, expected {tuple(many.shape)}")
    first, second = (value.reshape(len(many), -1) for value in (root, score))
    products = first[:, :, None] * first[:, None, :] - second[:, :, None] * second[:, None, :]
    require_mean("u u' - score score'", _by_copy(products, case), torch.zeros(products[0].numel() * len(case.outputs)))


def predictions_agree_with_the_nll(case: Case) -> None:
    """class_probabilities are exp(-nll) of each class; mean_and_variance are the moments of exp(-nll)."""
    form = for_outputs(case.part, case.outputs)
    if hasattr(form, "class_probabilities"):
        found = form.class_probabilities(case.outputs)
        require_close("the sum of class_probabilities", found.sum(-1), torch.ones(found.shape[:-1]))
        for example in range(3):
            if found.dim() == 2:
                law = case.law(example)
                require_close(
                    f"class_probabilities of example {example}", found[example], law.masses[: found.shape[1]], 1e-5
                )
    elif hasattr(form, "mean_and_variance"):
        with torch.no_grad():
            mean, variance = form.mean_and_variance(case.outputs)
        if case.targets[0].numel() > 1:
            _, drawn = case.sampled(make_generator(11))
            drawn = _by_copy(drawn, case)
            require_mean("a drawn target, against its mean,", drawn, mean)
            require_mean("its squared distance from the mean", (drawn - mean.flatten()).square(), variance)
            return
        for example in range(3):
            law = case.law(example)
            _require_moments(law, float(mean[example].flatten()[0]), float(variance[example].flatten()[0]))
    else:
        raise Omitted("the likelihood has neither `class_probabilities` nor `mean_and_variance`: it does not predict")


def check_refuses_nan(case: Case) -> None:
    """``check`` takes the targets, and refuses NaN among them in one line."""
    if not hasattr(case.part, "check"):
        raise Omitted("the likelihood has no `check`")
    case.part.check(case.targets, case.outputs)
    if not case.targets.is_floating_point():
        raise Omitted("its targets are whole numbers, which cannot be NaN")
    broken = case.targets.clone()
    broken.reshape(-1)[0] = math.nan
    try:
        case.part.check(broken, case.outputs)
    except BayeswellError as error:
        require("\n" not in str(error), "check refuses NaN in more than one line")
    else:
        raise PartError("check takes NaN among the targets, expected a DataError")


def _by_copy(values: Tensor, case: Case) -> Tensor:
    """(S copies, ...) -> (copies, S ...)."""
    return values.reshape(len(case.outputs), COPIES, -1).transpose(0, 1).flatten(1)


def _require_moments(law: Law, mean: float, variance: float) -> None:
    found, spread = law.moments()
    if math.isfinite(mean):
        require(
            abs(mean - found) <= 1e-3 * (abs(found) + 1), f"the mean is {mean:.6g}, that of exp(-nll) is {found:.6g}"
        )
    if math.isfinite(variance) and math.isfinite(spread):
        require(
            abs(variance / spread - 1) <= 5e-3, f"the variance is {variance:.6g}, that of exp(-nll) is {spread:.6g}"
        )


_CHECKS = (
    nll_is_one_number_an_example,
    nll_has_its_gradient,
    nll_is_normalised,
    samples_as_the_nll_says,
    the_score_of_drawn_targets_vanishes,
    likelihood_ratios_of_drawn_targets_average_to_one,
    the_generator_decides,
    curvature_root_is_one,
    predictions_agree_with_the_nll,
    check_refuses_nan,
)
SUITE = Suite(Case, _CHECKS, ("outputs", "targets", "normalised"))
