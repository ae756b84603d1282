"""Numerics that know nothing of models: draws, slice sampling, fixed points, words to XLA."""
