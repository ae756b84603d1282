"""Variational inference: distributions of W and H that approximate the posterior."""
