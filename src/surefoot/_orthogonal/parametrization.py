"""Weights with orthonormal rows or columns, as a parametrization of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor, nn

from .._core.validate import unknown
from .._linalg.orthogonalize import orthogonalize, orthogonalize_steps
from .._linalg.polar import polar

Method = Literal["exact", "products"]


class Orthogonal(nn.Module):
    """A weight's nearest matrix with orthonormal rows (or columns, where it has more rows): its polar factor.

    ``torch.nn.utils.parametrize.register_parametrization(layer, "weight", Orthogonal())``. A weight (out, in, ...), as of a
    convolution, is taken as the matrix (out, in·...). An assigned weight, ``layer.weight = W``, is replaced by its polar
    factor, so that an orthonormal one stays; that is also what the parameter starts from. Near orthonormal parameters the
    gradient is well conditioned, and gradient steps move them away from there to second order only.

    Args:
        method: ``"exact"``: ``sf.linalg.polar``, orthonormal to rounding for every weight, with the gradient of the polar
            factor also at ties of singular values. ``"products"``: ``sf.linalg.orthogonalize``, by products in the weight's
            precision, with the gradient of the polynomial; singular values below ``lower`` times the largest stay below 1.
        lower, steps: of ``orthogonalize``, for ``"products"``.

    Raises:
        TypeError, ValueError: an argument is out of its range; the weight has fewer than two dimensions or is no
            floating-point tensor.
        torch.linalg.LinAlgError: a weight has infinite or NaN entries (``"exact"``, and on assignment).

    Example:
        >>> layer = torch.nn.Linear(6, 3)
        >>> _ = torch.nn.utils.parametrize.register_parametrization(layer, "weight", sf.nn.Orthogonal())
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> layer(torch.randn(5, 6)).square().sum().backward()
        >>> optimizer.step()
        >>> torch.allclose(layer.weight @ layer.weight.T, torch.eye(3), atol=1e-5)  # after each step of any optimiser
        True
    """

    __call__: Callable[..., Tensor]

    def __init__(self, method: Method = "exact", *, lower: float = 1e-2, steps: int | None = None) -> None:
        super().__init__()
        if method not in get_args(Method):
            raise unknown("method", method, get_args(Method))
        orthogonalize_steps(lower, steps=steps)  # refuses what is out of range
        self.method: Method = method
        self.lower, self.steps = lower, steps

    def forward(self, weight: Tensor) -> Tensor:
        """The polar factor, in the weight's shape and dtype."""
        if self.method == "exact":
            return _nearest(weight)
        return orthogonalize(_matrix(weight), lower=self.lower, steps=self.steps).reshape(weight.shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The parameter of an assigned weight: its polar factor."""
        return _nearest(weight)

    def extra_repr(self) -> str:
        return "exact" if self.method == "exact" else f"products, lower={self.lower:g}, steps={self.steps}"


def _nearest(weight: Tensor) -> Tensor:
    return polar(_matrix(weight)).U.reshape(weight.shape)


def _matrix(weight: Tensor) -> Tensor:
    """(out, in, ...) as (out, in·...)."""
    if weight.ndim < 2:
        raise ValueError(
            f"the weight has shape {tuple(weight.shape)}: it must have at least two dimensions, out and in; "
            "parametrize a matrix or a convolution's weight"
        )
    return weight.flatten(1)
