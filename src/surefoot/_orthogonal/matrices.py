"""Parameters as the matrices with orthonormal columns that they stand for, and back."""

from __future__ import annotations

from torch import Tensor


def tall_matrix(X: Tensor, flatten: bool) -> Tensor:
    """A parameter, or its gradient, as matrices (..., m, r) with m ≥ r: what is wide is transposed.

    Args:
        flatten: the dimensions after the first are one: (out, in, kh, kw) is the matrix (out, in·kh·kw).
    """
    if flatten and X.ndim > 2:
        X = X.flatten(1)
    rows, columns = X.shape[-2:]
    return X if rows >= columns else X.mH


def placed(value: Tensor, parameter: Tensor, flatten: bool) -> Tensor:
    """The inverse of ``tall_matrix``: what a ``parameter`` is where its tall matrices are ``value``."""
    if value.shape == parameter.shape:
        return value
    if flatten and parameter.ndim > 2:
        wide = parameter.shape[0] < parameter[0].numel()
        return (value.mH if wide else value).reshape(parameter.shape)
    return value.mH
