"""The networks."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._core.losses import SquaredLoss
from .._core.validate import positive_integer, real


def _sizes(d: int, k: int, width: int, depth: int) -> None:
    for name, value in (("d", d), ("k", k), ("width", width), ("depth", depth)):
        positive_integer(name, value)


class _DeepLinear(nn.Module):
    """Fixed A (m, d) and B (k, m), trained W (L, m, m)."""

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


class LinearResNet(_DeepLinear):
    """f(x) = B (I+W_L) … (I+W_1) A x; rows of X are samples, so that forward(X) is X Aᵀ(I+W_1)ᵀ…(I+W_L)ᵀBᵀ.

    Args:
        A: input transformation (m, d), fixed.
        B: output transformation (k, m), fixed.
        weights: W_1 … W_L (L, m, m), trained.

    Raises:
        TypeError: integer, half-precision or complex weights.
        ValueError: empty, non-finite, or shapes that do not fit.
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
        A, B = _eyes(d, k, width, depth, d)
        if alpha == "sufficient":
            if loss is None:
                raise ValueError("alpha='sufficient' needs the loss: pass loss=sf.SquaredLoss(X, Y)")
            alpha = sufficient_alpha(loss)
        if not (isinstance(alpha, float | int) and 0.0 < alpha < float("inf")):
            raise ValueError(f"alpha is {alpha!r}; it must be a positive number or 'sufficient'")
        return cls(A, alpha * B, torch.zeros(depth, width, width, dtype=A.dtype))

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
    """The standard deep linear network f(x) = B W_L … W_1 A x, the baseline without skip connections.

    Args:
        A: (m, d), fixed.
        B: (k, m), fixed.
        weights: W_1 … W_L (L, m, m), trained.

    Raises:
        TypeError, ValueError: as ``LinearResNet``.
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
            generator = torch.Generator().manual_seed(0 if seed is None else seed)
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
    needed = 8.0 * 2.0**0.5 * gap**0.5 / reduced.strong_convexity**0.5 * (1.0 + 1e-6)
    return needed or 1.0  # any will do where the zero map is optimal


def _draw(
    d: int, k: int, width: int, depth: int, generator: torch.Generator | None, seed: int | None
) -> tuple[Tensor, Tensor]:
    _sizes(d, k, width, depth)
    if generator is None:
        generator = torch.Generator().manual_seed(0 if seed is None else seed)
    elif seed is not None:
        raise ValueError("pass generator or seed, not both")
    draw = {"generator": generator, "dtype": torch.float64, "device": generator.device}
    return torch.randn(width, d, **draw), torch.randn(k, width, **draw)


def _eyes(d: int, k: int, width: int, depth: int, shift: int) -> tuple[Tensor, Tensor]:
    """A = [I; 0] and B = [0, I, 0] from column ``shift`` on."""
    _sizes(d, k, width, depth)
    if width < max(d, k):
        raise ValueError(f"width is {width}; identity transformations need at least max(d, k) = {max(d, k)}")
    A = torch.eye(width, d, dtype=torch.float64)
    B = torch.zeros(k, width, dtype=torch.float64)
    B[:, shift : shift + k] = torch.eye(k, dtype=torch.float64)
    return A, B
