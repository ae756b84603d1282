"""What a fit leaves behind: tables, pictures and one page, in a folder."""

from nbmf_jax.report.folder import ResultFolder
from nbmf_jax.report.write import write_results

__all__ = ["ResultFolder", "write_results"]
