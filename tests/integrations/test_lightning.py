"""Collectors in Lightning's Trainer and in a loop of accelerate, in one process (``test_loops`` has two)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

import bayeswell as bw
from bayeswell.integrations import Collecting

from .tiny_data import EPOCHS, EXAMPLES, loader

needs_lightning = pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"),  # Lightning, of torch's
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # advice
]


@needs_lightning
def test_swag_sees_the_ends_of_epochs_and_its_draws_predict() -> None:
    from .lightning_loop import Collect, Means, module, trainer

    path, swag, own = Means(), Collect("swag", start=0.5), module()
    trainer(path, swag).fit(own, loader())
    ends = torch.stack(path.means[2::3][2:])  # 20 examples in batches of 8: three steps an epoch
    assert swag.model is not None
    torch.testing.assert_close(swag.model.posterior.mean_vector().double(), ends.mean(0), rtol=0, atol=1e-6)
    assert torch.equal(own.model.posterior.mean_vector().detach().double(), path.means[-1])
    found = bw.predict(swag.model, torch.randn(5, 3), own.objective.likelihood, draws=10, seed=0)
    assert found.probabilities.shape == (5, 2)
    # Progress counts the last batch of four examples by its size: shares average to one over an epoch.
    assert [at.step for at in own.seen] == list(range(12))
    assert {(at.batches, at.total_steps, at.examples) for at in own.seen} == {(3, 12, EXAMPLES)}
    assert [at.batch for at in own.seen[:4]] == [0, 1, 2, 0]


@needs_lightning
def test_feedback_of_hwa_restarts_the_iterate_at_the_average() -> None:
    from .lightning_loop import Collect, Means, module, trainer

    path, hwa, own = Means(), Collect("hwa", start=0.5, feedback="restart"), module()
    trainer(path, hwa).fit(own, loader())
    averaged = torch.stack([path.means[8], path.means[11]]).mean(0)
    torch.testing.assert_close(own.model.posterior.mean_vector().detach().double(), averaged, rtol=0, atol=1e-6)
    assert not torch.allclose(path.means[11], averaged)


@needs_lightning
def test_steps_of_the_optimizer_are_counted_where_gradients_are_accumulated() -> None:
    from .lightning_loop import Collect, module, trainer

    swag = Collect("swag", start=0.0, cycle=1)
    trainer(swag, accumulate_grad_batches=2).fit(module(), loader())
    assert swag.state_dict()["step"] == 2 * EPOCHS
    assert swag.state_dict()["collector"]["snapshots"] == 2 * EPOCHS


@needs_lightning
def test_checkpoints_hold_what_was_collected(tmp_path: Path) -> None:
    from .lightning_loop import Collect, module, trainer

    whole, first, again = (Collect("swag", start=0.0) for _ in range(3))
    trainer(whole).fit(module(), loader())
    half = trainer(first, max_epochs=2)
    half.fit(module(), loader())
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    trainer(again).fit(module(), loader(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert whole.model is not None
    assert again.model is not None
    assert again.state_dict()["collector"]["snapshots"] == EPOCHS
    for name, value in whole.model.posterior.state_dict().items():
        assert torch.equal(again.model.posterior.state_dict()[name], value), name


@needs_lightning
def test_what_cannot_be_planned_is_refused() -> None:
    from .lightning_loop import Collect, module, trainer

    with pytest.raises(bw.SettingError, match="give the Trainer max_epochs or max_steps"):
        trainer(Collect("swag"), max_epochs=-1).fit(module(), loader())
    with pytest.raises(bw.SettingError, match="did you mean 'swag'"):
        Collect("swagg")
    with pytest.raises(bw.SettingError, match="at least 2 are needed"):
        trainer(Collect("swag"), max_epochs=1).fit(module(), loader())


def test_a_loop_of_accelerate_trains_and_collects() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(5)
    model = bw.bayesian(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)))
    loss = bw.Loss(bw.ELBO("categorical", EXAMPLES), model)
    loss, optimizer, batches = accelerator.prepare(loss, torch.optim.Adam(model.parameters(), 0.05), loader())
    collecting = Collecting(loss, "swa", total_steps=2 * EPOCHS, batches=2)
    means = []
    for _ in range(EPOCHS):
        for inputs, targets in batches:
            with accelerator.accumulate(loss):
                accelerator.backward(loss(inputs, targets))
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                collecting.after_step()
                means.append(model.posterior.mean_vector().detach().clone())
    assert len(means) == 2 * EPOCHS
    torch.testing.assert_close(collecting.finished().posterior.mean_vector(), means[-1])
