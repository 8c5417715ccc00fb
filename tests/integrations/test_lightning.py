"""Averagers in Lightning's Trainer. Lightning takes seconds to import, so only the tests import it."""

from __future__ import annotations

import logging
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bayeswell.core.errors import SettingError
from bayeswell.core.protocols import Progress
from bayeswell.core.random import make_generator
from bayeswell.nn import bayesian
from bayeswell.objectives import ELBO
from bayeswell.prediction import predict

EXAMPLES, BATCH, EPOCHS = 20, 8, 4

pytestmark = [
    pytest.mark.slow,  # the import of Lightning
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"),  # Lightning, of torch's
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]


def loader() -> DataLoader[Any]:
    torch.manual_seed(4)
    x = torch.randn(EXAMPLES, 3)
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=BATCH)


@pytest.fixture(scope="module")
def tools() -> Any:
    """A LightningModule, a recorder of means and a Trainer, as a user writes them."""
    pytest.importorskip("lightning")
    from lightning.pytorch import Callback, LightningModule, Trainer

    from bayeswell.integrations.lightning import Collect, progress_of

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.model = bayesian(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)))
            self.elbo, self.seen = ELBO("categorical", EXAMPLES), list[Progress]()

        def training_step(self, batch: Any, index: int) -> Tensor:
            self.seen.append(progress_of(self.trainer))
            noise = make_generator(self.seen[-1].step)  # a resumed run meets the same noise
            return self.elbo(self.model, *batch, progress=self.seen[-1], generator=noise).total

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.model.parameters(), 0.05)

    class Means(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.means: list[Tensor] = []

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
            self.means.append(pl_module.model.posterior.mean.detach().double().clone())

    def trainer(*callbacks: Any, **settings: Any) -> Any:
        return Trainer(
            accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            callbacks=list(callbacks), **{"max_epochs": EPOCHS, "enable_checkpointing": False, **settings},
        )  # fmt: skip

    return types.SimpleNamespace(Collect=Collect, Module=Module, Means=Means, trainer=trainer)


def test_swag_uses_the_ends_of_epochs_and_its_draws_predict(tools: Any) -> None:
    path, swag, own = tools.Means(), tools.Collect("swag", start=0.5), tools.Module()
    tools.trainer(path, swag).fit(own, loader())
    ends = torch.stack(path.means[2::3][2:])  # 20 examples in batches of 8: three steps an epoch
    torch.testing.assert_close(swag.model.posterior.mean.double(), ends.mean(0), rtol=0, atol=1e-6)
    assert torch.equal(own.model.posterior.mean.detach().double(), path.means[-1])
    found = predict(swag.model, torch.randn(5, 3), own.elbo.likelihood, 10)
    assert found.probabilities.shape == (5, 2)
    assert [progress.step for progress in own.seen] == list(range(12))
    assert {(progress.batches, progress.total_steps) for progress in own.seen} == {(3, 12)}


def test_feedback_of_hwa_restarts_the_iterate_at_the_average(tools: Any) -> None:
    path, hwa, own = tools.Means(), tools.Collect("hwa", start=0.5, feedback="restart"), tools.Module()
    tools.trainer(path, hwa).fit(own, loader())
    averaged = torch.stack([path.means[8], path.means[11]]).mean(0)
    torch.testing.assert_close(own.model.posterior.mean.detach().double(), averaged, rtol=0, atol=1e-6)


def test_steps_of_the_optimizer_are_counted_with_accumulated_gradients(tools: Any) -> None:
    swag = tools.Collect("swag", start=0.0, cycle=1)
    tools.trainer(swag, accumulate_grad_batches=2).fit(tools.Module(), loader())
    assert swag.state_dict()["step"] == 2 * EPOCHS
    assert swag.state_dict()["averager"]["snapshots"] == 2 * EPOCHS


def test_checkpoints_hold_the_collected_state(tools: Any, tmp_path: Path) -> None:
    whole, first, again = (tools.Collect("swag", start=0.0) for _ in range(3))
    tools.trainer(whole).fit(tools.Module(), loader())
    half = tools.trainer(first, max_epochs=2)
    half.fit(tools.Module(), loader())
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    tools.trainer(again).fit(tools.Module(), loader(), ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    for name, value in whole.model.posterior.state_dict().items():
        assert torch.equal(again.model.posterior.state_dict()[name], value), name


def test_runs_of_unknown_length_are_refused(tools: Any) -> None:
    with pytest.raises(SettingError, match="give the Trainer max_epochs or max_steps"):
        tools.trainer(tools.Collect("swag"), max_epochs=-1).fit(tools.Module(), loader())
    with pytest.raises(SettingError, match="did you mean 'swag'"):
        tools.Collect("swagg")
