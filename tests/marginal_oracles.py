"""Two more ways to p(V) without the labels that the samplers draw, to check `oracles` itself.

Dir-Dir with one label per cell, the other summed out by the closed form of the paper's appendix;
and all three models by Gauss quadrature over W and H, which needs no labels at all. Arguments are
those of `oracles`.
"""

import math
from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp, roots_jacobi

from oracles import _brute, _enumerate, _log_labels, counters_beta_dir

# ---------------------------------------------- Dir-Dir by the single augmentation of the appendix


def column_likelihood_dir_dir(eta_n, A_n, B_n):
    """p(v_n | Z_n) = integral of Dirichlet(h | eta) prod_k h_k^A_k (1 - h_k)^B_k.

    The paper's sum over j_k = 0..B_k, with its misprint corrected (the denominator stands once):
    Gamma(sum eta) / prod Gamma(eta_k) * sum_j [prod_k (-1)^j_k binom(B_k, j_k)
    Gamma(eta_k + A_k + j_k)] / Gamma(sum_k (eta_k + A_k + j_k)). Alternating: small counts only.
    """
    total = []
    for j in product(*(range(int(b) + 1) for b in B_n)):
        sign = (-1) ** sum(j)
        ways = math.prod(math.comb(int(b), i) for b, i in zip(B_n, j, strict=True))
        a = eta_n + A_n + np.array(j)
        total.append(sign * ways * math.exp(gammaln(a).sum() - gammaln(a.sum())))
    return math.exp(gammaln(eta_n.sum()) - gammaln(eta_n).sum()) * math.fsum(total)


def log_joint_dir_dir_single_augmentation(V, Z, gamma, eta):
    """log p(V, Z) = sum_f log p(Z_f) + sum_n log p(v_n | Z_n), c never introduced."""
    L, A, B = counters_beta_dir(V, Z, gamma.shape[1])
    log_p = float(_log_labels(gamma, L, -1))
    for n in range(V.shape[1]):
        log_p += math.log(column_likelihood_dir_dir(eta[:, n], A[:, n], B[:, n]))
    return log_p


def log_evidence_dir_dir_single_augmentation(V, gamma, eta):
    """log p(V) by enumeration over Z only."""
    Z, _ = _enumerate(V, gamma.shape[1])
    return float(logsumexp([log_joint_dir_dir_single_augmentation(V, z, gamma, eta) for z in Z]))


def conditional_dir_dir_single_augmentation(V, Z, f, n, gamma, eta):
    """(K,): p(z_fn = k | other z, V), C summed out of *all* cells."""
    K = gamma.shape[1]
    return _brute(V, Z, f, n, K, lambda z: log_joint_dir_dir_single_augmentation(V, z, gamma, eta))


# ---------------------------------------------------- quadrature over W, H, without augmentation


def beta_rule(a, b, num_nodes):
    """Nodes (m,) and weights (m,) of Gauss-Jacobi quadrature for Beta(a, b) on [0, 1]."""
    x, weights = roots_jacobi(num_nodes, b - 1, a - 1)
    return (1 + x) / 2, weights / weights.sum()


def _product_rule(rules):
    points = np.array(list(product(*(x for x, _ in rules))))
    return points, np.array([math.prod(w) for w in product(*(w for _, w in rules))])


def betas_rule(a, b, num_nodes):
    """Points (m^K, K) and weights (m^K,) for K independent Beta(a_k, b_k)."""
    return _product_rule([beta_rule(x, y, num_nodes) for x, y in zip(a, b, strict=True)])


def dirichlet_rule(conc, num_nodes):
    """Points (m^(K-1), K) and weights for a Dirichlet, K >= 2, by stick breaking."""
    sticks, weights = _product_rule(
        [beta_rule(conc[k], conc[k + 1 :].sum(), num_nodes) for k in range(len(conc) - 1)]
    )
    left = np.cumprod(np.hstack([np.ones((len(sticks), 1)), 1 - sticks]), axis=1)
    return left * np.hstack([sticks, np.ones((len(sticks), 1))]), weights


def quadrature(V, row_rules, column_rules):
    """p(V) and E[W H | V] (F, N) of v_fn ~ Bernoulli(w_f . h_n), straight from the definition.

    ``row_rules[f]`` and ``column_rules[n]`` are (points, weights) for the priors of w_f and h_n.
    The integrand is a polynomial of degree at most max(F, N) + 1 in each coordinate (the sticks
    of a Dirichlet), so m nodes are exact once 2 m - 1 >= max(F, N) + 1. The columns are
    independent given W, hence the loop is over the product of the row rules only.
    """
    F, N = V.shape
    evidence, moments = 0.0, np.zeros((F, N))
    for rows in product(*(range(len(weights)) for _, weights in row_rules)):
        W = np.array([row_rules[f][0][i] for f, i in enumerate(rows)])
        p_row = math.prod(row_rules[f][1][i] for f, i in enumerate(rows))
        p_column, mean_column = np.ones(N), np.zeros((F, N))
        for n, (H, weights) in enumerate(column_rules):
            mean = W @ H.T  # (F, points)
            v = V[:, n, None]
            p = np.where(np.isnan(v), 1.0, np.where(v == 1, mean, 1 - mean)).prod(axis=0)
            p_column[n] = weights @ p
            mean_column[:, n] = mean @ (weights * p)
        evidence += p_row * p_column.prod()
        for n in range(N):
            others = np.delete(p_column, n).prod()
            moments[:, n] += p_row * others * mean_column[:, n]
    return evidence, moments / evidence
