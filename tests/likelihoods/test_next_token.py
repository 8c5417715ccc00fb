"""The next token: labels as they are given, shifted here and nowhere else; sums over tokens, N counts sequences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bayeswell as bw
from bayeswell.likelihoods import counted, labels_of
from bayeswell.post_hoc.outputs import curvature_columns
from bayeswell.training.scores import Score, validation_on

S, T, K = 4, 5, 3


def problem() -> tuple[Tensor, Tensor]:
    """Logits, and labels in which each sequence ends in another number of ignored places; one is ignored whole."""
    logits = torch.randn(S, T, K, dtype=torch.float64)
    labels = torch.randint(0, K, (S, T))
    for row in range(S):
        labels[row, T - row :] = -100
    labels[3, :] = -100
    return logits, labels


def by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    """Token by token: what stands at t + 1, under the logits at t."""
    losses = torch.zeros(len(labels), dtype=torch.float64)
    for n in range(len(labels)):
        for t in range(labels.shape[1] - 1):
            if labels[n, t + 1] != -100:
                losses[n] -= logits[n, t].log_softmax(0)[labels[n, t + 1]]
    return losses


def test_a_sequence_has_the_sum_over_its_tokens() -> None:
    logits, labels = problem()
    found = bw.NextToken().nll(logits, labels)
    torch.testing.assert_close(found, by_hand(logits, labels))
    assert found[3] == 0
    # Labels that are not shifted would be another loss: nothing here is symmetric in time.
    plain = bw.Categorical(class_axis=-1, ignore_index=-100).nll(logits, labels)
    assert bool((plain[:3] - found[:3]).abs().gt(1e-3).all())


def test_the_elbo_of_all_sequences_is_the_sum_over_all_tokens_and_the_kl_once() -> None:
    """N counts sequences: N total = sum over tokens + temperature KL, in two ragged batches as in one."""
    net = nn.Sequential(nn.Embedding(K, 6), nn.Linear(6, K))
    model = bw.bayesian(net.double(), estimator="weight_sampling").train()
    _, labels = problem()
    tokens = labels.clamp_min(0)
    objective = bw.ELBO("next_token", dataset_size=S, temperature=0.3)
    generator = bw.make_generator(3)
    terms = objective(model, tokens, labels, generator=generator)
    with torch.no_grad():
        noise = model.estimator.noise(model, bw.types.Step(tokens, labels, generator=bw.make_generator(3)))
        assert noise is not None
        logits = model.call(model.layout.unflatten(model.posterior.sample(noise)[0]), tokens)
    expected = by_hand(logits, labels).sum() + 0.3 * terms.kl
    torch.testing.assert_close(S * terms.total.detach(), expected)


def test_drawn_tokens_stand_behind_the_places_that_draw_them() -> None:
    sure = torch.full((2, T, K), -50.0)
    tokens = torch.tensor([[0, 1, 2, 1, 0], [2, 2, 1, 0, 1]])
    sure.scatter_(2, tokens[..., None], 50.0)
    drawn = bw.NextToken().sample_targets(sure, bw.make_generator(0))
    assert drawn[:, 1:].tolist() == tokens[:, :-1].tolist()
    assert drawn[:, 0].tolist() == [-100, -100]


@pytest.mark.parametrize("draws", [None, 20_000])
def test_curvature_is_that_of_the_places_that_count(draws: int | None) -> None:
    """diag(p) - p p' at each place with a label, and none elsewhere: exactly, and from random roots (4 errors)."""
    logits, labels = problem()
    copies = 1 if draws is None else 500  # side by side in a batch: 40 calls for all draws
    each = None if draws is None else draws // copies
    beside = logits.repeat(copies, 1, 1), labels.repeat(copies, 1)
    columns = curvature_columns(bw.NextToken(), *beside, each, bw.make_generator(1)).flatten(2)
    columns = columns.unflatten(1, (copies, S))
    found = torch.einsum("cmsi,cmsj->sij", columns, columns) / copies
    expected = torch.zeros(S, T * K, T * K, dtype=torch.float64)
    p = logits.softmax(-1)
    for n in range(S):
        for t in range(T - 1):
            if labels[n, t + 1] != -100:
                own = slice(t * K, (t + 1) * K)
                expected[n, own, own] = p[n, t].diag() - torch.outer(p[n, t], p[n, t])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 if draws is None else 5 / draws**0.5)


def test_scores_compare_a_place_with_the_token_behind_it() -> None:
    tokens = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 2]])  # each is the last plus one
    labels = torch.cat([tokens, torch.tensor([[1, 0, 0, 0]])])
    labels[2, 2:] = -100

    class PlusOne(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return 9 * nn.functional.one_hot((x + 1) % 3, 3) + 0 * self.scale.weight

    likelihood = bw.NextToken()
    inputs = labels.clamp_min(0)
    model = bw.bayesian(PlusOne(), "delta")
    places = counted(likelihood, labels)
    assert places is not None
    assert places.tolist() == [[True] * 3 + [False]] * 2 + [[True, False, False, False]]
    assert labels_of(likelihood, labels)[0].tolist() == [1, 2, 0, -100]
    # Six of seven tokens follow the rule.
    assert Score(likelihood)(PlusOne()(inputs), labels, None) / 3 == pytest.approx(6 / 7)
    assert validation_on(inputs, labels, draws=1)(model, likelihood)["accuracy"] == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"ignore_index": None}, "ignore_index = None"), ({"ignore_index": 0}, "below 0"), ({"class_axis": 1}, "is -1")],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, int | None], message: str) -> None:
    with pytest.raises(bw.SettingError, match=message):
        bw.NextToken(**settings)


def test_what_are_no_sequences_is_refused() -> None:
    with pytest.raises(bw.DataError, match=r"shape \(4, 3\); they must be logits \(S, T, K\)"):
        bw.NextToken().nll(torch.zeros(4, 3), torch.zeros(4).long())
    with pytest.raises(bw.DataError, match="labels must lie in 0 to 2"):
        bw.NextToken().check(torch.full((2, 4), 7), torch.zeros(2, 4, 3))
