"""The networks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._core.losses import SquaredLoss
from .._core.validate import integer, kind_of, positive_integer, real
from . import planner


def _sizes(d: int, k: int, width: int, depth: int) -> None:
    given = {"d": d, "k": k, "width": width, "depth": depth}
    d, k, width, depth = (positive_integer(name, value) for name, value in given.items())
    needed = 2 * 8 * (depth * width * width + width * (d + k))  # once more, as the network copies what it is given
    if needed > _memory():
        raise ValueError(
            f"width is {width} and depth {depth}; making these weights takes {needed / 2**30:,.0f} GiB, more than this machine "
            "has: use a smaller width or depth"
        )


def _memory() -> float:
    """Physical memory in bytes; ``inf`` where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return math.inf


class _DeepLinear(nn.Module):
    """Fixed A (m, d) and B (k, m), trained W (L, m, m)."""

    __call__: Callable[..., Tensor]

    A: Tensor
    B: Tensor
    W: nn.Parameter

    def __init__(self, A: Any, B: Any, weights: Any) -> None:
        super().__init__()
        A, B, weights = real("A", A, 2), real("B", B, 2), real("weights", weights, 3)
        m = A.shape[0]
        if B.shape[1] != m or weights.shape[1:] != (m, m):
            raise ValueError(
                f"A has shape {tuple(A.shape)}, B {tuple(B.shape)} and weights {tuple(weights.shape)}; they must be (m, d), "
                "(k, m) and (L, m, m) with the same width m"
            )
        self.register_buffer("A", A.clone())
        self.register_buffer("B", B.clone())
        self.W = nn.Parameter(weights.clone())

    def extra_repr(self) -> str:
        """Sizes."""
        depth, width, _ = self.W.shape
        return f"d={self.A.shape[1]}, k={len(self.B)}, width={width}, depth={depth}"


class LinearResNet(_DeepLinear):
    """f(x) = B (I+W_L) … (I+W_1) A x; rows of X are samples, so that forward(X) is X Aᵀ(I+W_1)ᵀ…(I+W_L)ᵀBᵀ.

    Args:
        A: input transformation (m, d), fixed.
        B: output transformation (k, m), fixed.
        weights: W_1 … W_L (L, m, m), trained.

    Raises:
        TypeError: integer, half-precision or complex weights.
        ValueError: empty, non-finite, or shapes that do not fit.

    Example:
        >>> X = torch.randn(20, 4, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X[:, :2])
        >>> net = sf.nn.LinearResNet.modified_identity(d=4, k=2, width=6, depth=3, alpha="sufficient", loss=loss)
        >>> sf.certify(net, loss).holds
        True
    """

    @classmethod
    def gaussian(
        cls,
        d: int,
        k: int,
        width: int,
        depth: int,
        scaling: Literal["fan", "unit"] = "fan",
        *,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> LinearResNet:
        """Zero weights, and independent A ~ N(0, 1/m), B ~ N(0, 1/k) (``fan``, the experiments' choice) or both N(0, 1)
        (``unit``, that of Corollaries 3.4 to 3.9). A is drawn first, from ``generator`` or a new one with ``seed`` (else 0)."""
        if scaling not in ("fan", "unit"):
            raise ValueError(f"scaling is {scaling!r}; it must be 'fan' or 'unit'")
        A, B = _draw(d, k, width, depth, generator, seed)
        a, b = (width**-0.5, k**-0.5) if scaling == "fan" else (1.0, 1.0)
        return cls(a * A, b * B, torch.zeros(depth, width, width, dtype=A.dtype, device=A.device))

    @classmethod
    def identity(cls, d: int, k: int, width: int, depth: int) -> LinearResNet:
        """Zero weights, A = [I; 0] and B = sqrt(m/k) [I, 0]: where the target opposes the input, training starts at a saddle."""
        A, B = _eyes(d, k, width, depth, 0)
        return cls(A, (width / k) ** 0.5 * B, torch.zeros(depth, width, width, dtype=A.dtype))

    @classmethod
    def modified_identity(
        cls,
        d: int,
        k: int,
        width: int,
        depth: int,
        alpha: float | Literal["sufficient"] = 1.0,
        *,
        loss: SquaredLoss | None = None,
    ) -> LinearResNet:
        """Zero weights, A = [I; 0], B = α [0, I] on other coordinates, so that BA = 0; width at least d + k.

        ``alpha="sufficient"`` takes, for this ``loss``, the smallest α that Corollary 2 at W = 0 needs: α σ_r(X) ≥ 8√2 sqrt(gap),
        gap = ‖Y‖² of the part of Y that X reaches, halved.
        """
        _sizes(d, k, width, depth)
        if width < d + k:
            raise ValueError(f"width is {width}; the modified identity needs at least d + k = {d + k}")
        if loss is not None and not isinstance(loss, SquaredLoss):
            raise TypeError(f"loss is {kind_of(loss)}; linear ResNets take sf.SquaredLoss")
        if loss is not None and loss.shape != (d, k):
            raise ValueError(
                f"the loss has {loss.shape[0]} inputs and {loss.shape[1]} outputs; build the network with "
                f"d={loss.shape[0]}, k={loss.shape[1]}"
            )
        A, B = _eyes(d, k, width, depth, d)
        if alpha == "sufficient":
            if loss is None:
                raise ValueError("alpha='sufficient' needs the loss: pass loss=sf.SquaredLoss(X, Y)")
            alpha = sufficient_alpha(loss)
        if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0.0 < alpha < math.inf:
            raise ValueError(f"alpha is {alpha!r}; it must be a positive number or 'sufficient'")
        return cls(A, float(alpha) * B, torch.zeros(depth, width, width, dtype=A.dtype))

    @property
    def depth(self) -> int:
        """L."""
        return self.W.shape[0]

    @property
    def width(self) -> int:
        """m."""
        return self.W.shape[1]

    def end_to_end(self) -> Tensor:
        """(B (I+W_L) … (I+W_1) A)ᵀ (d, k), the W of ``SquaredLoss``."""
        return self(torch.eye(self.A.shape[1], dtype=self.A.dtype, device=self.A.device))

    def forward(self, X: Tensor) -> Tensor:
        """(N, k) for X (N, d)."""
        hidden = X @ self.A.T
        for layer in self.W:
            hidden = hidden + hidden @ layer.T
        return hidden @ self.B.T


class LinearNet(_DeepLinear):
    """The standard deep linear network f(x) = B W_L … W_1 A x, the baseline without skip connections, float64.

    No theorem of this library covers it: ``sf.certify`` and ``sf.descend`` refuse it, an optimiser of torch trains it.

    Args:
        A: (m, d), fixed.
        B: (k, m), fixed.
        weights: W_1 … W_L (L, m, m), trained.

    Raises:
        TypeError, ValueError: as ``LinearResNet``.

    Example:
        >>> net = sf.nn.LinearNet.gaussian(d=4, k=2, width=8, depth=3)
        >>> X = torch.randn(5, 4, dtype=torch.float64)
        >>> torch.allclose(net(X), X @ net(torch.eye(4, dtype=torch.float64)))  # linear in x, whatever its depth
        True
    """

    @classmethod
    def gaussian(
        cls,
        d: int,
        k: int,
        width: int,
        depth: int,
        *,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> LinearNet:
        """A ~ N(0, 1/m), B ~ N(0, 1/k) and W_l ~ N(0, 1/m), drawn in this order."""
        if generator is None:
            generator = torch.Generator().manual_seed(_seed(seed))
            seed = None
        A, B = _draw(d, k, width, depth, generator, seed)
        W = torch.randn(depth, width, width, generator=generator, dtype=torch.float64, device=generator.device)
        return cls(width**-0.5 * A, k**-0.5 * B, width**-0.5 * W)

    def forward(self, X: Tensor) -> Tensor:
        """(N, k) for X (N, d)."""
        hidden = X @ self.A.T
        for layer in self.W:
            hidden = hidden @ layer.T
        return hidden @ self.B.T


def sufficient_alpha(loss: SquaredLoss) -> float:
    """The α of ``LinearResNet.modified_identity`` that Corollary 2 at W = 0 needs, with a margin of 1e-6 for rounding."""
    reduced = loss.reduced
    gap = reduced.gap(torch.zeros_like(reduced.optimum))
    needed = planner.sufficient_alpha(gap, math.sqrt(reduced.strong_convexity)) * (1.0 + 1e-6)
    return needed or 1.0  # any will do where the zero map is optimal


def _draw(
    d: int, k: int, width: int, depth: int, generator: torch.Generator | None, seed: int | None
) -> tuple[Tensor, Tensor]:
    _sizes(d, k, width, depth)
    if generator is None:
        generator = torch.Generator().manual_seed(_seed(seed))
    elif not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {kind_of(generator)}; pass a torch.Generator, or seed")
    elif seed is not None:
        raise ValueError("pass generator or seed, not both")
    draw = {"generator": generator, "dtype": torch.float64, "device": generator.device}
    return torch.randn(width, d, **draw), torch.randn(k, width, **draw)


def _seed(seed: int | None) -> int:
    """The seed that torch takes; 0 by default."""
    if seed is None:
        return 0
    number = integer("seed", seed, -(2**63))
    if number >= 2**63:
        raise ValueError(f"seed is {seed!r}; it must be an integer below 2**63")
    return number


def _eyes(d: int, k: int, width: int, depth: int, shift: int) -> tuple[Tensor, Tensor]:
    """A = [I; 0] and B = [0, I, 0] from column ``shift`` on."""
    _sizes(d, k, width, depth)
    if width < max(d, k):
        raise ValueError(f"width is {width}; identity transformations need at least max(d, k) = {max(d, k)}")
    A = torch.eye(width, d, dtype=torch.float64)
    B = torch.zeros(k, width, dtype=torch.float64)
    B[:, shift : shift + k] = torch.eye(k, dtype=torch.float64)
    return A, B
