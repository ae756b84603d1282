"""Models, matrices and labels for the exact tests, and the oracles called with a model's numbers.

Also a sampler broken on purpose, by which a test can show that it would notice.
"""

import jax
import jax.numpy as jnp
import numpy as np

import oracles
from nbmf_jax.inference import assignments as labelled
from nbmf_jax.inference.cells import diagonals as diagonal
from nbmf_jax.models import BetaDir, DirBeta, DirDir

MODELS = (BetaDir, DirBeta, DirDir)
NAN = np.nan


def oracle_arguments(model, shape):
    """Hyperparameters as full arrays in the order of the oracles: (F, K) of W, (K, N) of H."""
    (F, N), K = shape, model.num_components
    of_W = [np.broadcast_to(np.asarray(getattr(model, x)), (F, K)) for x in model.W.parameters]
    of_H = [np.asarray(getattr(model, x)) for x in model.H.parameters]
    of_H = [np.broadcast_to(x[:, None] if x.ndim == 1 else x, (K, N)) for x in of_H]
    return [np.array(x, float) for x in of_W + of_H]


def oracle(prefix, model, V, *args):
    """`oracles.<prefix>_<model>(V, *args, *hyperparameters)`."""
    name = {BetaDir: "beta_dir", DirBeta: "dir_beta", DirDir: "dir_dir"}[type(model)]
    hyperparameters = oracle_arguments(model, V.shape)
    return getattr(oracles, f"{prefix}_{name}")(V, *args, *hyperparameters)


def random_model(rng, kind, shape, K, per="line", low=0.2, high=2.5):
    """Unequal hyperparameters: K numbers each, or different in every row or column."""
    (F, N), values = shape, {}
    for name in kind.parameter_names():
        size = {"component": K, "line": (F, K) if name in kind.W.parameters else (K, N)}[per]
        values[name] = rng.uniform(low, high, size)
    return kind(K, **values)


def random_matrix(rng, shape, missing=0.2):
    V = rng.integers(2, size=shape).astype(float)
    V[rng.random(shape) < missing] = NAN
    V[tuple(rng.integers(shape))] = 1
    return V


def random_labels(rng, model, V):
    """(Z,), or (Z, C) in Dir-Dir, agreeing with V."""
    if isinstance(model, DirDir):
        return oracles.random_pairs(rng, V, model.num_components)
    return (oracles.random_assignments(rng, V, model.num_components),)


def as_assignments(model, labels):
    return jnp.asarray(np.stack(labels) if isinstance(model, DirDir) else labels[0])


def assigned(model, V, labels):
    """Labels and counters, counted with the program's own functions (tested apart)."""
    plain = type(model)(model.num_components)  # hyperparameters do not matter: compile once
    return assign(plain, jnp.asarray(V), as_assignments(model, labels))


assign = jax.jit(labelled.assign)


def sweep_order(model, shape):
    """Diagonals of cells of V as the sweep visits them; Dir-Beta runs on V transposed."""
    if isinstance(model, DirBeta):
        return [[(f, n) for n, f in cells] for cells in oracles.diagonal_cells(shape[::-1])]
    return oracles.diagonal_cells(shape)


def leave_own_cell(monkeypatch):
    """Break the sampler: the own cell stays in the counters while it is drawn anew."""
    right, late = diagonal.add, []

    def add(table, line, columns, by):
        if by < 0:
            late.append(line)  # the row's, then the column's; made good in the same order
            return table
        return right(right(table, late.pop(0), columns, -1), line, columns, by)

    monkeypatch.setattr(diagonal, "add", add)
