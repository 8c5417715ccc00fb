"""Another stepper by name: the method's rate where it means the same, else one that does."""

from __future__ import annotations

from typing import Any

import pytest

from bayeswell.methods import Method, find_method, resolve


def _rate(method: Method, **settings: Any) -> float | None:
    return resolve(method.changed(**settings)).stepper.lr


ADAM = find_method("map").changed(lr=0.007)
SGD = find_method("swag").changed(stepper={"name": "sgd", "lr": 0.3})
SGLD = find_method("sgld").changed(lr=0.8)
IVON = find_method("ivon").changed(lr=0.9)
FITS_THE_RUN = None


@pytest.mark.parametrize(
    ("method", "settings", "expected"),
    [
        (ADAM, {"stepper": "adam"}, 0.007),
        (ADAM, {"stepper": "amsgrad"}, 0.007),
        (ADAM, {"stepper": {"name": "adamw", "weight_decay": 0.1}}, 0.007),
        (ADAM, {"stepper": {"name": "radam", "lr": 0.02}}, 0.02),
        (ADAM, {"stepper": "adam", "lr": 0.05}, 0.05),
        (ADAM, {"stepper": "sgd"}, 0.01),  # SGD's own: Adam's rate says nothing about it
        (SGD, {"stepper": "adam"}, FITS_THE_RUN),
        (SGD, {"stepper": "sgd"}, 0.3),
        (SGD, {"stepper": {"name": "sgd", "momentum": 0.5}}, 0.3),
        (find_method("map"), {"stepper": "amsgrad"}, FITS_THE_RUN),
        (SGLD, {"stepper": "adam"}, FITS_THE_RUN),
        (SGLD, {"stepper": "sgld"}, 0.8),
        (IVON, {"stepper": "adam"}, FITS_THE_RUN),
        (IVON, {"stepper": {"name": "ivon", "beta1": 0.8}}, 0.9),
    ],
)
def test_the_rate(method: Method, settings: dict[str, Any], expected: float | None) -> None:
    assert _rate(method, **settings) == expected


def test_other_settings_of_the_stepper_are_those_that_were_asked_for() -> None:
    stepper: Any = resolve(ADAM.changed(stepper={"name": "adamw", "weight_decay": 0.1})).stepper
    assert (stepper.name, stepper.weight_decay) == ("adamw", 0.1)
