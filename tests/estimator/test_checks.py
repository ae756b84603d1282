"""scikit-learn's own checks of an estimator.

They feed real numbers, so that they run on a subclass that thresholds its input first. Excluded:
none. scikit-learn itself skips `check_array_api_input` unless SCIPY_ARRAY_API is set.
"""

import numpy as np
import pytest
import scipy.sparse
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data

import nbmf_jax as nbmf

SKIPPED_BY_SKLEARN = {"check_array_api_input"}


class ThresholdedNBMF(nbmf.NBMF):
    """Ones where X is above one half."""

    def _read(self, X, reset=False, require_observed=False):
        if not reset:
            check_is_fitted(self)
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse=True,
            ensure_all_finite="allow-nan",
            ensure_non_negative=True,
        )
        X = X.toarray() if scipy.sparse.issparse(X) else X
        return nbmf.as_binary_matrix(np.where(np.isnan(X), np.nan, X > 0.5))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_estimator_checks():
    estimator = ThresholdedNBMF(2, method="cvb0", n_samples=8, n_init=1, max_iter=5)
    results = check_estimator(estimator, on_fail=None)
    failed = {
        result["check_name"]: repr(result["exception"])
        for result in results
        if result["status"] not in ("passed", "skipped")
    }
    assert failed == {}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= SKIPPED_BY_SKLEARN
    assert sum(result["status"] == "passed" for result in results) >= 40
