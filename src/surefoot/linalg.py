"""Differentiable linear algebra: called like ``torch.linalg``, with gradients that are right and statuses that say when not."""

from ._linalg.cayley import cayley, cayley_ex
from ._linalg.cholesky import Cholesky, cholesky, cholesky_ex
from ._linalg.eigh import Eigh, eigh, eigh_ex
from ._linalg.info import Info, Method, Status
from ._linalg.inverse import inv, inv_ex
from ._linalg.logdet import logdet, logdet_ex
from ._linalg.lstsq import LstSq, lstsq, lstsq_ex
from ._linalg.matrix_function import (
    expm,
    expm_ex,
    inv_sqrt,
    inv_sqrt_ex,
    logm,
    logm_ex,
    matrix_function,
    matrix_function_ex,
    sqrtm,
    sqrtm_ex,
)
from ._linalg.odd_polynomials import PolarSteps
from ._linalg.orthogonalize import orthogonalize, orthogonalize_ex, orthogonalize_steps
from ._linalg.pinv import pinv, pinv_ex
from ._linalg.polar import Polar, polar, polar_ex
from ._linalg.singular_value_function import (
    nuclear_norm,
    nuclear_norm_ex,
    singular_power,
    singular_power_ex,
    singular_value_function,
    singular_value_function_ex,
    svdvals,
    svdvals_ex,
    svt,
    svt_ex,
)
from ._linalg.solve import solve, solve_ex
from ._linalg.svd import SVD, svd, svd_ex
from ._linalg.svd_lowrank import LowRank, svd_lowrank, svd_lowrank_ex

__all__ = [
    "SVD",
    "Cholesky",
    "Eigh",
    "Info",
    "LowRank",
    "LstSq",
    "Method",
    "Polar",
    "PolarSteps",
    "Status",
    "cayley",
    "cayley_ex",
    "cholesky",
    "cholesky_ex",
    "eigh",
    "eigh_ex",
    "expm",
    "expm_ex",
    "inv",
    "inv_ex",
    "inv_sqrt",
    "inv_sqrt_ex",
    "logdet",
    "logdet_ex",
    "logm",
    "logm_ex",
    "lstsq",
    "lstsq_ex",
    "matrix_function",
    "matrix_function_ex",
    "nuclear_norm",
    "nuclear_norm_ex",
    "orthogonalize",
    "orthogonalize_ex",
    "orthogonalize_steps",
    "pinv",
    "pinv_ex",
    "polar",
    "polar_ex",
    "singular_power",
    "singular_power_ex",
    "singular_value_function",
    "singular_value_function_ex",
    "solve",
    "solve_ex",
    "sqrtm",
    "sqrtm_ex",
    "svd",
    "svd_ex",
    "svd_lowrank",
    "svd_lowrank_ex",
    "svdvals",
    "svdvals_ex",
    "svt",
    "svt_ex",
]
