"""The k-tied Normal: the parameter counts of its paper, its start, and what its stds are."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bayeswell.core.errors import BayeswellWarning, SettingError
from bayeswell.core.layout import Layout, Site
from bayeswell.posteriors import KTied, KTiedPosterior, MeanFieldPosterior, num_variational_params
from helpers import assert_mean_close
from posteriors.families import LAYOUT, a_prior, generic, start


def dense(*sizes: int) -> list[Site]:
    sites = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        sites.append(Site((f"{index}.weight",), (outputs, inputs), "Linear", inputs, outputs))
        sites.append(Site((f"{index}.bias",), (outputs,), "Linear", inputs, outputs))
    return sites


MLP = Layout(tuple(dense(784, 400, 400, 10)))
CNN = Layout(
    (
        Site(("conv1.weight",), (32, 3, 5, 5), "Conv2d", 75, 800),
        Site(("conv1.bias",), (32,), "Conv2d", 75, 800),
        Site(("conv2.weight",), (64, 32, 5, 5), "Conv2d", 800, 1600),
        Site(("conv2.bias",), (64,), "Conv2d", 800, 1600),
        *dense(4096, 512, 100),
    )
)
RECURRENT = Layout(tuple(Site((f"lstm.weight_{side}",), (512, 128), "LSTM", 128, 128) for side in ("ih", "hh")))


@pytest.mark.parametrize(
    ("layout", "tie", "others", "counts"),
    [
        (MLP, "*", 0, (956_820, 481_614, 484_008, 486_402)),
        (CNN, ("0.*", "1.*"), 0, (4_405_320, 2_262_188, 2_267_408, 2_272_628)),
        # The embedding, the LSTM's bias and the last layer have no posterior.
        (RECURRENT, "*", 20_000 * 128 + 512 + 129, (2_822_785, 2_692_993, 2_694_273, 2_695_553)),
    ],
    ids=["mlp", "cnn", "lstm"],
)
def test_parameter_counts_of_the_paper(layout: Layout, tie: Any, others: int, counts: tuple[int, ...]) -> None:
    """Table in figure 6 of Swiatkowski et al. 2020: mean-field, then ranks 1, 2 and 3."""
    choices: list[Any] = ["mean_field", *(KTied(rank, tie=tie) for rank in (1, 2, 3))]
    found = [num_variational_params(start(choice, layout=layout, dtype=torch.float32)) for choice in choices]
    assert tuple(count + others for count in found) == counts


@pytest.mark.parametrize("rank", [1, 2])
def test_stds_are_products_of_the_factors(rank: int) -> None:
    """std_ij = sum_k exp(a_ik + b_kj), entry by entry, with rows over the output units of any layer."""
    q = generic(KTied(rank, initial_std=0.2).__dict__ | {"name": "k_tied"})
    assert isinstance(q, KTiedPosterior)
    log_factors, free, at = q.log_factors.detach().numpy(), list(q.log_std.detach().exp().numpy()), 0
    for site in LAYOUT.sites:
        stds = q.std().detach()[LAYOUT.slices[site.name]].view(site.shape)
        if len(site.shape) < 2:
            np.testing.assert_allclose(stds, [free.pop(0) for _ in range(site.size)], rtol=1e-12)
            continue
        rows = site.shape[site.output_dim]
        columns = site.size // rows
        a = log_factors[at : at + rows * rank].reshape(rows, rank)
        b = log_factors[at + rows * rank : at + (rows + columns) * rank].reshape(rank, columns)
        at += (rows + columns) * rank
        for index in np.ndindex(site.shape):
            row, column = index[site.output_dim], 0
            for axis, place in enumerate(index):
                column = column if axis == site.output_dim else column * site.shape[axis] + place
            assert float(stds[index]) == pytest.approx(np.exp(a[row] + b[:, column]).sum(), rel=1e-12)
    assert at == len(log_factors)
    assert not free


def test_gradients_of_the_factors_match_their_closed_form() -> None:
    """d/da_ik = u_ik sum_j v_kj g_ij and d/db_kj = v_kj sum_i u_ik g_ij with g = h s - 1 / s."""
    layout = Layout((Site(("weight",), (4, 6), "Linear", 6, 4),))
    prior = a_prior(layout=layout)
    q = generic({"name": "k_tied", "rank": 2}, prior, layout)
    (found,) = torch.autograd.grad(q.rsample_and_kl(None, prior)[1], q.log_factors)
    ((_, u, v),) = [tuple(x.detach() if isinstance(x, Tensor) else x for x in factors) for factors in q.factors()]
    std = u @ v
    slope = std / 0.36 - 1 / std
    truth = torch.cat([(u * (slope @ v.T)).reshape(-1), (v * (u.T @ slope)).reshape(-1)])
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("rank", "init_noise"), [(1, 0.1), (2, 0.1), (3, 0.5)])
def test_starts_at_the_given_mean_std(rank: int, init_noise: float) -> None:
    """E[std_ij] = s over 400 starts, rate 1e-6; without the log-normal correction init_noise 0.5 is off by 28 %."""
    layout = Layout(tuple(dense(4, 3)))
    part, prior, mean = (
        KTied(rank, initial_std=0.23, init_noise=init_noise),
        a_prior(layout=layout),
        torch.zeros(15).double(),
    )
    generator = torch.Generator().manual_seed(3)
    stds = torch.stack([part.build(layout, prior, mean, generator).std().detach() for _ in range(400)])
    assert_mean_close(stds[:, :12], torch.full((12,), 0.23))
    torch.testing.assert_close(stds[:, 12:], torch.full((400, 3), 0.23, dtype=torch.float64))
    scatter = math.sqrt((math.exp(2 * init_noise**2) - 1) / rank)
    assert float(stds[:, :12].std() / 0.23) == pytest.approx(scatter, rel=0.15)


def test_components_start_different_with_different_gradients() -> None:
    layout = Layout(tuple(dense(6, 5)))
    prior = a_prior(layout=layout)
    q = start(KTied(3), prior, layout)
    q.rsample_and_kl(None, prior)[1].backward()
    for values in (q.log_factors.detach(), q.log_factors.grad):
        a = values[:15].view(5, 3)
        assert float((a[:, 0] - a[:, 1]).abs().min()) > 0
        assert float((a[:, 1] - a[:, 2]).abs().min()) > 0
    assert int(torch.linalg.matrix_rank(q.std().detach()[:30].view(5, 6), rtol=1e-6)) == 3


def test_sites_that_are_not_tied_are_mean_field() -> None:
    layout = Layout(tuple(dense(5, 4, 2, 4)))
    q = start(KTied(3, tie=("0.*", "1.*")), layout=layout)
    assert q.tied == {"0.weight"}
    assert q.log_factors.numel() == 3 * (4 + 5)
    assert q.log_std.numel() == layout.size - 20


def test_network_without_a_bias_has_no_free_stds() -> None:
    layout = Layout((Site(("weight",), (4, 6), "Linear", 6, 4),))
    q = start(KTied(2), layout=layout)
    assert q.log_std is None
    assert set(q.state_dict()) == {"mean", "log_factors"}


def test_nothing_to_tie() -> None:
    layout = Layout(tuple(dense(5, 4)))
    with pytest.warns(BayeswellWarning, match="rank = 6"):
        assert isinstance(start(KTied(6), layout=layout), MeanFieldPosterior)
    with pytest.raises(SettingError, match=r"dense\*"):
        start(KTied(2, tie="dense*"), layout=layout)
