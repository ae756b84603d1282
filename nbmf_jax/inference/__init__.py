"""How we learn: a room for each kind of inference, and beside them only what several of them use.

`gibbs` draws from the posterior, `variational` approximates it by distributions, `point` by single
values. They stand on `cells` (how a model's cells are labelled and counted) and on `_numerics`.
"""
