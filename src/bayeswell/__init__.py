"""Train any PyTorch network as a Bayesian one, well."""
