"""Checks of likelihoods: the NLL, and all methods that must belong to the same distribution."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..core.random import make_generator
from .problems import DOUBLE, normal, tangent_grid
from .report import PartError, applies, require, require_close, require_mean, require_same

EXAMPLES, COPIES, MOST_COUNT = 6, 8000, 4000
SHAPES = ((EXAMPLES, 1), (EXAMPLES, 3), (EXAMPLES, 2), (EXAMPLES,), (EXAMPLES, 3, 2))


class LikelihoodChecks:
    """A likelihood with outputs and targets that it accepts."""

    def __init__(
        self, part: Any, outputs: Tensor | None = None, targets: Tensor | None = None, normalized: bool = True
    ) -> None:
        self.part = copy.deepcopy(part).to(DOUBLE)
        self.normalized = normalized and getattr(part, "class_weights", None) is None
        self.outputs, self.targets = self._usable(outputs, targets)
        self.part = self.part.for_outputs(self.outputs)

    def _usable(self, outputs: Tensor | None, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        error: Exception | str = "NLLs that are not finite"
        candidates = [outputs.double()] if outputs is not None else [0.7 * normal(*s, seed=1) for s in SHAPES]
        for candidate in candidates:
            try:
                for value in [targets] if targets is not None else self._guesses(candidate):
                    losses = self.part.nll(candidate, value)
                    if bool(losses.isfinite().all()) and bool(losses.any()):
                        return candidate, value
            except Exception as refused:
                error = refused
        raise PartError(f"it accepts none of the usual outputs and targets ({error}); give outputs= and targets=")

    def _guesses(self, outputs: Tensor) -> Iterator[Tensor]:
        if self.part.supports("sample"):
            yield self.part.sample(outputs, make_generator(2))
            return
        labels = torch.tensor([0, 1] * (EXAMPLES // 2))
        yield labels
        yield labels.double().expand(*outputs.shape[:0:-1], -1).T

    def _sampled(self, seed: int) -> tuple[Tensor, Tensor]:
        self._need("sample")
        applies(self.normalized, "exp(-nll) is no density")
        many = self.outputs.repeat_interleave(COPIES, 0)
        return many, self.part.sample(many, make_generator(seed))

    def _need(self, method: str) -> None:
        applies(self.part.supports(method), f"it has no `{method}`")

    def _by_copy(self, values: Tensor) -> Tensor:
        # (S copies, ...) -> (copies, S, ...)
        return values.reshape(len(self.outputs), COPIES, -1).transpose(0, 1)

    def check_nll_is_one_number_per_example(self) -> None:
        losses, count = self.part.nll(self.outputs, self.targets), len(self.outputs)
        require(losses.shape == (count,), f"nll has shape {tuple(losses.shape)}, expected ({count},)")
        order = torch.randperm(count, generator=make_generator(1))[: count - 1]
        found = self.part.nll(self.outputs[order], self.targets[order])
        require_close("nll of some examples in another order", found, losses[order])

    def check_nll_has_its_gradient(self) -> None:
        outputs, direction, step = self.outputs.clone().requires_grad_(), normal(*self.outputs.shape, seed=3), 1e-5
        losses = self.part.nll(outputs, self.targets).sum()
        require(losses.requires_grad, "nll has no gradient in the outputs")
        (found,) = torch.autograd.grad(losses, outputs)
        with torch.no_grad():
            up, down = (self.part.nll(self.outputs + sign * step * direction, self.targets) for sign in (1, -1))
        along = (found * direction).reshape(len(found), -1).sum(1)
        require_close("the gradient of nll", along, (up - down) / (2 * step), 1e-4)

    def check_nll_is_normalized(self) -> None:
        applies(self.normalized and self.targets[0].numel() == 1, "exp(-nll) is no density of one number")
        for example in range(3):
            total = float(self._masses(self.outputs[example], self.targets[example]).sum())
            require(abs(total - 1) < 1e-4, f"exp(-nll) of example {example} adds up to {total:.6g}, expected 1")

    @torch.no_grad()
    def _masses(self, outputs: Tensor, target: Tensor) -> Tensor:
        weights = torch.ones((), dtype=DOUBLE)
        if self.part.supports("probabilities"):
            values = torch.arange(max(2, outputs.numel()), dtype=DOUBLE)
        elif self.part.is_discrete:
            values = torch.arange(MOST_COUNT, dtype=DOUBLE)
        else:
            values, weights = tangent_grid(2.0)
        try:
            return self._densities(outputs, target, values) * weights
        except ValueError:  # the support of a torch distribution is half of the line
            inside = values > 0
            return self._densities(outputs, target, values[inside]) * weights[inside]

    def _densities(self, outputs: Tensor, target: Tensor, values: Tensor) -> Tensor:
        many = outputs.expand(len(values), *outputs.shape)
        targets = values.to(target.dtype).reshape(-1, *target.shape)
        # torch.compile switches off torch's own check of the support, for the whole process.
        self.part.check(targets, many)
        return torch.exp(-self.part.nll(many, targets))

    def check_score_of_drawn_targets_vanishes(self) -> None:
        """E[d nll / d outputs] = 0 over targets from the model."""
        many, drawn = self._sampled(5)
        many = many.clone().requires_grad_()
        (score,) = torch.autograd.grad(self.part.nll(many, drawn).sum(), many)
        require_mean("the score of drawn targets", self._by_copy(score), 0.0)

    def check_generator_decides(self) -> None:
        self._need("sample")
        outputs, before = self.outputs.clone().requires_grad_(), torch.get_rng_state()
        first, again = (self.part.sample(outputs, make_generator(6)) for _ in range(2))
        require_same("a second draw with the same generator", again, first)
        require(not first.requires_grad, "drawn targets have a gradient")
        require(torch.equal(before, torch.get_rng_state()), "`sample` draws from torch's global generator")

    def check_curvature_root_is_the_fisher_information(self) -> None:
        """E[u u'] = E[score score'] over drawn targets."""
        self._need("curvature_root")
        many, drawn = self._sampled(7)
        many = many.clone().requires_grad_()
        (score,) = torch.autograd.grad(self.part.nll(many, drawn).sum(), many)
        root = self.part.curvature_root(many.detach(), make_generator(8))
        require(root.shape == many.shape, f"curvature_root has shape {tuple(root.shape)}, expected {tuple(many.shape)}")
        first, second = (value.reshape(len(many), -1) for value in (root, score))
        products = first[:, :, None] * first[:, None, :] - second[:, :, None] * second[:, None, :]
        require_mean("u u' - score score'", self._by_copy(products), 0.0)

    def check_probabilities_are_those_of_the_nll(self) -> None:
        self._need("probabilities")
        found = self.part.probabilities(self.outputs)
        require_close("the sum of probabilities", found.sum(-1), torch.ones(found.shape[:-1], dtype=DOUBLE))
        if self.normalized and found.dim() == 2:
            for example in range(3):
                masses = self._masses(self.outputs[example], self.targets[example])[: found.shape[1]]
                require_close(f"probabilities of example {example}", found[example], masses, 1e-5)

    @torch.no_grad()
    def check_moments_are_those_of_drawn_targets(self) -> None:
        self._need("mean_and_variance")
        mean, variance = self.part.mean_and_variance(self.outputs)
        applies(bool(variance.isfinite().all()), "its variance is infinite")
        drawn = self._by_copy(self._sampled(11)[1]).double().reshape(COPIES, -1)
        require_mean("a drawn target, against its mean,", drawn, mean)
        require_mean("its squared distance from the mean", (drawn - mean.flatten()).square(), variance)

    @torch.no_grad()
    def check_cdf_is_that_of_drawn_targets(self) -> None:
        self._need("cdf")
        mean, variance = self.part.mean_and_variance(self.outputs)
        drawn = self._by_copy(self._sampled(12)[1]).double().reshape(COPIES, *mean.shape)
        spread = torch.where(variance.isfinite(), variance.sqrt(), 1.0)
        for shift in (-0.8, 0.1, 1.2):
            values = mean + shift * spread
            found = self.part.cdf(self.outputs, values)
            require_mean(f"a drawn target below its mean {shift:+g} stds", (drawn <= values).double(), found)

    def check_tempered_one_is_itself(self) -> None:
        self._need("tempered")
        losses = self.part.nll(self.outputs, self.targets)
        require_close("nll of tempered(1)", self.part.tempered(1.0).nll(self.outputs, self.targets), losses)
        again = self.part.tempered(2.0).tempered(0.5).nll(self.outputs, self.targets)
        require_close("nll of tempered(2).tempered(0.5)", again, losses)
