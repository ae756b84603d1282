"""Plain NumPy versions of the variational algorithms, cell by cell, as oracles.

Nothing here is shared with the program: counters are summed from all other cells at every cell, the
ELBO is evaluated term by term. Slow, and meant for matrices of a few cells.
"""

import numpy as np
from scipy.special import digamma, gammaln

from oracles import diagonal_cells


def one_hot(Z, K):
    """(F, N) labels to (F, N, K); the value K, a missing cell, gives zeros."""
    return (np.asarray(Z)[..., None] == np.arange(K)).astype(float)


def log_expectation(x, r, cells, order):
    """log(x + E n), minus Var n / (2 (x + E n)^2) for order 2; n sums over cells[..., None] * r."""
    mean = x + (cells[..., None] * r).sum(0)
    if order == 0:
        return np.log(mean)
    return np.log(mean) - (cells[..., None] * r * (1 - r)).sum(0) / (2 * mean**2)


def normalise(log_weights):
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def visits(seen, num_iter, portions):
    """Observed cells in the order of the sweeps, with the others of their row and column."""
    for i in range(num_iter):
        portion = 1 if portions is None else portions[i]
        for f, n in (cell for cells in diagonal_cells(seen.shape) for cell in cells):
            if seen[f, n]:
                row, column = seen[f].astype(float), seen[:, n].astype(float)
                row[n] = column[f] = 0
                yield f, n, row, column, portion


def cvb_beta_dir(V, Z, gamma, alpha, beta, num_iter, order=0, portions=None):
    """E[W], E[H] after `num_iter` sweeps; hyperparameters gamma (F, K), alpha, beta (K, N)."""
    K = gamma.shape[1]
    seen = ~np.isnan(V)
    r = one_hot(Z, K) * seen[..., None]
    for f, n, row, column, portion in visits(seen, num_iter, portions):
        ones, zeros = column * (V[:, n] == 1), column * (V[:, n] == 0)
        log_weights = log_expectation(gamma[f], r[f], row, order)
        if V[f, n] == 1:
            log_weights = log_weights + log_expectation(alpha[:, n], r[:, n], ones, order)
        else:
            log_weights = log_weights + log_expectation(beta[:, n], r[:, n], zeros, order)
        total = alpha[:, n] + beta[:, n]
        log_weights = log_weights - log_expectation(total, r[:, n], column, order)
        r[f, n] += portion * (normalise(log_weights) - r[f, n])
    W = gamma + r.sum(1)
    A, B = (((v == V)[..., None] * r).sum(0).T for v in (1, 0))
    return W / W.sum(1, keepdims=True), (alpha + A) / (alpha + beta + A + B)


def cvb_dir_dir(V, Z, C, gamma, eta, num_iter, order=0, portions=None):
    """E[W], E[H] after `num_iter` sweeps; hyperparameters gamma (F, K), eta (K, N)."""
    K = gamma.shape[1]
    seen = ~np.isnan(V)
    z, c = (one_hot(x, K) * seen[..., None] for x in (Z, C))
    for f, n, row, column, portion in visits(seen, num_iter, portions):
        log_l = log_expectation(gamma[f], z[f], row, order)
        log_q = log_expectation(eta[:, n], c[:, n], column, order)
        pair = np.exp(log_l[:, None] + log_q[None])
        pair = pair * (np.eye(K) if V[f, n] == 1 else 1 - np.eye(K))
        pair /= pair.sum()
        z[f, n] += portion * (pair.sum(1) - z[f, n])
        c[f, n] += portion * (pair.sum(0) - c[f, n])
    W, H = gamma + z.sum(1), eta + c.sum(0).T
    return W / W.sum(1, keepdims=True), H / H.sum(0)


def expected_logs(gamma, alpha, beta):
    """E log w (F, K), E log h and E log(1 - h) (K, N) under the posterior's parameters."""
    log_w = digamma(gamma) - digamma(gamma.sum(1, keepdims=True))
    total = digamma(alpha + beta)
    return log_w, digamma(alpha) - total, digamma(beta) - total


def responsibilities(V, gamma, alpha, beta):
    """The best q(Z) given q(W) q(H), (F, N, K); zeros at missing cells."""
    log_w, log_h, log_not_h = expected_logs(gamma, alpha, beta)
    r = np.zeros((*V.shape, gamma.shape[1]))
    for f, n in np.argwhere(~np.isnan(V)):
        r[f, n] = normalise(log_w[f] + (log_h if V[f, n] == 1 else log_not_h)[:, n])
    return r


def vb_update(V, r, gamma, alpha, beta):
    """The best q(W) q(H) given q(Z): prior plus expected counts."""
    A, B = (((v == V)[..., None] * r).sum(0).T for v in (1, 0))
    return gamma + r.sum(1), alpha + A, beta + B


def elbo(V, r, posterior, prior):
    """E log p(V, Z, W, H) - E log q(Z, W, H), term by term."""
    (gamma, alpha, beta), (gamma0, alpha0, beta0) = posterior, prior
    log_w, log_h, log_not_h = expected_logs(gamma, alpha, beta)
    value = 0.0
    for f, n in np.argwhere(~np.isnan(V)):
        log_v = (log_h if V[f, n] == 1 else log_not_h)[:, n]
        value += r[f, n] @ (log_w[f] + log_v) - (r[f, n] * np.log(r[f, n] + 1e-300)).sum()

    def dirichlet(a, b):
        """E log Dirichlet(w | a) under Dirichlet(b), b's rows."""
        logs = digamma(b) - digamma(b.sum(1, keepdims=True))
        return (gammaln(a.sum(1)) - gammaln(a).sum(1) + ((a - 1) * logs).sum(1)).sum()

    value += dirichlet(gamma0, gamma) - dirichlet(gamma, gamma)
    pairs = [np.stack([x.ravel(), y.ravel()], 1) for x, y in ((alpha0, beta0), (alpha, beta))]
    return value + dirichlet(pairs[0], pairs[1]) - dirichlet(pairs[1], pairs[1])
