"""Everything that the five papers describe, with its public name and the file that tests it.

The list follows the plan of the package: no item may disappear. A test imports each name and checks that the file
mentions the item.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ITEMS = [
    # posteriors
    ("point estimate", "posteriors.Delta", "posteriors/test_families.py", "delta"),
    ("mean-field, softplus and log forms", "posteriors.MeanField", "posteriors/test_families.py", "mean_field"),
    ("one std per layer or network", "posteriors.SharedStd", "posteriors/test_families.py", "shared_std"),
    ("k-tied normal", "posteriors.KTied", "posteriors/test_k_tied.py", "KTied"),
    ("low-rank", "posteriors.LowRank", "posteriors/test_families.py", "low_rank"),
    ("matrix normal", "posteriors.MatrixNormal", "posteriors/test_families.py", "matrix_normal"),
    ("full covariance", "posteriors.Full", "posteriors/test_families.py", "full"),
    ("sets of networks", "posteriors.Empirical", "posteriors/test_sets_of_networks.py", "Empirical"),
    ("mixtures", "posteriors.Mixture", "posteriors/test_sets_of_networks.py", "Mixture"),
    # priors
    ("normal prior", "priors.Normal", "priors/test_priors.py", "Normal"),
    ("Kaiming prior", "priors.Kaiming", "priors/test_priors.py", "Kaiming"),
    ("Xavier prior", "priors.Xavier", "priors/test_priors.py", "xavier"),
    ("scale mixture prior", "priors.ScaleMixture", "priors/test_priors.py", "ScaleMixture"),
    ("Laplace prior", "priors.LaplacePrior", "priors/test_priors.py", "LaplacePrior"),
    ("prior by pattern, around given weights", "priors.build_prior", "priors/test_priors.py", "center"),
    ("posterior as prior", "priors.PosteriorPrior", "priors/test_priors.py", "PosteriorPrior"),
    ("starts: reinitialized, uniform with the prior's std", "nn.reinitialized", "nn/test_init.py", "prior"),
    # estimators
    ("weight sampling, several and antithetic draws", "estimators.WeightSampling", "objectives/test_elbo.py", "draws"),
    (
        "local reparameterization",
        "estimators.LocalReparameterization",
        "estimators/test_by_layer.py",
        "LocalReparameterization",
    ),
    ("flipout", "estimators.Flipout", "estimators/test_by_layer.py", "Flipout"),
    (
        "variational Laplace, Fisher and Hessian, cheaper form",
        "estimators.VariationalLaplace",
        "estimators/test_variational_laplace.py",
        "every",
    ),
    ("score function", "estimators.ScoreSampling", "estimators/test_score.py", "ScoreSampling"),
    # divergences, KL weights
    ("closed form of the KL", "objectives.Analytic", "objectives/test_divergences.py", "nalytic"),
    ("total derivative", "objectives.MonteCarlo", "objectives/test_divergences.py", "monte_carlo"),
    ("path derivative", "objectives.PathDerivative", "objectives/test_divergences.py", "path_derivative"),
    ("score derivative", "objectives.ScoreFunction", "objectives/test_divergences.py", "score_function"),
    ("uniform KL weights", "objectives.Uniform", "objectives/test_kl_weights.py", "Uniform"),
    ("geometric KL weights", "objectives.Geometric", "objectives/test_kl_weights.py", "Geometric"),
    ("annealed KL weights", "objectives.LinearAnneal", "objectives/test_kl_weights.py", "LinearAnneal"),
    ("temperature", "objectives.ELBO", "objectives/test_elbo.py", "temperature"),
    # optimizers
    ("SGD with momentum", "optim.SGD", "optim/test_torch_optimizers.py", "SGD"),
    ("Adam", "optim.Adam", "optim/test_torch_optimizers.py", "Adam"),
    ("AMSGrad", "optim.AMSGrad", "optim/test_torch_optimizers.py", "AMSGrad"),
    ("RAdam", "optim.RAdam", "optim/test_torch_optimizers.py", "RAdam"),
    ("AdaBound", "optim.AdaBound", "optim/test_adabound.py", "AdaBound"),
    ("AMSBound", "optim.AMSBound", "optim/test_adabound.py", "AMSBound"),
    ("YellowFin", "optim.YellowFin", "optim/test_yellowfin.py", "YellowFin"),
    ("IVON", "optim.IVON", "optim/test_ivon.py", "IVON"),
    ("any optimizer of torch", "optim.TorchOptimizer", "optim/test_torch_optimizers.py", "TorchOptimizer"),
    ("SGLD", "sampling.SGLD", "sampling/test_samplers.py", "SGLD"),
    ("SGHMC", "sampling.SGHMC", "sampling/test_samplers.py", "SGHMC"),
    ("pSGLD", "sampling.PSGLD", "sampling/test_samplers.py", "PSGLD"),
    ("cyclical SGLD", "sampling.CyclicalSGLD", "sampling/test_samplers.py", "CyclicalSGLD"),
    ("separate rates for means, stds and noise", "optim.parameter_groups", "optim/test_groups.py", "std"),
    ("constant schedule", "optim.Constant", "optim/test_schedules.py", "Constant"),
    ("step schedule", "optim.StepDecay", "optim/test_schedules.py", "StepDecay"),
    ("linear schedule, SWAG's constant-linear-constant", "optim.Linear", "optim/test_schedules.py", "Linear"),
    ("cosine schedule", "optim.Cosine", "optim/test_schedules.py", "Cosine"),
    ("cyclic schedule", "optim.Cyclic", "optim/test_schedules.py", "Cyclic"),
    ("warm-up", "optim.WarmUp", "optim/test_schedules.py", "WarmUp"),
    ("plateau by group", "optim.Plateau", "optim/test_schedules.py", "Plateau"),
    ("alternating means and stds", "optim.Alternating", "optim/test_groups.py", "lternat"),
    ("gradients over 1/M", "optim.gradient_factor", "optim/test_groups.py", "gradient_factor"),
    ("learning-rate range test", "training.rate_range", "training/test_rate_range.py", "rate_range"),
    # averaging, sharpness, others
    ("SWA", "averaging.SWA", "averaging/test_averages.py", "SWA"),
    ("EMA", "averaging.EMA", "averaging/test_averages.py", "EMA"),
    ("SWAG diagonal", "averaging.SWAGDiagonal", "averaging/test_averages.py", "SWAGDiagonal"),
    ("SWAG low-rank", "averaging.SWAG", "averaging/test_averages.py", "SWAG"),
    ("HWA, readings of eq. (4), eq. (5), feedback", "averaging.HWA", "averaging/test_hwa.py", "feedback"),
    ("snapshots at the ends of cycles", "averaging.CycleEnds", "averaging/test_bank.py", "CycleEnds"),
    ("draws of samplers", "averaging.Bank", "averaging/test_bank.py", "Bank"),
    ("sharpness", "objectives.Sharpness", "objectives/test_sharpness.py", "mean_over_std"),
    ("MC dropout", "nn.drawn_dropout", "nn/test_dropout.py", "drawn_dropout"),
    ("deep ensembles", "training.fit", "training/test_fit.py", "members"),
    ("Laplace: diagonal, Kronecker, full, last layer", "laplace.Laplace", "laplace/test_part.py", "kronecker"),
    ("sampled predictions", "prediction.outputs", "prediction/test_outputs.py", "outputs"),
    ("linearized predictions", "prediction.outputs", "prediction/test_linearized.py", "linearized"),
    # measures
    ("NLL", "metrics.nll", "metrics/test_classification.py", "nll"),
    ("accuracy", "metrics.accuracy", "metrics/test_classification.py", "accuracy"),
    ("ECE of both kinds", "metrics.ece", "metrics/test_calibration.py", "ece"),
    ("Brier score", "metrics.brier", "metrics/test_classification.py", "brier"),
    ("AUROC", "metrics.auroc", "metrics/test_ranking.py", "auroc"),
    ("the bound in nats", "training.Result.measure_elbo", "training/test_checks.py", "elbo"),
    ("expected NLL", "prediction.expected_nll", "prediction/test_evaluate.py", "expected_nll"),
    (
        "number of variational parameters",
        "posteriors.num_variational_params",
        "posteriors/test_k_tied.py",
        "num_variational_params",
    ),
    ("std over prior std", "nn.BayesianModule.std_ratio", "nn/test_module.py", "std_ratio"),
]


@pytest.mark.parametrize(("item", "name", "file", "word"), ITEMS, ids=[item[0] for item in ITEMS])
def test_item_has_a_public_name_and_a_test(item: str, name: str, file: str, word: str) -> None:
    room, *attributes = name.split(".")
    found = importlib.import_module(f"bayeswell.{room}")
    for attribute in attributes:
        found = getattr(found, attribute)
    assert word in (TESTS / file).read_text(), f"{item}: {file} does not mention {word}"
