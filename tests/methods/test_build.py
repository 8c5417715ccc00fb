from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from torch import nn

from bayeswell.core.errors import CompositionError, SettingError
from bayeswell.core.protocols import BatchContext
from bayeswell.core.random import make_generator
from bayeswell.io import pack_state, unpack_state
from bayeswell.methods import METHODS, build, find_method, method_names
from bayeswell.nn import bayesian

pytestmark = pytest.mark.filterwarnings("ignore::bayeswell.core.errors.BayeswellWarning")

EXAMPLES, BATCHES, EPOCHS = 24, 3, 8
GENERATOR = torch.Generator().manual_seed(1)
INPUTS = torch.randn(EXAMPLES, 3, generator=GENERATOR)
LABELS = (INPUTS[:, 0] > 0).long()
VALUES = INPUTS @ torch.tensor([[1.0], [-0.7], [0.4]]) + 0.1 * torch.randn(EXAMPLES, 1, generator=GENERATOR)


def net(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def built(method, network=None, likelihood="categorical", seed=0, **settings):
    method = find_method(method).changed(**settings)
    outputs = 2 if likelihood == "categorical" else 1
    return build(
        method,
        net(outputs) if network is None else network,
        likelihood,
        dataset_size=EXAMPLES,
        batches=BATCHES,
        epochs=EPOCHS,
        generator=make_generator(seed),
    )


def train(state, steps, targets=LABELS):
    """The loop of the docstring of ``TrainState``."""
    nll = []
    state.model.train()
    for _ in range(steps):
        rows = slice(state.progress.batch * 8, state.progress.batch * 8 + 8)
        state.before_step(targets[rows])
        batch = BatchContext(
            INPUTS[rows], targets[rows], state.likelihood, progress=state.progress, generator=state.generator
        )

        def gradient(batch=batch):
            state.optimizer.zero_grad()
            terms = state.objective.step(state.model, batch)
            terms.total.backward()
            return terms

        terms = gradient()
        nll.append(float(terms.nll))
        if state.auto_tuned is None or state.auto_tuned.before_step(float(terms.total.detach()), gradient):
            state.after_backward()
            state.optimizer.step()
        if state.averager is not None and state.may_sample(state.progress):
            state.averager.after_step(state.model, state.progress)
        state.advance()
        if state.progress.batch == 0:
            state.after_epoch({"total": nll[-1], "nll": nll[-1], "kl": 1.0})
    return nll


@pytest.mark.parametrize("name", method_names())
def test_named_methods_train(name):
    state = built(name)
    before = copy.deepcopy(state.model.state_dict())
    losses = train(state, BATCHES * EPOCHS)
    assert all(math.isfinite(loss) for loss in losses)
    assert any(not torch.equal(before[key], value) for key, value in state.model.state_dict().items())
    if state.averager is not None and name != "csgld":
        assert state.averager.finalize(state.model) is not None


@pytest.mark.parametrize(
    "name", ["auto", "bbb", "f-k-tied", "hwa", "swag", "sghmc", "csgld", "ivon", "mc-dropout", "low-rank"]
)
def test_state_resumes_bit_for_bit(name):
    first = built(name)
    train(first, 5)
    tensors, document = pack_state(first.state_dict())
    dropout = torch.get_rng_state()
    saved = unpack_state({key: value.clone() for key, value in tensors.items()}, json.loads(json.dumps(document)))
    expected = train(first, 5)
    second = built(name, seed=9)
    second.load_state_dict(saved)
    assert second.progress.step == 5
    torch.set_rng_state(dropout)
    assert train(second, 5) == expected
    for key, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key])
    assert first.temperature == second.temperature


def test_given_objects_do_not_change():
    from bayeswell.likelihoods import Gaussian

    network, likelihood = net(1), Gaussian()
    before = copy.deepcopy(network.state_dict()), copy.deepcopy(likelihood.state_dict())
    train(built("bbb", network, likelihood), 6, VALUES)
    for old, new in zip(before, (network.state_dict(), likelihood.state_dict()), strict=True):
        assert all(torch.equal(old[key], new[key]) for key in old)


def test_prior_stays_as_it_is_given():
    for settings in ({}, {"temperature": 0.01, "prior_weight": 0.5}):
        state = built("bbb", **settings)
        before = state.model.prior.std().clone()
        train(state, BATCHES * EPOCHS)
        assert torch.equal(state.model.prior.std(), before)


@pytest.mark.parametrize("name", ["bbb", "k-tied", "flipout"])
@pytest.mark.parametrize("temperature", [1e-3, 0.037, 0.5])
def test_prior_weight_is_the_pull_on_the_means_at_every_temperature(name, temperature):
    """T KL(q || p') has the gradient prior_weight * mean / s^2 in the means."""
    state = built(name)
    state.elbo.temperature = temperature
    posterior, prior = state.model.posterior, state.model.prior
    _, kl = posterior.rsample_and_kl(None, state.elbo.prior_for(state.model))
    (gradient,) = torch.autograd.grad(temperature * kl, posterior.mean)
    expected = state.elbo.prior_weight * posterior.mean.detach() / prior.std().square()
    torch.testing.assert_close(gradient, expected, rtol=2e-5, atol=1e-6)


def test_ivon_keeps_the_prior_weight_when_the_temperature_changes():
    state = built("ivon")
    decay = {name: value["decay"].clone() for name, value in state.optimizer.state.items() if "decay" in value}
    ess = state.optimizer.param_groups[0]["ess"]
    assert ess == pytest.approx(EXAMPLES / state.temperature)
    expected = 0.1 / (EXAMPLES * state.model.prior.std().square())
    torch.testing.assert_close(next(iter(decay.values())), expected, rtol=1e-5, atol=0)
    train(state, BATCHES * EPOCHS)
    assert state.optimizer.param_groups[0]["ess"] == pytest.approx(EXAMPLES / state.temperature)
    assert state.temperature != pytest.approx(1e-3)


def test_sampler_temperature_follows():
    state = built("sghmc", temperature="auto")
    train(state, BATCHES * EPOCHS)
    assert state.temperature != pytest.approx(1e-3)
    assert state.optimizer.param_groups[0]["temperature"] == pytest.approx(state.temperature)


@pytest.mark.parametrize(
    ("name", "settings", "temperature", "prior_weight"),
    [
        ("map", {}, 0.1, None),
        ("bbb", {}, 1e-3, 0.1),
        ("bbb", {"temperature": 1.0}, 1.0, None),
        ("bbb", {"temperature": 0.3, "prior_weight": 0.2}, 0.3, 0.2),
        ("laplace", {}, 1e-3, 0.1),
        ("mc-dropout", {}, 1e-3, 0.1),
        ("bbb", {"prior": "scale_mixture", "divergence": "monte_carlo"}, 1e-3, None),
    ],
)
def test_first_temperature(name, settings, temperature, prior_weight):
    state = built(name, **settings)
    assert (state.temperature, state.elbo.prior_weight) == (temperature, prior_weight)
    assert (state.auto_temperature is not None) == ("temperature" not in settings and name != "map")


def test_learning_rates_of_groups():
    rates = lambda state: {group["name"]: group["lr"] for group in state.optimizer.param_groups}  # noqa: E731
    state = built("bbb", likelihood="gaussian", lr=0.01)
    assert rates(state) == pytest.approx({"means": 0.01, "stds": 0.1, "noise": 0.1})
    assert rates(built("bbb", lr=0.01, std_lr=0.003)) == pytest.approx({"means": 0.01, "stds": 0.003})
    assert rates(built("bbb", lr=0.01, std_optimizer={"name": "sgd", "lr": 0.5})) == {"means": 0.01, "stds": 0.5}
    state = built(
        "bbb", lr=0.01, schedule={"name": "linear", "begin": 0.0, "end": 1.0, "final": 0.0}, std_schedule="constant"
    )
    train(state, 12)
    state.before_step()
    assert rates(state) == pytest.approx({"means": 0.005, "stds": 0.1})


def test_lr_fits_the_length_of_the_run():
    def rate(epochs, **settings):
        method = METHODS["bbb"].changed(**settings)
        options = {"dataset_size": 24, "batches": 100, "epochs": epochs, "generator": make_generator(0)}
        return build(method, net(), "categorical", **options).part.lr

    assert rate(64) == pytest.approx(0.005)
    assert rate(64, temperature=1.0) == pytest.approx(0.4 / math.sqrt(6400 * 4 / 9), rel=1e-3)
    assert rate(64, lr=0.02) == 0.02


def test_plateau_lowers_the_rate_of_its_group():
    state = built("bbb", lr=0.01, schedule="constant", plateau={"stds": {"metric": "kl", "patience": 1, "factor": 0.5}})
    train(state, BATCHES * 4)
    state.before_step()
    assert {group["name"]: group["lr"] for group in state.optimizer.param_groups} == {"means": 0.01, "stds": 0.05}
    with pytest.raises(SettingError, match="no parameter group 'noise'"):
        built("bbb", plateau={"noise": "nll"})


def test_alternating_trains_means_and_stds_in_turn():
    state = built("bbb", alternate=1)
    posterior = state.model.posterior
    for moving, resting in ((posterior.mean, posterior.log_std), (posterior.log_std, posterior.mean)):
        before = moving.detach().clone(), resting.detach().clone()
        train(state, BATCHES)
        assert not torch.equal(moving, before[0])
        assert torch.equal(resting, before[1])


def test_gradients_are_scaled_and_clipped():
    def gradients(**settings):
        state = built("map", **settings)
        train(state, 1)
        return torch.cat([p.grad.flatten() for group in state.optimizer.param_groups for p in group["params"]])

    plain = gradients()
    torch.testing.assert_close(gradients(gradient_scale="1/batches"), plain / BATCHES)
    torch.testing.assert_close(gradients(clip_norm=1e-3).norm().item(), 1e-3, rtol=1e-4, atol=0)


def test_further_members_start_elsewhere():
    def mean(member, **settings):
        method = METHODS["deep-ensemble"].changed(**settings)
        options = {"dataset_size": 24, "batches": 3, "epochs": 1, "generator": make_generator(5)}
        return build(method, net(), "categorical", member=member, **options).model.posterior.mean.detach()

    given = nn.utils.parameters_to_vector(net().parameters()).detach()
    assert torch.equal(mean(0), given)
    assert not torch.equal(mean(1), given)
    assert torch.equal(mean(1), mean(1))
    assert torch.equal(mean(1, init="network"), given)
    assert not torch.equal(mean(0, init="reinit"), given)


def test_training_continues_from_a_trained_model():
    model = bayesian(net(), "k_tied", generator=make_generator(0))
    same = built("k-tied", model)
    assert torch.equal(same.model.posterior.std(), model.posterior.std())
    assert same.model.posterior is not model.posterior
    other = built("bbb", model, prior="posterior")
    assert torch.equal(other.model.posterior.mean, model.posterior.mean)
    assert torch.equal(other.model.prior.center(), model.posterior.mean)
    torch.testing.assert_close(other.model.prior.std(), model.posterior.std())


@pytest.mark.parametrize(
    ("name", "settings", "names"),
    [
        ("sgld", {"posterior": "mean_field"}, ("sgld", "mean_field", "delta")),
        ("sgld", {"averaging": None}, ("sgld", "bank")),
        ("ivon", {"posterior": "k_tied"}, ("ivon", "k_tied", "mean_field")),
        ("ivon", {"estimator": "local_reparameterization"}, ("ivon", "local_reparameterization", "weight_sampling")),
        ("ivon", {"std_lr": 0.1}, ("ivon", "std_lr")),
        ("ivon", {"gradient_scale": "1/batches"}, ("ivon", "gradient_scale")),
        ("low-rank", {"estimator": "flipout"}, ("flipout", "low_rank", "weight_sampling")),
        ("map", {"estimator": "local_reparameterization"}, ("local_reparameterization", "delta", "mean_field")),
        ("low-rank", {"sharpness": {"geometry": "mean_over_std"}}, ("mean_over_std", "low_rank", "identity")),
        ("laplace", {"averaging": "swa"}, ("swa", "laplace")),
        ("laplace", {"posterior": "mean_field"}, ("laplace", "mean_field", "delta")),
        ("bbb", {"averaging": "bank"}, ("bank", "mean_field", "delta")),
        ("map", {"alternate": 1}, ("alternate", "delta", "mean_field")),
        ("bbb", {"std_optimizer": "sgld"}, ("std_optimizer", "sgld", "adam")),
        ("sghmc", {"prediction": "mean"}, ("mean", "bank", "sampled")),
        ("deep-ensemble", {"prediction": "mean"}, ("mean", "members", "sampled")),
        ("vl", {"members": 2}, ("linearized", "members", "sampled")),
        ("snapshot-ensemble", {"schedule": {"cycles": 3}}, ("cycle_ends", "cyclic", "same number")),
        ("bbb", {"divergence": "monte_carlo", "estimator": "local_reparameterization"}, ("monte_carlo", "local_rep")),
        ("map", {"divergence": "monte_carlo"}, ("monte_carlo", "delta")),
        ("bbb", {"prior": "scale_mixture", "divergence": "analytic"}, ("analytic", "monte_carlo")),
        ("bbb", {"prior": "scale_mixture", "temperature": 0.1, "prior_weight": 1.0}, ("prior_weight", "normal")),
        ("sgld", {"std_lr": 0.1}, ("std_lr", "sgld", "lr")),
    ],
)
def test_parts_that_cannot_work_together_are_named(name, settings, names):
    with pytest.raises(CompositionError) as error:
        built(name, **settings)
    message = str(error.value)
    assert all(word in message for word in names), message
    assert "\n" not in message


def test_likelihood_without_curvature_is_named():
    with pytest.raises(CompositionError, match=r"likelihood .* has no `curvature_root`.*laplace"):
        built("laplace", net(1), lambda outputs: torch.distributions.Laplace(outputs, 1.0))


def test_unused_std_settings_are_refused():
    with pytest.raises(SettingError, match="`std_lr` has no use"):
        built("map", std_lr=0.1)
