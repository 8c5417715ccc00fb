"""The training loop: the only place where anything is changed."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from ..errors import BayeswellError, CompositionError, DataError, DivergenceError
from ..methods import Assembly
from .records import History
from .run import Run
from .scores import Validation


def train(run: Run, validate: Validation | None = None) -> History:
    """Minimise the run's objective from where it stands to its end; every number that changes does so here."""
    assembly, model, collector, one_step = run.assembly, run.assembly.model, run.assembly.collector, run.one_step
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
            one_step.optimizer.zero_grad(set_to_none=True)
            try:
                for piece in run.engine.pieces(inputs, targets, at, run.batches, run.accumulate, weights, run.least):
                    terms = one_step.gradient(piece, run.streams.noise)
                    run.count(terms, piece.targets, piece.at, piece.weights)
            except (DataError, DivergenceError) as error:
                raise _with_state(type(error)(f"step {at.step}: {error}"), assembly) from error
            except ValueError as error:
                raise _with_state(_explained(error, at.step, len(targets)), assembly) from error
            assembly.after_backward(run.epoch)
            require_finite_gradients(assembly, run.parameters, at.step, skips=one_step.unscale())
            one_step.optimizer.step()
            if collector is not None and assembly.may_collect(at):
                collector.observe(model, at)
            run.batch, run.step = run.batch + 1, run.step + 1
            for callback in run.callbacks:
                callback.after_step(run)
            if run.halted:
                break
        if run.halted:
            break
        held_out = {} if validate is None else run.engine.first(validate(model, assembly.likelihood))
        record = run.close_epoch(held_out)
        metrics = {"total": record.total, "nll": record.nll, "kl": record.kl}
        assembly.after_epoch(metrics, run.epoch / run.epochs, record.scores)
        for callback in run.callbacks:
            callback.after_epoch(run, record)
        run.agree()
    for callback in run.callbacks:
        callback.end(run)
    return run.history


def require_finite_gradients(
    assembly: Assembly, named: Mapping[str, nn.Parameter], step: int, *, skips: bool = False
) -> None:
    """Stop before the step if a gradient is not finite, naming the parameter; else clip to the method's norm.

    With ``skips`` the step itself leaves out gradients that overflowed (the loss scaling of 16-mixed).
    """
    gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
    norm = nn.utils.get_total_norm(list(gradients.values()))
    if not bool(norm.isfinite()):
        if skips:
            return
        note = f"step {step}: the gradient of '{_culprit(assembly, gradients)}' is not finite; no step was taken"
        raise _with_state(DivergenceError(f"{note}; lower the learning rate, or set clip_norm"), assembly)
    if assembly.method.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(list(named.values()), assembly.method.clip_norm, norm)


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


def _with_state(error: BayeswellError, assembly: Assembly) -> BayeswellError:
    """The error with the model as the last good step left it: nothing that was learned is lost."""
    error.model = assembly.model
    return error


def _culprit(assembly: Assembly, gradients: Mapping[str, Tensor]) -> str:
    """The first parameter with a gradient that is not finite; in the flat vector of means, the site."""
    name = next((name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())), "all of them")
    layout = assembly.model.layout
    if name == "posterior.mean":
        bad = int((~gradients[name].isfinite()).nonzero()[0])
        return next((site for site, part in layout.slices.items() if part.start <= bad < part.stop), name)
    return name
