"""Networks for tokens: padding has no effect where it should have none."""

from __future__ import annotations

import pytest
import torch

from bayeswell.lab.models.text import LSTM, Embedding, Transformer, masked_mean

TOKENS = torch.tensor([[0, 0, 5, 3], [0, 0, 0, 7]])


def test_the_mean_leaves_padding_out() -> None:
    states = torch.randn(2, 4, 3)
    expected = torch.stack([states[0, 2:].mean(0), states[1, 3]])
    torch.testing.assert_close(masked_mean(states, TOKENS), expected)
    assert torch.equal(masked_mean(states, torch.zeros_like(TOKENS)), torch.zeros(2, 3))


@pytest.mark.parametrize("part", [Embedding(6), Transformer(6, heads=2, layers=2)])
def test_the_embedding_of_padding_has_no_effect(part: Embedding | Transformer) -> None:
    net = part.build((4,), 2, 11).eval()
    before = net(TOKENS)
    with torch.no_grad():
        net.embedding.weight[0] += 3
    torch.testing.assert_close(net(TOKENS), before)


def test_the_lstm_reads_out_its_last_state() -> None:
    net = LSTM(width=5, embedding=3).build((4,), 2, 11)
    _, (last, _) = net.lstm(net.embedding(TOKENS))
    torch.testing.assert_close(net(TOKENS), net.dense(last[0]))


def test_the_transformer_knows_the_order_of_words() -> None:
    net = Transformer(8, heads=2, layers=1).build((4,), 2, 11).eval()
    assert not torch.allclose(net(torch.tensor([[1, 2, 3, 4]])), net(torch.tensor([[4, 3, 2, 1]])))


def test_a_review_without_words_is_finite() -> None:
    net = Transformer(8, heads=2, layers=1).build((4,), 2, 11)
    assert bool(net(torch.zeros(2, 4, dtype=torch.int64)).isfinite().all())
