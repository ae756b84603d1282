"""How we learn: one algorithm a file, pure functions first, NumPyro adapters apart."""
