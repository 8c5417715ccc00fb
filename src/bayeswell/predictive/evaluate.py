"""Averages over posterior draws: p(y given x) = E_q[p(y given x, w)], by Monte Carlo.

One draw is one network, evaluated on all inputs before the next is (or a few at once, where the model can run them
together in less time). So the draws depend on the seed alone and not on the batch size. A few networks, and the outputs
of a few, are held at a time: memory is bounded, however many draws there are. Linearised predictions that ask for each
example by itself draw its outputs and not networks (``function_space``), with the same noise for all examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from ..errors import AbsentError, NetworkError, SettingError, require_count
from ..likelihoods import LIKELIHOODS, ClassLikelihood, RealLikelihood
from ..outputs import Output, require_hook
from ..random import make_generator
from ..types import MEAN, SAMPLED, Inputs, Likelihood
from .accumulate import Keeping, PredictionAverage, joined
from .accumulate_nll import KeptOutputs, MixtureNLLs, NLLRows, NLLSums, Together
from .contracts import Drawable
from .inputs import Home, as_targets, cut_into_batches, home_of, with_targets
from .linearised import choose_prediction
from .predictions import ClassPrediction, RealPrediction
from .running import run_draws


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
    output: Output | None = ...,
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
    output: Output | None = ...,
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
    output: Output | None = ...,
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
    output: Output | None = None,
) -> ClassPrediction | RealPrediction:
    """The prediction averaged over draws of the posterior, and the parts of its uncertainty.

    The likelihood alone decides which of the two records comes back; it is an object (a trained one knows what it has
    learned of the noise: ``result.likelihood``), a name or ``{"name": ..., setting: value}``. ``inputs`` is a tensor,
    a numpy array, a tuple (positional) or a mapping (keywords) of them, examples on the first axis; or a DataLoader or
    data set, whose predictions come in its order (one that shuffles is refused), and whose targets are left out.
    ``batch_size`` (all at once if None) bounds the memory of a pass. ``output`` is a function of what the network
    returns that gives the tensor, in place of the model's own. Randomness comes from ``generator``, from a new one with
    ``seed``, or else from torch's global one. ``keep_samples`` keeps what each draw says (memory grows with
    draws). ``prediction`` is "sampled" (each draw is a network), "linearised" (to first order around the posterior's
    mean: ``predictive.linearised``) or "mean" (the network at that mean alone, so that nothing is epistemic; of a
    mixture the average over the mean networks of its components); None leaves it to the model. The model is
    evaluated without gradients in evaluation mode and left in the mode it had. Several threads may predict at once:
    those with one network take turns.
    """
    _require_counts("predict", draws, batch_size)
    model = _hooked(model, output)
    chosen = choose_prediction(model, prediction)
    home = home_of(model)
    source = _choose_generator(generator, seed, home)
    part = LIKELIHOODS.resolve(likelihood)
    batches = cut_into_batches(inputs, batch_size, home, model)
    keeping = Keeping(keep_samples, len(batches), draws, batches[-1].stop)
    averages = [PredictionAverage(part, keeping) for _ in batches]
    run_draws(model, batches, averages, draws, source, home, chosen)
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
    never larger (Jensen). Arguments as in ``predict``; ``targets`` None are those of a loader or data set, a text is
    the name of their column.
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
    inputs, targets = with_targets(model, inputs, targets)
    batches = cut_into_batches(inputs, batch_size, home, model)
    examples = batches[-1].stop
    all_targets = as_targets(targets, examples)
    part = LIKELIHOODS.resolve(likelihood)
    sums = [NLLSums(part, all_targets[batch.start : batch.stop]) for batch in batches]
    run_draws(model, batches, sums, draws, source, home, chosen)
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
    inputs, targets = with_targets(model, inputs, targets)
    batches = cut_into_batches(inputs, batch_size, home, model)
    all_targets = as_targets(targets, batches[-1].stop)
    part = LIKELIHOODS.resolve(likelihood)
    rows = [NLLRows(part, all_targets[batch.start : batch.stop]) for batch in batches]
    source = _choose_generator(None, seed, home)
    # At the mean there is no draw to tell of.
    chosen = choose_prediction(model, None)
    run_draws(model, batches, rows, draws, source, home, SAMPLED if chosen == MEAN else chosen)
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
    _require_losses(losses)
    return losses


def _require_losses(losses: Tensor) -> None:
    if bool(losses.isnan().any()):
        number = int(losses.isnan().nonzero()[0])
        raise NetworkError(f"the NLL of example {number} is NaN: the network's outputs are not finite")


@dataclass(frozen=True, eq=False)
class Scored:
    """A prediction, None of a likelihood that does not predict, and losses (S,) in nats from the same draws.

    ``losses`` are what ``predictive_nll`` gives, ``expected_losses`` the mean NLL of single draws.
    """

    prediction: ClassPrediction | RealPrediction | None
    losses: Tensor
    expected_losses: Tensor
    draws: int


def predict_and_score(
    model: Drawable,
    inputs: Inputs,
    targets: Any,
    likelihood: Any,
    *,
    draws: int,
    batch_size: int | None = None,
    seed: int = 0,
    keep_samples: bool = False,
    prediction: str | None = None,
) -> Scored:
    """``predict`` and ``predictive_nll`` at once: every network is run once. Arguments as in ``predict``."""
    _require_counts("evaluate", draws, batch_size)
    chosen = choose_prediction(model, prediction)
    home = home_of(model)
    part = LIKELIHOODS.resolve(likelihood)
    batches = cut_into_batches(inputs, batch_size, home, model)
    all_targets = as_targets(targets, batches[-1].stop)
    keeping = Keeping(keep_samples, len(batches), draws, batches[-1].stop)

    def run(predicts: bool) -> Scored:
        mixtures = [MixtureNLLs([part], all_targets[batch.start : batch.stop]) for batch in batches]
        averages = [PredictionAverage(part, keeping) for _ in batches] if predicts else []
        both = [Together(*pair) for pair in zip(averages, mixtures, strict=True)] if predicts else mixtures
        run_draws(model, batches, both, draws, _choose_generator(None, seed, home), home, chosen)
        losses = torch.cat([mixture.losses for mixture in mixtures], dim=1)[0].cpu()
        expected = torch.cat([mixture.expected for mixture in mixtures], dim=1)[0].cpu()
        _require_losses(losses)
        return Scored(joined(averages) if predicts else None, losses, expected, mixtures[0].draws)

    try:
        return run(predicts=True)
    except AbsentError:  # it does not predict, which is known before or with the first draw
        return run(predicts=False)


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
    inputs, targets = with_targets(model, inputs, targets)
    batches = cut_into_batches(inputs, batch_size, home, model)
    all_targets = as_targets(targets, batches[-1].stop)
    mixtures = [MixtureNLLs(likelihoods, all_targets[batch.start : batch.stop]) for batch in batches]
    run_draws(model, batches, mixtures, draws, generator, home, chosen)
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
    batches = cut_into_batches(inputs, batch_size, home, model)
    kept = [KeptOutputs() for _ in batches]
    run_draws(model, batches, kept, draws, generator, home, choose_prediction(model, prediction))
    return torch.cat([torch.stack(batch.outputs) for batch in kept], dim=1)


def _hooked(model: Drawable, output: Output | None) -> Drawable:
    require_hook(output)
    if output is None:
        return model
    if not hasattr(model, "with_output"):
        raise SettingError(f"output has no use here: a {type(model).__name__} has no `with_output`")
    hooked: Drawable = model.with_output(output)
    return hooked


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
