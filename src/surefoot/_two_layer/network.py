"""The network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._core.validate import positive_integer, real


class TwoLayerLinear(nn.Module):
    """f(X) = X W1 W2ᵀ with W1 (n, h) and W2 (m, h), float64.

    Args:
        W1: first layer (n, h).
        W2: second layer (m, h).

    Raises:
        TypeError: integer, half-precision or complex weights.
        ValueError: empty, non-finite, or widths that differ.
    """

    W1: nn.Parameter
    W2: nn.Parameter

    def __init__(self, W1: Any, W2: Any) -> None:
        super().__init__()
        W1, W2 = real("W1", W1, 2), real("W2", W2, 2)
        if W1.shape[1] != W2.shape[1]:
            raise ValueError(
                f"W1 has shape {tuple(W1.shape)} and W2 {tuple(W2.shape)}; their second dimensions, the width, must agree"
            )
        self.W1 = nn.Parameter(W1.clone())
        self.W2 = nn.Parameter(W2.clone())

    @classmethod
    def sharing(cls, W1: Tensor, W2: Tensor) -> TwoLayerLinear:
        """The network whose layers are these float64 tensors themselves, (n, h) and (m, h)."""
        net = cls.__new__(cls)
        nn.Module.__init__(net)
        net.W1, net.W2 = nn.Parameter(W1.detach()), nn.Parameter(W2.detach())
        return net

    @classmethod
    def gaussian(
        cls,
        n: int,
        m: int,
        width: int,
        std: float = 1.0,
        *,
        generator: torch.Generator | None = None,
        seed: int | None = None,
    ) -> TwoLayerLinear:
        """Independent N(0, std²) weights; W1 is drawn first. Width n+m or more gives alpha1 > 0 almost surely.

        Randomness comes from ``generator``, or from a new one with ``seed`` (0 by default).
        """
        for name, value in (("n", n), ("m", m), ("width", width)):
            positive_integer(name, value)
        if not (0.0 < std < float("inf")):
            raise ValueError(f"std is {std!r}; it must be a positive number")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64):
            raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to 2**64 - 1")
        if generator is None:
            generator = torch.Generator().manual_seed(0 if seed is None else seed)
        elif seed is not None:
            raise ValueError("pass generator or seed, not both")
        draw = {"generator": generator, "dtype": torch.float64, "device": generator.device}
        size = 8 * (n + m) * width
        try:
            if size >= 2**63:
                raise MemoryError
            return cls(std * torch.randn(n, width, **draw), std * torch.randn(m, width, **draw))
        except (MemoryError, RuntimeError) as error:  # of which torch raises the latter
            raise ValueError(
                f"weights of width {width} take {size / 2**30:.3g} GiB, more than there is; use a smaller width"
            ) from error

    @property
    def width(self) -> int:
        """h."""
        return self.W1.shape[1]

    def end_to_end(self) -> Tensor:
        """W = W1 W2ᵀ (n, m)."""
        return self.W1 @ self.W2.T

    def forward(self, X: Tensor) -> Tensor:
        """X W1 W2ᵀ (N, m) for X (N, n)."""
        return (X @ self.W1) @ self.W2.T
