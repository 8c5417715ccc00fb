"""The training loop: the only place where anything is changed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import BayeswellError, CompositionError, DataError, DivergenceError, NetworkError, SettingError
from ..methods import Assembly
from ..types import Inputs, Progress
from .finite_steps import with_model
from .looks import NOTHING_TO_LOOK_AT, Looks
from .records import History
from .run import Run

_NOT_FINITE = ("not finite", "NaN or inf")
"""How a network says that its outputs are no numbers."""


def train(run: Run, looks: Looks = NOTHING_TO_LOOK_AT) -> History:
    """Minimise the run's objective from where it stands to its end; every number that changes does so here."""
    assembly, model, collector, one_step = run.assembly, run.assembly.model, run.assembly.collector, run.one_step
    fitting = assembly.fitting
    if fitting is not None and one_step.scales_loss:
        raise SettingError(
            f"method '{assembly.method.name}': lr = None is fitted to gradients, and precision '16-mixed' scales them; "
            "use 'bf16-mixed' or '32', or give lr a number"
        )
    for callback in run.callbacks:
        callback.start(run)
    while run.epoch < run.epochs and (run.batch or not run.stopped):  # an epoch that was begun is finished
        model.train()
        for inputs, targets, weights in run.batches.weighted(run.streams.order_seed(run.epoch), run.batch):
            at = run.at
            if weights is not None:
                _require_use_of_weights(assembly)
            assembly.meet(targets, run.epoch)
            assembly.before_step(at)
            run.forget_gradients()
            before, moves = 0.0 if fitting is None else run.fold()[0], True
            try:
                for piece in run.engine.pieces(inputs, targets, at, run.batches, run.accumulate, weights, run.least):
                    terms = one_step.gradient(piece, run.streams.noise)
                    run.count(terms, piece.targets, piece.at, piece.weights)
                    run.finite_steps.met(terms)
                if fitting is not None:
                    total = run.mean_over_ranks(run.fold()[0] - before)
                    moves = fitting.observe(total, _again(run, inputs, targets, weights, at))
            except (DataError, DivergenceError) as error:
                if fitting is None or not _is_divergence(error) or not fitting.retreat():
                    # What is wrong with data is told in full by the one line; where it was found helps nobody.
                    cause = error if _is_divergence(error) else None
                    raise with_model(type(error)(f"step {at.step}: {error}"), assembly) from cause
                moves = False
            except ValueError as error:
                raise with_model(_explained(error, at.step, len(targets)), assembly) from error
            if moves:
                assembly.after_backward(run.epoch)
                run.finite_steps.before_update(run.parameters, at.step, skips=one_step.unscale())
                one_step.optimizer.step()
            if collector is not None and assembly.may_collect(at):
                collector.observe(model, at)
            run.batch, run.step = run.batch + 1, run.step + 1
            for callback in run.callbacks:
                callback.after_step(run)
            if run.halted:
                break
        run.finite_steps.settle()
        if run.halted:
            break
        held_out, shown = (run.engine.first(found) if found else found for found in _looked(run, looks))
        record = run.close_epoch(held_out, shown)
        metrics = {"total": record.total, "nll": record.nll, "kl": record.kl}
        assembly.after_epoch(metrics, record.epoch, run.epoch / run.epochs, record.scores)
        for callback in run.callbacks:
            callback.after_epoch(run, record)
        run.agree()
    for callback in run.callbacks:
        callback.end(run)
    return run.history


def _again(run: Run, inputs: Inputs, targets: Tensor, weights: Tensor | None, at: Progress) -> Callable[[], None]:
    """The gradient of the same batch at whatever weights the model then has, with the noise that it meets now.

    Random streams and buffers (BatchNorm's statistics) are afterwards as they were.
    """

    def evaluate() -> None:
        noise, model = run.streams.noise, run.assembly.model
        streams = noise.get_state(), torch.get_rng_state()
        kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
        run.forget_gradients()
        for piece in run.engine.pieces(inputs, targets, at, run.batches, run.accumulate, weights, run.least):
            run.one_step.gradient(piece, noise)
        noise.set_state(streams[0])
        torch.set_rng_state(streams[1])
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(kept[name])

    return evaluate


def _looked(run: Run, looks: Looks) -> tuple[dict[str, float], dict[str, float]]:
    try:
        return looks.at_validation(run), looks.at_test(run)
    except NetworkError as error:
        raise diverged(run, error) from error


def diverged(run: Run, error: NetworkError) -> BayeswellError:
    """What to say of a network that gives NaN or inf after training, which did not before its first step."""
    if run.step == 0 or not any(words in str(error) for words in _NOT_FINITE):
        return error
    note = f"after step {run.step - 1}: training has diverged: {error}; lower the learning rate"
    return with_model(DivergenceError(note), run.assembly)


def _is_divergence(error: BayeswellError) -> bool:
    """Whether the weights are to blame, not the data."""
    return isinstance(error, DivergenceError) or "the network's outputs" in str(error)


def _require_use_of_weights(assembly: Assembly) -> None:
    """Refuse a post-hoc part, which counts all examples alike."""
    if assembly.post_hoc is not None:
        raise CompositionError(
            f"post_hoc '{assembly.post_hoc.name}' knows no example weights; repeat the examples instead, or leave out "
            "one of the two"
        )


def _explained(error: ValueError, step: int, examples: int) -> BayeswellError:
    """The error itself, but for torch's about a BatchNorm layer that meets a single value."""
    if isinstance(error, BayeswellError) or "more than 1 value per channel" not in str(error):
        raise error
    return DataError(
        f"step {step}: BatchNorm cannot normalise a single example (a batch of {examples}, shared by ranks and cut by "
        "accumulate); use another batch_size, or drop_last=True in a DataLoader"
    )
