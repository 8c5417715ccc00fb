from __future__ import annotations

import dataclasses
import functools
import json
import pickle

import numpy as np
import pytest
import torch

from bayeswell.core.errors import SettingError
from bayeswell.methods import (
    METHODS,
    Method,
    find_method,
    method_from_settings,
    method_names,
    method_settings,
    register_method,
)
from bayeswell.optim import Plateau
from bayeswell.posteriors import KTied, MeanField

NAMES = [
    *("auto", "map", "bbb", "sgvb", "sgvb-lrt", "flipout", "k-tied", "low-rank", "vl", "vl-lazy", "hwa", "swa"),
    *("swag-diag", "swag", "sgld", "sghmc", "psgld", "csgld", "mc-dropout", "deep-ensemble", "snapshot-ensemble"),
    *("laplace", "ivon"),
]


def test_names_are_those_of_the_papers():
    assert list(METHODS) == NAMES
    assert all(method.summary and method.paper for method in METHODS.values())


@pytest.mark.parametrize("name", method_names())
def test_settings_survive_a_file(name):
    method = find_method(name)
    assert method.name == name
    assert method_from_settings(json.loads(json.dumps(method_settings(method)))) == method
    assert pickle.loads(pickle.dumps(method)) == method


def test_sharpness_forms():
    assert find_method("f-bbb").sharpness.geometry == "identity"
    assert find_method("f-k-tied-geometry").sharpness.geometry == "mean_over_std"
    assert (
        dataclasses.replace(find_method("f-swag"), name="swag", sharpness=None).posterior == METHODS["swag"].posterior
    )
    with pytest.raises(SettingError, match="unknown method"):
        find_method("f-map-geometry")
    with pytest.raises(SettingError, match="'sgvb-lrt'"):
        find_method("sgvb-ltr")
    with pytest.raises(SettingError, match="name or a Method"):
        find_method(3)


def test_parts_are_made_once():
    method = Method("own", posterior={"name": "k_tied", "rank": 3})
    assert method.posterior == KTied(rank=3)
    assert Method("own", posterior=KTied(rank=3)) == method
    assert Method("own").posterior == MeanField()


def test_numpy_numbers_are_numbers():
    method = Method("own", members=np.int64(3), std_lr=np.float32(0.5), temperature=np.float64(0.25))
    assert (method.members, method.std_lr, method.temperature) == (3, 0.5, 0.25)
    assert all(type(value) in (int, float) for value in (method.members, method.std_lr, method.temperature))
    json.dumps(method_settings(method))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 0}, "`members` must be an integer of at least 1, got 0"),
        ({"members": True}, "members"),
        ({"members": None}, "members"),
        ({"lr": True}, "`lr` must be a finite number"),
        ({"std_multiplier": -1}, "`std_multiplier` must be above 0"),
        ({"temperature": "warm"}, "`temperature` must be a number or 'auto', got 'warm'"),
        ({"temperature": -0.5}, "`temperature`"),
        ({"budget": "much"}, "`budget` must be a number or 'auto'"),
        ({"dropout": 1.5}, "`dropout`"),
        ({"dropout": "mine"}, "'own'"),
        ({"prediction": "sample"}, "did you mean 'sampled'"),
        ({"init": "network_"}, "did you mean 'network'"),
        ({"gradient_scale": "1/n"}, "gradient_scale"),
        ({"prior_weight": 0.5}, "needs a number as `temperature`"),
        ({"posterior": None}, "posterior = None"),
        ({"optimizer": 0.1}, "optimizer = 0.1"),
        ({"optimizer": "adm"}, "did you mean 'adam'"),
        ({"posterior": "mean-feild"}, "did you mean"),
        ({"sharpness": {"rh": 0.1}}, "no setting 'rh'; did you mean 'rho'"),
        ({"sharpness": 0.1}, "give a Sharpness or a mapping"),
        ({"plateau": "nll"}, "must map groups to metrics"),
        ({"plateau": {"means": {"patience": 1, "mtric": "nll"}}}, "no setting 'mtric'"),
        ({"lerning_rate": 0.1}, "no setting 'lerning_rate'"),
        ({"posterior": {"rnk": 3}}, "no setting 'rnk'"),
    ],
)
def test_mistakes_are_one_line(settings, message):
    with pytest.raises(SettingError, match=message) as error:
        METHODS["k-tied"].changed(**settings)
    assert "\n" not in str(error.value)


def test_changed_settings_of_the_part_that_is_there():
    assert METHODS["k-tied"].changed(posterior={"rank": 5}).posterior == KTied(rank=5)
    assert METHODS["map"].changed(lr=1e-4).optimizer.lr == 1e-4
    assert METHODS["map"].changed(optimizer={"name": "sgd"}, lr=0.3).optimizer.lr == 0.3
    sharp = METHODS["bbb"].changed(sharpness={"rho": 0.1}).changed(sharpness={"geometry": "mean_over_std"})
    assert (sharp.sharpness.rho, sharp.sharpness.geometry) == (0.1, "mean_over_std")
    plateau = METHODS["bbb"].changed(plateau={"means": "nll", "stds": {"metric": "kl", "patience": 3}}).plateau
    assert plateau == {"means": Plateau("nll"), "stds": Plateau("kl", patience=3)}


def test_members_replace_the_budget():
    assert METHODS["auto"].changed(members=3).budget is None
    assert METHODS["auto"].changed(lr=0.1).budget == "auto"


ADAM, SGLD, IVON = METHODS["map"].changed(lr=0.007), METHODS["sgld"].changed(lr=0.8), METHODS["ivon"].changed(lr=0.9)
SGD = METHODS["swag"].changed(optimizer={"name": "sgd", "lr": 0.3})


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        (ADAM, {"optimizer": "adam"}, 0.007),
        (ADAM, {"optimizer": "amsgrad"}, 0.007),
        (ADAM, {"optimizer": {"name": "adamw", "weight_decay": 0.1}}, 0.007),
        (ADAM, {"optimizer": {"name": "radam", "lr": 0.02}}, 0.02),
        (ADAM, {"optimizer": "adam", "lr": 0.05}, 0.05),
        (ADAM, {"optimizer": "sgd"}, METHODS["map"].changed(optimizer="sgd").optimizer.lr),
        (SGD, {"optimizer": "adam"}, None),
        (SGD, {"optimizer": {"name": "sgd", "momentum": 0.5}}, 0.3),
        (METHODS["map"], {"optimizer": "amsgrad"}, None),
        (SGLD, {"optimizer": "adam"}, None),
        (SGLD, {"optimizer": "sgld"}, 0.8),
        (IVON, {"optimizer": "adam"}, None),
        (IVON, {"optimizer": {"name": "ivon", "beta1": 0.8}}, 0.9),
    ],
)
def test_lr_is_kept_where_it_means_the_same(method, settings, expected):
    assert method.changed(**settings).optimizer.lr == expected


def test_torch_optimizers_are_parts():
    method = METHODS["map"].changed(optimizer=functools.partial(torch.optim.NAdam, lr=0.01, momentum_decay=5e-3))
    assert method.optimizer.lr == 0.01
    assert method.changed(lr=0.5).optimizer.settings == {"momentum_decay": 5e-3}
    assert method_from_settings(json.loads(json.dumps(method_settings(method)))) == method


def test_functions_cannot_be_written():
    with pytest.raises(SettingError, match="cannot be written"):
        method_settings(METHODS["bbb"].changed(prior=lambda site: "normal"))


def test_cost_counts_members_and_passes():
    assert METHODS["deep-ensemble"].cost == 15
    assert find_method("f-bbb").cost == 6
    assert find_method("f-bbb").changed(sharpness={"rho": 0.0}).cost == 3


def test_registered_methods_are_found():
    method = Method("mine", posterior="delta")
    try:
        assert register_method(method) is method
        assert find_method("f-mine").posterior == method.posterior
        with pytest.raises(SettingError, match="exists already"):
            register_method(method.changed(members=2))
    finally:
        METHODS.pop("mine", None)
