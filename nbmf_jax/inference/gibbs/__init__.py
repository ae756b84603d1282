"""Collapsed Gibbs sampling: the sampler, hyperparameters given the labels, NumPyro adapters."""
