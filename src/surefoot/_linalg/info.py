"""What the ``*_ex`` functions say about each matrix of a batch: status, accuracy, and the method that was used."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Status(IntEnum):
    """How the computation of one matrix ended; stored as an integer, so that a batch of statuses is a tensor."""

    OK = 0
    RANK_DEFICIENT = 1
    SINGULAR = 2
    NON_FINITE = 3
    INACCURATE = 4
    NOT_CONVERGED = 5
    OUT_OF_RANGE = 6
    OUTSIDE_DOMAIN = 7
    SHIFTED = 8

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "OK": "full rank, and as accurate as the method allows",
            "RANK_DEFICIENT": "the rank is below min(m, n) to the given tolerances, so no error bound exists; the derivative is "
            "the one that keeps the rank. Change atol or rtol if the small singular values are meant",
            "SINGULAR": "exactly singular, so that there is no inverse and the value is non-finite; use pinv",
            "NON_FINITE": "the input has infinite or NaN entries, and so has the value; look for where they come from",
            "INACCURATE": "so ill-conditioned that no digit is certain in this precision; use float64, or pinv with larger rtol",
            "NOT_CONVERGED": "the iteration ended before the residual reached rounding level; raise max_iterations, or use "
            "method='auto'; of orthogonalize: take a smaller lower, or polar",
            "OUT_OF_RANGE": "the value overflows this precision although the input is finite; scale the input or use float64",
            "OUTSIDE_DOMAIN": "an eigenvalue lies where the function is not defined, so that the value is NaN; shift the "
            "matrix, or check that it is definite",
            "SHIFTED": "not positive definite to rounding, so that the factor is that of A + shift·I; limit the shift by "
            "max_shift, or look for why A is indefinite",
        }[self.name]


class Method(IntEnum):
    """How the value of one matrix was computed; stored as an integer like ``Status``."""

    NONE = 0
    LU = 1
    CHOLESKY = 2
    QR = 3
    SVD = 4
    EIGH = 5
    ITERATION = 6
    CHEBYSHEV = 7
    GRAM = 8
    PRODUCTS = 9

    @property
    def label(self) -> str:
        """The name, as the argument ``method`` spells it."""
        return self.name.lower()


class Info(NamedTuple):
    """What is known of a batch of computed matrices; every field is a tensor over the batch dimensions, without gradient.

    A named tuple of tensors is a pytree, so ``torch.vmap`` and ``torch.compile`` return it as they return tensors.

    Example:
        >>> X, info = sf.linalg.pinv_ex(torch.stack([torch.eye(2), torch.ones(2, 2)]))
        >>> info
        Info(1 ok, 1 rank_deficient, ...)
        >>> info.status == sf.linalg.Status.RANK_DEFICIENT, info.ok
        (tensor([False,  True]), False)
        >>> info.messages[0]
        'full rank, and as accurate as the method allows'
    """

    status: Tensor
    """``Status``, integer"""
    rank: Tensor
    """numerical rank to the tolerances that were used, integer"""
    iterations: Tensor
    """iterations of an iterative method, 0 for a direct one, integer"""
    residual: Tensor
    """measured spectral or Frobenius norm of the defining equation's defect (each function says which)"""
    error_bound: Tensor
    """rigorous bound of the spectral norm of the error, rounding included; infinite where none exists"""
    condition: Tensor
    """upper bound of ‖A‖‖A⁺‖, rounding included, where full rank is certain; elsewhere an estimate, or infinite.
    Of functions of a matrix the condition number of the function at A"""
    method_code: Tensor
    """``Method``, integer"""

    def __repr__(self) -> str:
        """The worst of the batch, in a line."""
        codes = Counter(self.status.flatten().tolist())
        said = ", ".join(
            f"{f'{n} ' if self.status.ndim else ''}{Status(code).name.lower()}" for code, n in codes.items()
        )
        methods = " and ".join(Method(code).label for code in torch.unique(self.method_code).tolist())
        worst = (
            f"{name} <= {float(getattr(self, name).max()):.3g}" for name in ("residual", "error_bound", "condition")
        )
        return (
            f"Info({said or 'no matrix'}, method {methods or 'none'}{''.join(f', {w}' for w in worst) if said else ''})"
        )

    @property
    def method(self) -> Any:
        """The name of the method: one string if all matrices had the same, otherwise nested lists over the batch dimensions."""
        codes = torch.unique(self.method_code)
        if codes.numel() == 1:
            return Method(int(codes)).label
        return _mapped(self.method_code.tolist(), lambda code: Method(code).label)

    @property
    def messages(self) -> Any:
        """The texts of the statuses, nested lists over the batch dimensions (one string without any)."""
        return _mapped(self.status.tolist(), lambda code: Status(code).text)

    @property
    def ok(self) -> bool:
        """Whether every status is ``Status.OK``."""
        return bool((self.status == Status.OK).all())


def _mapped(nested: Any, name: Any) -> Any:
    return [_mapped(entry, name) for entry in nested] if isinstance(nested, list) else name(nested)
