"""Collapsed Gibbs sampling: sampler, hyperparameters, NumPyro kernel and block, chain runner."""
