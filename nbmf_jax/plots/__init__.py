"""Pictures of data, factors and fits; every function draws on `ax` and returns it.

matplotlib is imported when something is drawn. The labels of a DataFrame are written on the axes
where there is room for them.
"""

from nbmf_jax.plots.factors import plot_dictionary, plot_factor, plot_sizes, plot_top
from nbmf_jax.plots.matrices import (
    plot_blocks,
    plot_linkage,
    plot_matrix,
    plot_reconstruction,
    row_order,
)
from nbmf_jax.plots.runs import (
    plot_cells,
    plot_convergence,
    plot_perplexity,
    plot_rank,
    plot_trace,
)

__all__ = [
    "plot_blocks",
    "plot_cells",
    "plot_convergence",
    "plot_dictionary",
    "plot_factor",
    "plot_linkage",
    "plot_matrix",
    "plot_perplexity",
    "plot_rank",
    "plot_reconstruction",
    "plot_sizes",
    "plot_top",
    "plot_trace",
    "row_order",
]
