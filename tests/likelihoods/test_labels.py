"""Class weights, ignored labels and next tokens."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from bayeswell.core.protocols import Likelihood
from bayeswell.core.random import make_generator
from bayeswell.likelihoods import Bernoulli, Categorical, NextToken

WEIGHTS = (0.5, 2.0, 1.3)


def test_categorical_nll_matches_torch() -> None:
    outputs = torch.randn(6, 3, 4, generator=make_generator(1))
    targets = torch.randint(3, (6, 4), generator=make_generator(2))
    targets[0, 1] = targets[3, 2] = -1
    likelihood = Categorical(WEIGHTS, ignore_index=-1, class_axis=1)
    expected = F.cross_entropy(outputs, targets, torch.tensor(WEIGHTS), reduction="none", ignore_index=-1).sum(1)
    torch.testing.assert_close(likelihood.nll(outputs, targets), expected)
    last = Categorical(WEIGHTS, ignore_index=-1, class_axis=-1)
    torch.testing.assert_close(last.nll(outputs.movedim(1, -1), targets), expected)
    assert torch.equal(likelihood.valid_mask(targets), targets >= 0)


def test_example_with_only_ignored_labels_has_zero_nll_and_gradient() -> None:
    outputs = torch.randn(2, 3, 2, requires_grad=True)
    targets = torch.tensor([[-100, -100], [0, 1]])
    likelihood = Categorical(ignore_index=-100, class_axis=1)
    likelihood.check(targets, outputs)
    losses = likelihood.nll(outputs, targets)
    losses.sum().backward()
    assert float(losses[0].detach()) == 0
    assert outputs.grad is not None
    assert float(outputs.grad[0].abs().sum()) == 0


def test_bernoulli_weights_multiply_the_losses_of_their_labels() -> None:
    outputs, targets = torch.randn(5, 2), torch.randint(2, (5, 2)).float()
    plain = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    expected = (plain * torch.where(targets == 1, 2.5, 0.5)).sum(1)
    torch.testing.assert_close(Bernoulli((0.5, 2.5)).nll(outputs, targets), expected)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "targets"),
    [
        (Categorical(WEIGHTS, ignore_index=-1), (1, 3), [1]),
        (Categorical(WEIGHTS, ignore_index=-1), (1, 3), [-1]),
        (Categorical(WEIGHTS, class_axis=1), (1, 3, 2), [[2, 0]]),
        (Bernoulli((0.5, 2.5)), (1, 2), [[1.0, 0.0]]),
        (NextToken(WEIGHTS), (1, 3, 3), [[1, 2, -100]]),
    ],
)
def test_sampled_targets_give_the_hessian_at_the_observed_labels(
    likelihood: Likelihood, outputs: tuple[int, ...], targets: list[object]
) -> None:
    f = torch.randn(outputs, dtype=torch.float64, generator=make_generator(3))
    y = torch.tensor(targets)
    size = f.numel()
    hessian = torch.func.hessian(lambda flat: likelihood.nll(flat.reshape(f.shape), y).sum())(f.flatten())
    count = 20_000
    many, labels = f.expand(count, *f.shape[1:]), y.expand(count, *y.shape[1:])
    sampled = likelihood.for_sampled_targets(labels)
    roots = sampled.curvature_root(many, make_generator(1)).reshape(count, size)
    leaf = many.clone().requires_grad_()
    drawn = sampled.sample(leaf, make_generator(2))
    scores = torch.autograd.grad(sampled.nll(leaf, drawn).sum(), leaf)[0].reshape(count, size)
    for vectors in (roots, scores):
        products = vectors[:, :, None] * vectors[:, None, :]
        se = products.std(0) / math.sqrt(count)
        # 4.5 standard errors: 1 failure in 150,000 for each number.
        assert bool(((products.mean(0) - hessian).abs() <= 4.5 * se + 1e-7).all())


def test_unweighted_likelihood_is_its_own_likelihood_of_sampled_targets() -> None:
    for likelihood in (Categorical(), Bernoulli()):
        assert likelihood.for_sampled_targets(torch.tensor([0, 1])) is likelihood


def test_next_token_nll_matches_the_shifted_cross_entropy() -> None:
    logits = torch.randn(3, 5, 4, generator=make_generator(1))
    tokens = torch.randint(4, (3, 5), generator=make_generator(2))
    tokens[1, 3:] = -100
    expected = F.cross_entropy(logits[:, :-1].movedim(-1, 1), tokens[:, 1:], reduction="none").sum(1)
    likelihood = NextToken()
    likelihood.check(tokens, logits)
    torch.testing.assert_close(likelihood.nll(logits, tokens), expected)
    mask = likelihood.valid_mask(tokens)
    assert mask is not None
    assert torch.equal(mask.sum(1), torch.tensor([4, 2, 4]))
    assert torch.equal(likelihood.aligned_targets(tokens)[:, :-1], tokens[:, 1:])


def test_next_token_logits_of_the_last_position_do_not_matter() -> None:
    logits = torch.randn(2, 4, 3, requires_grad=True)
    tokens = torch.randint(3, (2, 4))
    NextToken().nll(logits, tokens).sum().backward()
    assert logits.grad is not None
    assert float(logits.grad[:, -1].abs().sum()) == 0
    assert float(NextToken().curvature_root(logits.detach(), make_generator(1))[:, -1].abs().sum()) == 0
