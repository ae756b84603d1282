"""Numerical building blocks that know nothing of models: draws, slice sampling, fixed points."""
