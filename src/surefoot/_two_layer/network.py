"""The network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .._core.certificate import Certificate
from .._core.descent import certify
from .._core.losses import Loss
from .._core.system import linear_map
from .._core.validate import positive, positive_integer, real
from . import start


class TwoLayerLinear(nn.Module):
    """f(X) = X W1 W2ᵀ with W1 (n, h) and W2 (m, h), float64.

    Args:
        W1: first layer (n, h).
        W2: second layer (m, h).

    Raises:
        TypeError: integer, half-precision or complex weights.
        ValueError: empty, non-finite, or widths that differ.

    Example:
        >>> X = torch.randn(20, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.certifiable(loss, width=16)
        >>> sf.certify(net, loss).holds, net(X).shape
        (True, torch.Size([20, 1]))
    """

    __call__: Callable[..., Tensor]

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
        if seed is not None:
            _require_seed(seed)
        if generator is None:
            generator = torch.Generator().manual_seed(0 if seed is None else seed)
        elif seed is not None:
            raise ValueError("pass generator or seed, not both")
        draw = {"generator": generator, "dtype": torch.float64, "device": generator.device}
        with _enough_memory(n + m, width):
            return cls(std * torch.randn(n, width, **draw), std * torch.randn(m, width, **draw))

    @classmethod
    def certifiable(
        cls,
        loss: Loss,
        width: int | None = None,
        *,
        theorem: str | None = None,
        scale: float | None = None,
        moved: float | None = None,
        seed: int = 0,
    ) -> TwoLayerLinear:
        """Weights from which few iterations are guaranteed: the n+m rows of W1 and W2 are ``scale`` times orthonormal ones.

        The output is 0 then, and the network passes every gradient on alike. The larger the scale, the fewer iterations are
        guaranteed, and the lazier the training: the weights move by about ‖W*‖_F/(scale² sqrt(2(n+m))) of their norm, in
        Frobenius norms (n the rank of the data), which is told before training by ``moved`` and after it by ``run.moved``. By
        default it is the largest of 32 %, 16 %, 8 %, … that guarantees at most 5 % more iterations to a relative gap of 1e-10
        than an infinite scale. The rows of reduced weights (data of deficient rank) are orthonormal likewise.

        Args:
            loss: what is to be learned, ``sf.SquaredLoss``, ``sf.MatrixSensing`` or ``sf.SoftmaxRegression``.
            width: h, at least n+m, which is the default; no guarantee depends on it.
            theorem: whose guarantee decides on the scale; by default the one that ``sf.certify`` takes.
            scale: in place of the one so chosen.
            moved: the relative movement of the weights that the scale is chosen for, instead.
            seed: of the rows, the Q of a Gaussian matrix.

        Raises:
            NotCertifiable: the theorem holds at no scale; the message says why.
            TypeError, ValueError: arguments that do not fit.
        """
        problem = linear_map(loss)
        n, m = problem.shape
        _require_seed(seed)
        if scale is not None and moved is not None:
            raise ValueError("pass scale or moved, not both")
        width = n + m if width is None else positive_integer("width", width)
        if width < n + m:
            raise ValueError(f"width is {width}; n + m = {n + m} orthonormal rows need a width of at least {n + m}")
        with _enough_memory(n + m, width):
            rows = start.orthonormal_rows(n + m, width, seed).to(problem.optimum.device)

        def certified(scale: float) -> Certificate:
            return certify(cls.sharing(scale * rows[:n], scale * rows[n:]), problem, theorem)

        if scale is not None:
            scale = positive("scale", scale)
        elif moved is not None:
            scale = start.scale_for(problem, positive("moved", moved, "a positive share of the norm of the weights"))
        else:
            scale = start.least_scale(problem, certified)
        return cls(scale * rows[:n], scale * rows[n:])

    def extra_repr(self) -> str:
        """Sizes."""
        return f"n={len(self.W1)}, m={len(self.W2)}, width={self.width}"

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


def _require_seed(seed: object) -> None:
    """``ValueError`` for a seed that PyTorch does not take."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to 2**64 - 1")


@contextmanager
def _enough_memory(rows: int, width: int) -> Iterator[None]:
    """``ValueError`` where weights (rows, width) do not fit into memory."""
    size = 8 * rows * width
    try:
        if size >= 2**63:
            raise MemoryError
        yield
    except (MemoryError, RuntimeError) as error:  # of which torch raises the latter
        raise ValueError(
            f"weights of width {width} take {size / 2**30:.3g} GiB, more than there is; use a smaller width"
        ) from error
