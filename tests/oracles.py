"""Plain NumPy float64 oracles for the three models: slow, small, independent of ``nbmf_jax``.

Conventions. ``V`` is float (F, N) with entries 0, 1 or NaN (missing). A missing cell has no
assignment: its label is K, and whatever label it carries is never read. Hyperparameters are full
arrays, so they may differ from row to row and from column to column:

=========  ======================================  ======================================
model      W                                       H
=========  ======================================  ======================================
Beta-Dir   w_f ~ Dirichlet(gamma[f]), (F, K)       h_kn ~ Beta(alpha[k, n], beta[k, n])
Dir-Beta   w_fk ~ Beta(alpha[f, k], beta[f, k])    h_n ~ Dirichlet(eta[:, n]), (K, N)
Dir-Dir    w_f ~ Dirichlet(gamma[f]), (F, K)       h_n ~ Dirichlet(eta[:, n]), (K, N)
=========  ======================================  ======================================

Everything sums over observed cells only, so that the N and F in the denominators of the paper are
here the number of observed cells of the row or of the column.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

MAX_CONFIGURATIONS = 500_000


def observed_cells(V):
    """List of the observed cells (f, n), row by row."""
    return [(f, n) for f, n in np.ndindex(*V.shape) if not np.isnan(V[f, n])]


def diagonal_cells(shape):
    """The cells of each diagonal in the order of the sweep; lanes are the shorter side."""
    F, N = shape
    if F <= N:
        return [[(i, (i + d) % N) for i in range(F)] for d in range(N)]
    return [[((i + d) % F, i) for i in range(N)] for d in range(F)]


# ------------------------------------------------------------------- 1. counters by explicit loops


def _label(Z, f, n, K):
    k = int(Z[f, n])
    if not 0 <= k < K:
        raise ValueError(f"observed cell ({f}, {n}) has label {k}, outside 0..{K - 1}")
    return k


def count_rows(V, Z, K):
    """(F, K): number of observed cells of row f with label k (L of the paper)."""
    L = np.zeros((V.shape[0], K))
    for f, n in observed_cells(V):
        L[f, _label(Z, f, n, K)] += 1
    return L


def count_columns(V, Z, K):
    """(K, N): observed cells of column n with label k (M of the paper; of C it is Q)."""
    Q = np.zeros((K, V.shape[1]))
    for f, n in observed_cells(V):
        Q[_label(Z, f, n, K), n] += 1
    return Q


def counters_beta_dir(V, Z, K):
    """L (F, K), A (K, N), B (K, N): L_fk = sum_n z, A_kn = sum_f z v, B_kn = sum_f z (1 - v)."""
    A, B = np.zeros((K, V.shape[1])), np.zeros((K, V.shape[1]))
    for f, n in observed_cells(V):
        (A if V[f, n] == 1 else B)[_label(Z, f, n, K), n] += 1
    return count_rows(V, Z, K), A, B


def counters_dir_beta(V, Z, K):
    """A (F, K), B (F, K), Q (K, N): ones and zeros of row f, cells of column n, with label k."""
    A, B = np.zeros((V.shape[0], K)), np.zeros((V.shape[0], K))
    for f, n in observed_cells(V):
        (A if V[f, n] == 1 else B)[f, _label(Z, f, n, K)] += 1
    return A, B, count_columns(V, Z, K)


def counters_dir_dir(V, Z, C, K):
    """L (F, K), Q (K, N): L_fk = sum_n z_fkn, Q_kn = sum_f c_fkn."""
    return count_rows(V, Z, K), count_columns(V, C, K)


def num_active(V, Z, K):
    """Number of components with at least one z."""
    return int((count_rows(V, Z, K).sum(axis=0) > 0).sum())


# ------------------------------------------------------- 2. collapsed log joints, factors given Z
#
# The functions of counters below accept leading batch axes in the counters.


def _log_labels(conc, counts, axis):
    """log prod Gamma(sum conc) / Gamma(sum conc + n_obs) prod_k Gamma(conc + count) / Gamma(conc)

    over the rows (axis=-1: k is the last axis) or the columns (axis=-2: k is the first axis); the
    counts of a row or column add up to its number of observed cells, n_obs.
    """
    total, n_obs = conc.sum(axis), counts.sum(axis)
    log_p = gammaln(total) - gammaln(total + n_obs)
    log_p = log_p + (gammaln(conc + counts) - gammaln(conc)).sum(axis)
    return log_p.sum(-1)


def _log_bernoulli(alpha, beta, A, B):
    """log prod_kn Beta(alpha + A, beta + B) / Beta(alpha, beta), Beta being the beta function."""
    return (betaln(alpha + A, beta + B) - betaln(alpha, beta)).sum((-2, -1))


def _dirichlet_mean(conc, counts, axis):
    return (conc + counts) / (conc + counts).sum(axis, keepdims=True)


def _beta_mean(alpha, beta, A, B):
    return (alpha + A) / (alpha + beta + A + B)


def log_joint_beta_dir(V, Z, gamma, alpha, beta):
    """log p(V, Z) = sum_f log p(Z_f) + sum_n log p(v_n | Z_n), W and H integrated out."""
    L, A, B = counters_beta_dir(V, Z, gamma.shape[1])
    return float(_log_labels(gamma, L, -1) + _log_bernoulli(alpha, beta, A, B))


def log_joint_dir_beta(V, Z, alpha, beta, eta):
    """log p(V, Z) = sum_n log p(Z_n) + sum_f log p(v_f | Z_f); z_fn ~ h_n, v_fn ~ w_f,z_fn."""
    A, B, Q = counters_dir_beta(V, Z, eta.shape[0])
    return float(_log_labels(eta, Q, -2) + _log_bernoulli(alpha, beta, A, B))


def log_joint_dir_dir(V, Z, C, gamma, eta):
    """log p(V, Z, C) = sum_f log p(Z_f) + sum_n log p(C_n) if v = [z = c] everywhere, else -inf."""
    L, Q = counters_dir_dir(V, Z, C, gamma.shape[1])
    if any((Z[f, n] == C[f, n]) != (V[f, n] == 1) for f, n in observed_cells(V)):
        return -math.inf
    return float(_log_labels(gamma, L, -1) + _log_labels(eta, Q, -2))


def factors_beta_dir(V, Z, gamma, alpha, beta):
    """E[W | Z, V], E[H | Z, V]."""
    L, A, B = counters_beta_dir(V, Z, gamma.shape[1])
    return _dirichlet_mean(gamma, L, -1), _beta_mean(alpha, beta, A, B)


def factors_dir_beta(V, Z, alpha, beta, eta):
    """E[W | Z, V], E[H | Z, V]."""
    A, B, Q = counters_dir_beta(V, Z, eta.shape[0])
    return _beta_mean(alpha, beta, A, B), _dirichlet_mean(eta, Q, -2)


def factors_dir_dir(V, Z, C, gamma, eta):
    """E[W | Z], E[H | C]."""
    L, Q = counters_dir_dir(V, Z, C, gamma.shape[1])
    return _dirichlet_mean(gamma, L, -1), _dirichlet_mean(eta, Q, -2)


# ---------------------------------------------------------------------- 3. conditionals of one cell


def _require_observed(V, f, n):
    if np.isnan(V[f, n]):
        raise ValueError(f"cell ({f}, {n}) is missing: it has no conditional")


def _brute(V, Z, f, n, K, log_joint):
    """(K, ...): exp(log_joint(Z with z_fn = k)), normalised over everything."""
    _require_observed(V, f, n)
    log_p = []
    for k in range(K):
        changed = np.array(Z, dtype=int)
        changed[f, n] = k
        log_p.append(log_joint(changed))
    return np.exp(log_p - logsumexp(log_p))


def brute_conditional_beta_dir(V, Z, f, n, gamma, alpha, beta):
    """(K,): p(z_fn = k | other z, V), from the log joint with z_fn set to each k."""
    K = gamma.shape[1]
    return _brute(V, Z, f, n, K, lambda z: log_joint_beta_dir(V, z, gamma, alpha, beta))


def brute_conditional_dir_beta(V, Z, f, n, alpha, beta, eta):
    """(K,): p(z_fn = k | other z, V), from the log joint with z_fn set to each k."""
    K = eta.shape[0]
    return _brute(V, Z, f, n, K, lambda z: log_joint_dir_beta(V, z, alpha, beta, eta))


def brute_conditional_dir_dir(V, Z, C, f, n, gamma, eta):
    """(K, K): p(z_fn = k, c_fn = l | others, V), from the log joint of each pair."""
    K = gamma.shape[1]

    def log_joints(z):
        changed = [np.array(C, dtype=int) for _ in range(K)]
        for m in range(K):
            changed[m][f, n] = m
        return [log_joint_dir_dir(V, z, c, gamma, eta) for c in changed]

    return _brute(V, Z, f, n, K, log_joints)


def _weights_mixture(v, conc, counts, alpha, beta, A, B):
    """(conc_k + count_k) (alpha_k + A_k)^v (beta_k + B_k)^(1 - v) / (alpha_k + beta_k + M_k)."""
    success = alpha + A if v == 1 else beta + B
    return (conc + counts) * success / (alpha + beta + A + B)


def _weights_pair(v, gamma, L, eta, Q):
    """[k, l] = (gamma_k + L_k)(eta_l + Q_l), on the diagonal only if v = 1, off it if v = 0."""
    diagonal = np.eye(len(L))
    return np.outer(gamma + L, eta + Q) * (diagonal if v == 1 else 1 - diagonal)


def conditional_beta_dir(V, Z, f, n, gamma, alpha, beta):
    """(K,): p(z_fn = k | other z, V), the paper's closed form without the own cell's counts."""
    _require_observed(V, f, n)
    L, A, B = counters_beta_dir(V, Z, gamma.shape[1])
    L[f, Z[f, n]] -= 1
    (A if V[f, n] == 1 else B)[Z[f, n], n] -= 1
    p = _weights_mixture(V[f, n], gamma[f], L[f], alpha[:, n], beta[:, n], A[:, n], B[:, n])
    return p / p.sum()


def conditional_dir_beta(V, Z, f, n, alpha, beta, eta):
    """(K,): p(z_fn = k | other z, V), closed form without the own cell's counts."""
    _require_observed(V, f, n)
    A, B, Q = counters_dir_beta(V, Z, eta.shape[0])
    Q[Z[f, n], n] -= 1
    (A if V[f, n] == 1 else B)[f, Z[f, n]] -= 1
    p = _weights_mixture(V[f, n], eta[:, n], Q[:, n], alpha[f], beta[f], A[f], B[f])
    return p / p.sum()


def conditional_dir_dir(V, Z, C, f, n, gamma, eta):
    """(K, K): p(z_fn = k, c_fn = l | others, V), closed form without the own cell's counts."""
    _require_observed(V, f, n)
    L, Q = counters_dir_dir(V, Z, C, gamma.shape[1])
    L[f, Z[f, n]] -= 1
    Q[C[f, n], n] -= 1
    p = _weights_pair(V[f, n], gamma[f], L[f], eta[:, n], Q[:, n])
    return p / p.sum()


# ---------------------------------------------------------- 4. plain cell-by-cell Gibbs samplers


def _draw(rng, weights):
    """Index into the flattened weights, by inverse CDF with one uniform."""
    cdf = np.cumsum(weights)
    return int(np.searchsorted(cdf / cdf[-1], rng.random(), side="right"))


def random_assignments(rng, V, K):
    """Z (F, N) uniform over the K components, K at missing cells."""
    return np.where(np.isnan(V), K, rng.integers(K, size=V.shape))


def random_pairs(rng, V, K):
    """Z, C (F, N): z uniform; c = z where v = 1, another component, uniformly, where v = 0."""
    Z = random_assignments(rng, V, K)
    other = (Z + rng.integers(1, K, size=V.shape)) % K
    return Z, np.where(np.isnan(V), K, np.where(V == 1, Z, other))


def gibbs_beta_dir(rng, V, Z, num_sweeps, gamma, alpha, beta):
    """(num_sweeps, F, N): Z after each sweep, cells visited row by row, starting from Z."""
    Z = np.array(Z, dtype=int)
    L, A, B = counters_beta_dir(V, Z, gamma.shape[1])
    draws = np.empty((num_sweeps, *V.shape), dtype=int)
    for sweep in range(num_sweeps):
        for f, n in observed_cells(V):
            S = A if V[f, n] == 1 else B
            L[f, Z[f, n]] -= 1
            S[Z[f, n], n] -= 1
            Z[f, n] = _draw(
                rng,
                _weights_mixture(
                    V[f, n], gamma[f], L[f], alpha[:, n], beta[:, n], A[:, n], B[:, n]
                ),
            )
            L[f, Z[f, n]] += 1
            S[Z[f, n], n] += 1
        draws[sweep] = Z
    return draws


def gibbs_dir_beta(rng, V, Z, num_sweeps, alpha, beta, eta):
    """(num_sweeps, F, N): Z after each sweep, cells visited row by row, starting from Z."""
    Z = np.array(Z, dtype=int)
    A, B, Q = counters_dir_beta(V, Z, eta.shape[0])
    draws = np.empty((num_sweeps, *V.shape), dtype=int)
    for sweep in range(num_sweeps):
        for f, n in observed_cells(V):
            S = A if V[f, n] == 1 else B
            Q[Z[f, n], n] -= 1
            S[f, Z[f, n]] -= 1
            Z[f, n] = _draw(
                rng, _weights_mixture(V[f, n], eta[:, n], Q[:, n], alpha[f], beta[f], A[f], B[f])
            )
            Q[Z[f, n], n] += 1
            S[f, Z[f, n]] += 1
        draws[sweep] = Z
    return draws


def gibbs_dir_dir(rng, V, Z, C, num_sweeps, gamma, eta):
    """Two (num_sweeps, F, N): Z and C after each sweep; the pair of a cell is drawn jointly."""
    Z, C = np.array(Z, dtype=int), np.array(C, dtype=int)
    K = gamma.shape[1]
    L, Q = counters_dir_dir(V, Z, C, K)
    draws_z, draws_c = (np.empty((num_sweeps, *V.shape), dtype=int) for _ in range(2))
    for sweep in range(num_sweeps):
        for f, n in observed_cells(V):
            L[f, Z[f, n]] -= 1
            Q[C[f, n], n] -= 1
            pair = _draw(rng, _weights_pair(V[f, n], gamma[f], L[f], eta[:, n], Q[:, n]))
            Z[f, n], C[f, n] = divmod(pair, K)
            L[f, Z[f, n]] += 1
            Q[C[f, n], n] += 1
        draws_z[sweep], draws_c[sweep] = Z, C
    return draws_z, draws_c


# ------------------------------------------------------------ 5. exact posterior by enumeration


@dataclass(frozen=True)
class ExactPosterior:
    """Posterior expectations, exact up to rounding. "log joint" is log p(V, Z), with C in Dir-Dir.

    ``labels`` holds p(z_fn = k | V), 0 at missing cells; ``num_active_pmf[j]`` is the probability
    of j components with at least one z, j = 0..K. All configurations come along: ``Z`` (S, F, N),
    ``C`` (S, F, N) or None, ``log_joint`` (S,), ``probability`` (S,).
    """

    log_evidence: float
    expected: np.ndarray  # E[W H], (F, N), also at missing cells
    W: np.ndarray  # E[W], (F, K)
    H: np.ndarray  # E[H], (K, N)
    log_joint_mean: float
    log_joint_var: float
    num_active_mean: float
    num_active_pmf: np.ndarray  # (K + 1,)
    labels: np.ndarray  # (F, N, K)
    Z: np.ndarray
    C: np.ndarray | None
    log_joint: np.ndarray
    probability: np.ndarray


def _enumerate(V, K, pairs=False):
    """Z, C (S, F, N): all assignments consistent with V; without ``pairs`` C repeats Z."""
    cells, options = observed_cells(V), []
    for f, n in cells:
        if pairs:
            all_pairs = product(range(K), repeat=2)
            options.append([(k, m) for k, m in all_pairs if (k == m) == (V[f, n] == 1)])
        else:
            options.append([(k, k) for k in range(K)])
    size = math.prod(len(choice) for choice in options)
    if size > MAX_CONFIGURATIONS:
        raise ValueError("too many configurations to enumerate")
    states = np.array(list(product(*options)), dtype=int).reshape(size, len(cells), 2)
    Z, C = (np.full((size, *V.shape), K) for _ in range(2))
    for i, (f, n) in enumerate(cells):
        Z[:, f, n], C[:, f, n] = states[:, i, 0], states[:, i, 1]
    return Z, C


def _one_hot(Z, K):
    """(S, F, N, K), all zero at missing cells, whose label is K."""
    return (Z[..., None] == np.arange(K)).astype(float)


def _batch_counters(V, hot, axis):
    """Counts, counts of ones, counts of zeros; (S, F, K) for axis=2, (S, K, N) for axis=1."""
    counts = [(hot * w[..., None]).sum(axis) for w in (~np.isnan(V), V == 1, V == 0)]
    return counts if axis == 2 else [np.swapaxes(x, 1, 2) for x in counts]


def _exact(log_joint, W, H, hot, Z, C=None):
    log_evidence = logsumexp(log_joint)
    p = np.exp(log_joint - log_evidence)
    active = hot.any(axis=(1, 2)).sum(-1)
    mean = p @ log_joint
    return ExactPosterior(
        log_evidence=float(log_evidence),
        expected=np.einsum("s,sfk,skn->fn", p, W, H),
        W=np.einsum("s,sfk->fk", p, W),
        H=np.einsum("s,skn->kn", p, H),
        log_joint_mean=float(mean),
        log_joint_var=float(p @ (log_joint - mean) ** 2),
        num_active_mean=float(p @ active),
        num_active_pmf=np.bincount(active, weights=p, minlength=hot.shape[-1] + 1),
        labels=np.einsum("s,sfnk->fnk", p, hot),
        Z=Z,
        C=C,
        log_joint=log_joint,
        probability=p,
    )


def exact_beta_dir(V, gamma, alpha, beta):
    """Sum over all K^cells assignments Z."""
    K = gamma.shape[1]
    Z, _ = _enumerate(V, K)
    hot = _one_hot(Z, K)
    L, _, _ = _batch_counters(V, hot, axis=2)
    _, A, B = _batch_counters(V, hot, axis=1)
    log_joint = _log_labels(gamma, L, -1) + _log_bernoulli(alpha, beta, A, B)
    return _exact(log_joint, _dirichlet_mean(gamma, L, -1), _beta_mean(alpha, beta, A, B), hot, Z)


def exact_dir_beta(V, alpha, beta, eta):
    """Sum over all K^cells assignments Z."""
    K = eta.shape[0]
    Z, _ = _enumerate(V, K)
    hot = _one_hot(Z, K)
    _, A, B = _batch_counters(V, hot, axis=2)
    Q, _, _ = _batch_counters(V, hot, axis=1)
    log_joint = _log_labels(eta, Q, -2) + _log_bernoulli(alpha, beta, A, B)
    return _exact(log_joint, _beta_mean(alpha, beta, A, B), _dirichlet_mean(eta, Q, -2), hot, Z)


def exact_dir_dir(V, gamma, eta):
    """Sum over all pairs of assignments: K at each v = 1, K (K - 1) at each v = 0."""
    K = gamma.shape[1]
    if K < 2:
        raise ValueError("Dir-Dir needs K >= 2")
    Z, C = _enumerate(V, K, pairs=True)
    hot = _one_hot(Z, K)
    L, _, _ = _batch_counters(V, hot, axis=2)
    Q, _, _ = _batch_counters(V, _one_hot(C, K), axis=1)
    log_joint = _log_labels(gamma, L, -1) + _log_labels(eta, Q, -2)
    W, H = _dirichlet_mean(gamma, L, -1), _dirichlet_mean(eta, Q, -2)
    return _exact(log_joint, W, H, hot, Z, C)
