"""Averages over posterior draws: p(y given x) = E_q[p(y given x, w)], by Monte Carlo.

One draw is one network, evaluated on all inputs before the next is (or a few at once, where the model can run them
together in less time). So the draws depend on the seed alone and not on the batch size. A few networks, and the outputs
of a few, are held at a time: memory is bounded, however many draws there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, overload

import torch
from torch import Tensor

from ..errors import NetworkError, SettingError, require_count
from ..guards import together
from ..likelihoods import LIKELIHOODS, ClassLikelihood, RealLikelihood
from ..modes import evaluation_mode
from ..random import make_generator
from ..types import LINEARISED, MEAN, SAMPLED, Inputs, Likelihood
from .accumulate import Accumulator, Keeping, PredictionAverage, joined
from .accumulate_nll import KeptOutputs, MixtureNLLs, NLLRows, NLLSums
from .contracts import Drawable, HasMean, Linearisable, ManyAtOnce, require_tensor
from .inputs import Batch, Home, as_targets, cut_into_batches, home_of
from .linearised import LinearisedNetwork, choose_prediction
from .predictions import ClassPrediction, RealPrediction


@overload
def predict(
    model: Drawable,
    inputs: Inputs,
    likelihood: ClassLikelihood,
    *,
    draws: int = ...,
    batch_size: int | None = ...,
    generator: torch.Generator | None = ...,
    seed: int | None = ...,
    keep_samples: bool = ...,
    prediction: str | None = ...,
) -> ClassPrediction: ...


@overload
def predict(
    model: Drawable,
    inputs: Inputs,
    likelihood: RealLikelihood,
    *,
    draws: int = ...,
    batch_size: int | None = ...,
    generator: torch.Generator | None = ...,
    seed: int | None = ...,
    keep_samples: bool = ...,
    prediction: str | None = ...,
) -> RealPrediction: ...


@overload
def predict(
    model: Drawable,
    inputs: Inputs,
    likelihood: Any,
    *,
    draws: int = ...,
    batch_size: int | None = ...,
    generator: torch.Generator | None = ...,
    seed: int | None = ...,
    keep_samples: bool = ...,
    prediction: str | None = ...,
) -> ClassPrediction | RealPrediction: ...


def predict(
    model: Drawable,
    inputs: Inputs,
    likelihood: Any,
    *,
    draws: int = 100,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    keep_samples: bool = False,
    prediction: str | None = None,
) -> ClassPrediction | RealPrediction:
    """The prediction averaged over draws of the posterior, and the parts of its uncertainty.

    The likelihood alone decides which of the two records comes back; it is an object (a trained one knows what it has
    learned of the noise: ``result.likelihood``), a name or ``{"name": ..., setting: value}``. ``inputs`` is a tensor,
    a numpy array, a tuple (positional) or a mapping (keywords) of them, examples on the first axis; ``batch_size`` (all
    at once if None) bounds the memory of a pass. Randomness comes from ``generator``, from a new one with
    ``seed``, or else from torch's global one. ``keep_samples`` keeps what each draw says (memory grows with
    draws). ``prediction`` is "sampled" (each draw is a network), "linearised" (to first order around the posterior's
    mean: ``predictive.linearised``) or "mean" (the network at that mean alone, so that nothing is epistemic; of a
    mixture the average over the mean networks of its components); None leaves it to the model. The model is evaluated without gradients in
    evaluation mode and left in the mode it had. Several threads may predict at once: those with one network take turns.
    """
    _require_counts("predict", draws, batch_size)
    chosen = choose_prediction(model, prediction)
    home = home_of(model)
    source = _choose_generator(generator, seed, home)
    part = LIKELIHOODS.resolve(likelihood)
    batches = cut_into_batches(inputs, batch_size, home)
    keeping = Keeping(keep_samples, len(batches), draws, batches[-1].stop)
    averages = [PredictionAverage(part, keeping) for _ in batches]
    _run_draws(model, batches, averages, draws, source, home, chosen)
    return joined(averages)


def expected_nll(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihood: Any,
    *,
    draws: int = 100,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    prediction: str | None = None,
) -> float:
    """E_q[-log p(y given x, w)] in nats per datum: the mean of the NLL over draws.

    Times N, plus KL(q, p), this is the negative ELBO. Not the NLL of the averaged prediction, which is
    never larger (Jensen). Arguments as in ``predict``.
    """
    losses = nll_of_draws(
        model,
        inputs,
        targets,
        likelihood,
        draws=draws,
        batch_size=batch_size,
        generator=generator,
        seed=seed,
        prediction=prediction,
    )
    return float(losses.mean())


def nll_of_draws(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihood: Any,
    *,
    draws: int = 100,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    prediction: str | None = None,
) -> Tensor:
    """(D,): the mean NLL over all examples, in nats per datum, under each draw.

    What ``expected_nll`` averages; std / sqrt(D) of these is its standard error.
    """
    _require_counts("nll_of_draws", draws, batch_size)
    chosen = choose_prediction(model, prediction)
    home = home_of(model)
    source = _choose_generator(generator, seed, home)
    batches = cut_into_batches(inputs, batch_size, home)
    examples = batches[-1].stop
    all_targets = as_targets(targets, examples)
    part = LIKELIHOODS.resolve(likelihood)
    sums = [NLLSums(part, all_targets[batch.start : batch.stop]) for batch in batches]
    _run_draws(model, batches, sums, draws, source, home, chosen)
    losses = torch.stack([torch.stack(batch.sums) for batch in sums]).sum(0).cpu() / examples
    if bool(losses.isnan().any()):
        number = int(losses.isnan().nonzero()[0])
        raise NetworkError(f"the NLL of draw {number} is NaN: the network's outputs are not finite")
    return losses


def nll_matrix(
    model: Drawable, inputs: Inputs, targets: Any, likelihood: Any, *, draws: int, batch_size: int | None = None,
    seed: int = 0,
) -> Tensor:  # fmt: skip
    """(D, S): -log p(y given x, w) of every example under each draw, in nats; NaN stays.

    A model that predicts at its mean is drawn from all the same.

    Its mean is ``expected_nll``, log D - logsumexp of -nll over draws is ``predictive_nll``. Arguments as in
    ``predict``.
    """
    _require_counts("nll_matrix", draws, batch_size)
    home = home_of(model)
    batches = cut_into_batches(inputs, batch_size, home)
    all_targets = as_targets(targets, batches[-1].stop)
    part = LIKELIHOODS.resolve(likelihood)
    rows = [NLLRows(part, all_targets[batch.start : batch.stop]) for batch in batches]
    source = _choose_generator(None, seed, home)
    # At the mean there is no draw to tell of.
    chosen = choose_prediction(model, None)
    _run_draws(model, batches, rows, draws, source, home, SAMPLED if chosen == MEAN else chosen)
    return torch.cat([torch.stack(batch.rows) for batch in rows], 1)


def predictive_nll(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihood: Any,
    *,
    draws: int = 100,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    prediction: str | None = None,
) -> Tensor:
    """(S,): -log 1/D sum_d p(y given x, w_d) in nats, of every example: the NLL of the averaged prediction.

    For any likelihood, from its ``nll`` alone (of counts and heavy tails, where a Gaussian with the prediction's mean
    and variance would not do). Its mean is never above ``expected_nll`` (Jensen). Arguments as in ``predict``.
    """
    _require_counts("predictive_nll", draws, batch_size)
    part = LIKELIHOODS.resolve(likelihood)
    source = _choose_generator(generator, seed, home_of(model))
    losses = nlls_under(
        model, inputs, targets, [part], draws=draws, batch_size=batch_size, generator=source, prediction=prediction
    )[0]
    if bool(losses.isnan().any()):
        number = int(losses.isnan().nonzero()[0])
        raise NetworkError(f"the NLL of example {number} is NaN: the network's outputs are not finite")
    return losses


def nlls_under(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihoods: Sequence[Likelihood],
    *,
    draws: int,
    batch_size: int | None,
    generator: torch.Generator | None,
    prediction: str | None = None,
) -> Tensor:
    """(L, S): what ``predictive_nll`` gives, under each of several likelihoods, from the same draws."""
    chosen = choose_prediction(model, prediction)
    home = home_of(model)
    batches = cut_into_batches(inputs, batch_size, home)
    all_targets = as_targets(targets, batches[-1].stop)
    mixtures = [MixtureNLLs(likelihoods, all_targets[batch.start : batch.stop]) for batch in batches]
    _run_draws(model, batches, mixtures, draws, generator, home, chosen)
    return torch.cat([mixture.losses for mixture in mixtures], dim=1).cpu()


def outputs_of_draws(
    model: Drawable,
    inputs: Inputs,
    *,
    draws: int,
    batch_size: int | None,
    generator: torch.Generator | None,
    prediction: str | None = None,
) -> Tensor:
    """(D, S, ...): what the network says of every example under each (useful) draw. All of it is held in memory."""
    home = home_of(model)
    batches = cut_into_batches(inputs, batch_size, home)
    kept = [KeptOutputs() for _ in batches]
    _run_draws(model, batches, kept, draws, generator, home, choose_prediction(model, prediction))
    return torch.cat([torch.stack(batch.outputs) for batch in kept], dim=1)


def _run_draws(
    model: Drawable,
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    draws: int,
    generator: torch.Generator | None,
    home: Home,
    prediction: str,
) -> None:
    """Draw by draw, batch by batch; each batch has a collector of its own.

    A model may know that some draws only repeat others (a point, a small bank): those are left out.
    """
    linearised = prediction == LINEARISED
    # The model's guard is held from the first draw to the last: other threads that predict with it wait.
    with torch.no_grad(), evaluation_mode(model):
        if prediction == MEAN and isinstance(model, HasMean):
            for weights in model.mean_networks():
                _run_one_draw(model.call, weights, batches, collectors, home)
            for collector in collectors:
                collector.finish()
            return
        draws = getattr(model, "useful_draws", int)(draws)
        call = LinearisedNetwork(model).call if linearised and isinstance(model, Linearisable) else model.call
        networks = model.draws(draws, generator)
        stack = None if linearised else _find_stack(model, batches, home)
        # Groups of one size, or nearly so.
        groups = draws if stack is None else -(-draws // stack.most_draws)
        for group in range(groups):
            # In a function of its own so that no draw (or group) is held here when the next is asked for.
            if stack is None:
                _run_one_draw(call, next(networks), batches, collectors, home)
            else:
                count = draws * (group + 1) // groups - draws * group // groups
                _run_together(stack, list(islice(networks, count)), batches, collectors)
        for collector in collectors:
            collector.finish()


def _find_stack(model: Drawable, batches: Sequence[Batch], home: Home) -> ManyAtOnce | None:
    """A way to run several draws at once, if the model has one that takes these inputs."""
    stack: ManyAtOnce | None = getattr(model, "stack", _no_stack)()
    if stack is None or home.device.type != "cpu" or not all(stack.takes(batch.inputs) for batch in batches):
        return None
    return stack


def _no_stack() -> None:
    return None


def _run_together(
    stack: ManyAtOnce,
    networks: Sequence[Mapping[str, Tensor]],
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
) -> None:
    for batch, collector in zip(batches, collectors, strict=True):
        with together():
            for outputs in stack.outputs(networks, batch.inputs):
                collector.add(_require_outputs(outputs, batch.stop - batch.start))


def _run_one_draw(
    call: Callable[[Mapping[str, Tensor], Inputs], Any],
    weights: Mapping[str, Tensor],
    batches: Sequence[Batch],
    collectors: Sequence[Accumulator],
    home: Home,
) -> None:
    for batch, collector in zip(batches, collectors, strict=True):
        outputs = call(weights, batch.on(home.device))
        collector.add(_require_outputs(outputs, batch.stop - batch.start))


def _require_outputs(found: Any, examples: int) -> Tensor:
    outputs = require_tensor(found)
    if outputs.dim() == 0 or outputs.shape[0] != examples:
        raise NetworkError(
            f"the network returned shape {tuple(outputs.shape)} for {examples} examples; "
            "the first axis must count the examples"
        )
    return outputs


def _require_counts(owner: str, draws: int, batch_size: int | None) -> None:
    require_count(owner, "draws", draws)
    if batch_size is not None:
        require_count(owner, "batch_size", batch_size)


def _choose_generator(generator: torch.Generator | None, seed: int | None, home: Home) -> torch.Generator | None:
    if seed is None:
        return generator
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise SettingError(f"seed = {seed!r}; it must be a whole number")
    if generator is not None:
        raise SettingError(f"seed = {seed!r} and a generator were both given; give one of them")
    return make_generator(seed, home.device)
