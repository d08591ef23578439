"""The network that proposes step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from .._core.io import reading, write_tensors
from .._core.validate import as_tensor, finite, integer, kind_of, positive_integer, real
from .._problems import Problems
from . import inference
from .smoothness import Smoothness
from .unrolled import Evaluator, Solution, solve


class StepSizeNet(nn.Module):
    """P = low + (high - low) σ(W_L relu(W_{L-1} … relu(W_1 (x_i, g_i)))), for every coordinate i by itself, without biases.

    The step it proposes is x_i - (P/β) g_i. Whatever the weights, P lies in [low, high].

    Args:
        weights: W_1 (n_1, 2), W_2 (n_2, n_1) …, W_L (1, n_{L-1}), at least two. The network is float32 if all of them are, and
            float64 otherwise; its problems are of its dtype.
        low: 0 ≤ low < high.
        high: at most 2 for the theorems to speak of the network; others are refused when a certificate is asked for.

    Raises:
        TypeError: integer, half-precision or complex weights.
        ValueError: empty, non-finite, shapes that do not fit, or a range that is none.

    Example:
        >>> net = sf.nn.StepSizeNet.orthogonal(widths=(2, 8), range=(1.0, 1.95))
        >>> x, gradient = torch.randn(2, 5, 6, dtype=torch.float64)
        >>> P = net(x, gradient)  # a step for each coordinate, in the range whatever the weights
        >>> P.shape, bool(((P >= 1.0) & (P <= 1.95)).all())
        (torch.Size([5, 6]), True)
    """

    __call__: Callable[..., Tensor]

    weights: nn.ParameterList

    def __init__(self, weights: Sequence[Any], low: float = 0.0, high: float = 2.0) -> None:
        super().__init__()
        layers = [real(f"weights[{index}]", W, 2) for index, W in enumerate(weights)]
        if all(as_tensor(f"weights[{index}]", W).dtype == torch.float32 for index, W in enumerate(weights)):
            layers = [W.float() for W in layers]  # single precision stays
        shapes = [tuple(W.shape) for W in layers]
        if (
            len(layers) < 2
            or shapes[0][1] != 2
            or shapes[-1][0] != 1
            or any(after[1] != before[0] for before, after in pairwise(shapes))
        ):
            raise ValueError(
                f"weights have the shapes {shapes}; they must be (n_1, 2), (n_2, n_1), …, (1, n), at least two of them"
            )
        self.weights = nn.ParameterList([nn.Parameter(W.clone(memory_format=torch.contiguous_format)) for W in layers])
        self.low, self.high = _range((low, high))

    @classmethod
    def orthogonal(
        cls,
        widths: Sequence[int] = (2, 2, 1024),
        range: tuple[float, float] = (0.0, 2.0),
        expansion: float = 1.0,
        seed: int = 0,
    ) -> StepSizeNet:
        """W_1 … W_{L-1} orthogonal times ``expansion``, drawn in this order; W_L = 0, so that training starts at a constant step.

        Args:
            widths: 2 (the inputs x and g) and the hidden widths; the default is that of the published code for 20x32.
            range: (low, high).
            expansion: e > 0.
            seed: of the Gaussian matrices that are made orthogonal.

        Raises:
            ValueError: arguments out of range.
        """
        sizes = [positive_integer(f"widths[{index}]", width) for index, width in enumerate(widths)]
        if len(sizes) < 2 or sizes[0] != 2:
            raise ValueError(
                f"widths is {tuple(widths)}; it must be 2, for the inputs x and g, and at least one hidden width"
            )
        if isinstance(expansion, bool) or not isinstance(expansion, Real) or not 0.0 < expansion < float("inf"):
            raise ValueError(f"expansion is {expansion!r}; it must be a positive number")
        generator = torch.Generator().manual_seed(integer("seed", seed, 0))
        layers = [
            orthogonalised(torch.randn(after, before, generator=generator, dtype=torch.float64), float(expansion))
            for before, after in pairwise(sizes)
        ]
        return cls([*layers, torch.zeros(1, sizes[-1], dtype=torch.float64)], *_range(range))

    @property
    def widths(self) -> tuple[int, ...]:
        """2, n_1, …, n_{L-1}."""
        return tuple(W.shape[1] for W in self.weights)

    @property
    def range(self) -> tuple[float, float]:
        """(low, high)."""
        return self.low, self.high

    @property
    def matrices(self) -> list[Tensor]:
        """W_1 … W_L, detached."""
        return [W.detach() for W in self.weights]

    def extra_repr(self) -> str:
        return f"widths={self.widths}, range={self.range}"

    def __repr__(self) -> str:  # without a line for each of the weights
        return f"{type(self).__name__}({self.extra_repr()})"

    def logits(self, x: Tensor, g: Tensor) -> Tensor:
        """z = W_L h_{L-1}, of the common shape of x and g."""
        hidden = torch.stack([x, g], dim=-1)
        for W in self.weights[:-1]:
            hidden = relu(hidden @ W.T)
        return (hidden @ self.weights[-1].T).squeeze(-1)

    def forward(self, x: Tensor, g: Tensor) -> Tensor:
        """P for iterates x and gradients g of one shape."""
        return self.steps(self.logits(x, g))

    def steps(self, z: Tensor) -> Tensor:
        """P = low + (high - low) σ(z), never outside the range by rounding; a z that is NaN, which finite weights and inputs give
        only by overflow, counts as 0."""
        z = z.nan_to_num(0.0, math.inf, -math.inf)
        return (self.low + (self.high - self.low) * torch.sigmoid(z)).clamp(self.low, self.high)

    def steps_derivative(self, z: Tensor) -> Tensor:
        """∂P/∂z."""
        return torch.where(z.isnan(), 0.0, (self.high - self.low) * (torch.sigmoid(z) * torch.sigmoid(-z)))

    def evaluator(self) -> Evaluator:
        """The fastest exact form for these weights: the sector table for two hidden layers, the layers themselves otherwise."""
        weights = self.matrices
        if len(weights) == 3 and all(bool(W.isfinite().all()) for W in weights):
            return Sectors(*weights)
        return Dense(weights)

    def solve(
        self,
        problems: Problems,
        iterations: int,
        start: Any = None,
        smoothness: Smoothness = None,
        *,
        trajectory: bool = False,
    ) -> Solution:
        """``iterations`` proximal gradient steps x ← prox(x - (P/β) ∇f(x)) with the same P/β in the prox.

        Args:
            problems: of the network's dtype and device.
            iterations: T ≥ 0.
            start: first iterate (N, d); zero by default.
            smoothness: β: ``problems.smoothness``, one for each problem, times 1 + 1e-8 as room for the rounding of a certificate
                (default, also "per-problem"); its maximum ("common"); that divided by .9999, as in the published code
                ("authors"); or numbers, for which no theorem speaks where they are smaller than ``problems.smoothness``.
            trajectory: keep all iterates.

        Raises:
            TypeError, ValueError: bad arguments, or a dtype or device that differs.
        """
        check_net(self)
        check_problems(self, problems)
        weights = self.matrices
        if inference.admits(weights, problems):
            return inference.solve(weights, self.range, problems, iterations, start, smoothness, trajectory=trajectory)
        return solve(self, problems, iterations, start, smoothness, trajectory=trajectory)

    def save(self, path: str | Path) -> None:
        """Write weights and range to a safetensors file, atomically."""
        stored = {f"W{index}": W for index, W in enumerate(self.matrices, 1)}
        write_tensors(Path(path), {**stored, "range": torch.tensor(self.range, dtype=torch.float64)})

    @classmethod
    def load(cls, path: str | Path) -> StepSizeNet:
        """The network that ``save`` wrote.

        Raises:
            RunDirectoryError: missing, damaged, or no such network.
        """
        with reading(path, "step-size network") as stored:
            low, high = stored.pop("range").tolist()
            layers = [stored[f"W{index}"] for index in range(1, len(stored) + 1)]
            return cls(layers, low, high)


class Dense:
    """The network layer by layer, for any depth; ``Evaluator``. Derivatives of relu at 0 are 0."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = list(weights)
        self._sums = [torch.zeros_like(W) for W in weights]

    def evaluate(self, x: Tensor, g: Tensor) -> Tensor:
        return self._layers(x, g)[1].reshape(x.shape)

    def pullback(self, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        inputs, _ = self._layers(x, g)
        delta = q.reshape(-1, 1)
        for layer in reversed(range(len(self._weights))):
            self._sums[layer].addmm_(delta.T, inputs[layer])
            delta = delta @ self._weights[layer]
            if layer:
                delta = delta * (inputs[layer] > 0.0)
        return delta[:, 0].reshape(x.shape), delta[:, 1].reshape(x.shape)

    def gradients(self) -> list[Tensor]:
        return self._sums

    def _layers(self, x: Tensor, g: Tensor) -> tuple[list[Tensor], Tensor]:
        """What enters each layer, (x.numel(), n_{l-1}), and the output."""
        inputs = [torch.stack([x.reshape(-1), g.reshape(-1)], dim=1)]
        for W in self._weights[:-1]:
            inputs.append(relu(inputs[-1] @ W.T))
        return inputs, inputs[-1] @ self._weights[-1].T


class Sectors:
    """The table of a network with two hidden layers and finite weights; ``Evaluator``."""

    def __init__(self, W1: Tensor, W2: Tensor, W3: Tensor) -> None:
        from .sectors import Table

        self._table = Table(W1, W2, W3)
        self._sums = self._table.accumulator()

    def evaluate(self, x: Tensor, g: Tensor) -> Tensor:
        return self._table.evaluate(x, g)

    def pullback(self, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        self._sums.add(x, g, q)
        of_x, of_g = self._table.slopes(x, g)
        return q * of_x, q * of_g

    def gradients(self) -> list[Tensor]:
        return list(self._sums.weight_gradients())


def check_net(net: StepSizeNet) -> None:
    """Raise unless ``net`` is a network with finite weights."""
    if not isinstance(net, StepSizeNet):
        raise TypeError(f"net is {kind_of(net)}; pass sf.nn.StepSizeNet")
    for index, weight in enumerate(net.matrices):
        finite(f"net.weights[{index}]", weight)


def check_problems(net: StepSizeNet, problems: Problems, name: str = "problems") -> None:
    """Raise unless ``problems`` are a batch of the network's dtype and device."""
    if not isinstance(problems, Problems):
        raise TypeError(f"{name} is {kind_of(problems)}; pass sf.learned.LeastSquares, Lasso or Logistic")
    W = net.weights[0]
    if W.dtype != problems.M.dtype or W.device != problems.M.device:
        raise TypeError(
            f"net is {W.dtype} on {W.device}, {name} are {problems.M.dtype} on {problems.M.device}; convert one with .to"
        )


def orthogonalised(A: Tensor, expansion: float = 1.0) -> Tensor:
    """``expansion`` times Q of A = QR, or of Aᵀ where A is wide, with signs that make the diagonal of R non-negative."""
    Q, R = torch.linalg.qr(A if A.shape[0] >= A.shape[1] else A.T)
    Q = Q * torch.where(R.diagonal() < 0.0, -1.0, 1.0)
    return expansion * (Q if A.shape[0] >= A.shape[1] else Q.T)


def _range(value: Any) -> tuple[float, float]:
    try:
        low, high = value
        if isinstance(low, bool) or isinstance(high, bool):
            raise TypeError
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        raise TypeError(f"range is {value!r}; pass two numbers (low, high)") from None
    if not 0.0 <= low < high < float("inf"):
        raise ValueError(f"the range of P is ({low}, {high}); it must be 0 <= low < high, and high <= 2 for guarantees")
    return low, high
