"""A guide for NumPyro's SVI from the exact conjugate families: Dirichlet and Beta.

The posterior of each factor given the labels is of the family of its prior, so the guide is the
model itself with its own positive parameters, one per entry of W and H, in place of the prior's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
from jaxtyping import Array
from numpyro.distributions import constraints

from nbmf_jax.inference.results import VariationalPosterior
from nbmf_jax.inference.types import Key, Shape
from nbmf_jax.models.base import FactorModel, check_model
from nbmf_jax.models.sites import observe

__all__ = ["ConjugateGuide"]


class ConjugateGuide:
    """Independent Dirichlet and Beta factors as a guide for `numpyro.infer.SVI`.

    Args:
        model: the `BetaDir`, `DirBeta` or `DirDir` that SVI fits.
        start: a `VariationalPosterior` (from `cvb0`, say) whose parameters to start from; by
            default numbers around 1 to 2, drawn with SVI's key.
        prefix: put before the names of the parameters, for several guides in one model.

    >>> import jax, optax, nbmf_jax as nbmf
    >>> from numpyro.infer import SVI, Trace_ELBO
    >>> V = nbmf.datasets.load("southern_women").to_numpy()
    >>> model = nbmf.BetaDir(3, gamma=1.0)
    >>> guide = nbmf.ConjugateGuide(model)
    >>> svi = SVI(model, guide, optax.adam(0.05), Trace_ELBO())
    >>> result = svi.run(jax.random.key(0), 20, V, progress_bar=False)
    >>> guide.posterior(result.params).mean()["W"].shape
    (18, 3)
    """

    def __init__(
        self, model: FactorModel, start: VariationalPosterior | None = None, prefix: str = "guide_"
    ) -> None:
        self.model = check_model(model)
        self.start = _check_start(self.model, start)
        self.prefix = prefix

    def __call__(
        self, V: object = None, shape: tuple[int, int] | None = None
    ) -> tuple[Array, Array]:
        """The guide: samples W and H."""
        data = observe(V, shape)
        kind, K = type(self.model), self.model.num_components
        parameters = {name: self._parameter(name, data.shape) for name in kind.parameter_names()}
        return kind(K, **parameters).sample_factors(data.shape)  # type: ignore[call-arg]

    def _parameter(self, name: str, shape: Shape) -> Array:
        F, N = shape
        K = self.model.num_components
        wanted = (F, K) if name in self.model.W.parameters else (K, N)

        def initial(key: Key) -> Array:
            if self.start is not None:
                return jnp.asarray(self.start.parameters[name])
            return 1 + jax.random.uniform(key, wanted)

        return numpyro.param(self.prefix + name, initial, constraint=constraints.positive)

    def posterior(self, params: dict[str, Array]) -> VariationalPosterior:
        """The fitted guide as a `VariationalPosterior`, from SVI's parameters."""
        names = type(self.model).parameter_names()
        missing = [name for name in names if self.prefix + name not in params]
        if missing:
            raise ValueError(
                f"params has no {self.prefix + missing[0]!r}; it has {sorted(params)}. Pass the "
                f"parameters of the SVI run that used this guide"
            )
        return VariationalPosterior(
            model=self.model,
            parameters={name: params[self.prefix + name] for name in names},
            num_iter=None,
            converged=None,
            trace={},
        )


def _check_start(model: FactorModel, start: object) -> VariationalPosterior | None:
    if start is None:
        return None
    if not isinstance(start, VariationalPosterior):
        raise TypeError(f"start must be a VariationalPosterior, got {type(start).__name__}")
    if type(start.model) is not type(model) or start.model.num_components != model.num_components:
        raise ValueError(f"start is a posterior of {start.model!r}, but the model is {model!r}")
    return start
