"""``inv`` and ``inv_ex``: the inverse of square matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from .arguments import compute_dtype, double_dtype, matrix_argument, power_of_two_scale, tolerance
from .info import Info
from .operator import may_branch, own_precision
from .pinv import describe
from .pinv_function import differentiable_pinv


def inv(A: Tensor) -> Tensor:
    """The inverse of A (..., n, n): ``torch.linalg.inv``, also for float16 and bfloat16 (computed in float32).

    Nothing is checked beyond what torch checks: NaN or infinite entries give such a result. The gradient is −XᴴgXᴴ, X = A⁻¹, to
    any order.

    Raises:
        torch.linalg.LinAlgError: A is exactly singular (``inv_ex`` does not raise).
        TypeError, ValueError: A is no batch of square matrices of a supported dtype.

    Example:
        >>> A = torch.tensor([[2.0, 1.0], [1.0, 1.0]], dtype=torch.float16)
        >>> sf.linalg.inv(A)  # of torch.linalg.inv an error
        tensor([[ 1., -1.],
                [-1.,  2.]], dtype=torch.float16)
    """
    matrix_argument(A, square=True)
    return torch.linalg.inv(A.to(compute_dtype(A.dtype))).to(A.dtype)


@own_precision
def inv_ex(A: Tensor) -> tuple[Tensor, Info]:
    """``inv`` with an ``Info``, and without exceptions for the values of A: a bad matrix has its status and spoils no other.

    A singular or non-finite matrix has the value NaN and the gradient 0. In ``info``: ``residual`` ≥ ‖I − AX‖_F, rounding
    included; ``error_bound`` ≥ ‖X − A⁻¹‖ (spectral norm), rounding included: ‖XR‖/(1 − ‖R‖), R = I − AX
    (docs/theorems/inverse.md, Theorem 6), infinite with status ``INACCURATE`` where ‖R‖ < 1 is not certain; up to 160 rows it
    is within a few times the error, because R is formed with split products (``norms.residual``); ``condition`` ≥ ‖A‖‖A⁻¹‖,
    infinite with the bound.

    Raises:
        TypeError, ValueError: as ``inv``.

    Example:
        >>> A = torch.stack([2 * torch.eye(2), torch.ones(2, 2)])
        >>> X, info = sf.linalg.inv_ex(A)  # torch.linalg.inv fails for the whole batch
        >>> torch.allclose(X[0], torch.eye(2) / 2), bool(info.error_bound[0] < 1e-6)
        (True, True)
        >>> info.messages[1]
        'exactly singular, so that there is no inverse and the value is non-finite; use pinv'
    """
    matrix_argument(A, square=True)
    wide = A.to(compute_dtype(A.dtype))
    # three tensors, for Dynamo takes no tensor twice
    unused = [tolerance(None, 0.0, A, "") for _ in range(3)]
    outputs = differentiable_pinv(wide, *unused, False, "inverse", 0.0, 2, 1)
    value = outputs[0].to(A.dtype)
    scale = power_of_two_scale(wide, always=not may_branch(wide))
    if scale is None:
        return value, describe(value, outputs, wide, None, inverse=True)
    # in float64, where single precision loses nothing to the scale
    precise = double_dtype(A.dtype)
    factor = scale.double()
    scaled = outputs[0].detach().to(precise) * factor.reciprocal()
    return value, describe(value, (scaled, *outputs[1:]), wide.detach().to(precise) * factor, scale, inverse=True)
