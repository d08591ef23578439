"""LISTA, LISTA-CPSS and ALISTA: networks that unroll ISTA for one matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surefoot_check.rigor.gram import extreme_bounds

from .._core.validate import as_tensor, finite, kind_of, nonnegative, positive_integer, real
from .._problems import Problems
from .._problems.batch import soft
from .._problems.lasso import Lasso
from .analytic_weights import analytic_weights


class UnrolledISTA(nn.Module, ABC):
    """T layers for min ½‖Mx - Y‖² + λ‖x‖₁ with one M for all problems; before training those with learned matrices are ISTA with
    the step 1/β.

    No theorem of this library covers them: trained, they neither need to decrease the objective nor to converge.

    Args:
        M: (b, d) float64 or float32, not zero.
        layers: T ≥ 1.
        lam: λ ≥ 0, of the thresholds before training.
        shared: whether all layers share one learned matrix; thresholds belong to each layer.

    Raises:
        TypeError, ValueError: bad arguments.
    """

    __call__: Callable[..., Tensor]

    M: Tensor
    thresholds: nn.Parameter
    """(T,)"""

    def __init__(self, M: Any, layers: int, lam: float = 0.1, *, shared: bool = False) -> None:
        super().__init__()
        M = real("M", M, 2).to(as_tensor("M", M).dtype)  # float32 stays
        if not bool(M.any()):
            raise ValueError("M is zero; every x is optimal there: pass another matrix")
        self.layers, self.shared = positive_integer("layers", layers), bool(shared)
        lam = nonnegative("lam", lam)
        rows, columns = M.shape
        A = M.double().cpu().numpy()
        self.smoothness = extreme_bounds(A if rows <= columns else A.T.copy())[1][1] ** 2
        self.register_buffer("M", M.clone())
        self.thresholds = nn.Parameter(M.new_full((self.layers,), lam / self.smoothness))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments after M that decide its function, beside its parameters."""
        return {"layers": self.layers, "shared": self.shared}

    def extra_repr(self) -> str:
        return f"{tuple(self.M.shape)}, layers={self.layers}, shared={self.shared}"

    @abstractmethod
    def layer(self, index: int, x: Tensor, Y: Tensor) -> Tensor:
        """x_{t+1} (N, d) from x_t and Y (N, b), t = ``index``."""

    @abstractmethod
    def weight(self, index: int) -> Tensor:
        """W (b, d) of a layer, detached: the matrix in the place of M in Mᵀ(Mx - Y)/β."""

    def iterates(self, Y: Tensor) -> list[Tensor]:
        """x_0 = 0, x_1 … x_T (N, d) for Y (N, b)."""
        iterates = [Y.new_zeros(len(Y), self.M.shape[1])]
        for index in range(self.layers):
            iterates.append(self.layer(index, iterates[-1], Y))
        return iterates

    def forward(self, Y: Tensor) -> Tensor:
        """x_T (N, d) for Y (N, b)."""
        return self.iterates(Y)[-1]

    def check(self, problems: Problems) -> Lasso:
        """The problems, if they are of the network's matrix.

        Raises:
            TypeError, ValueError: not LASSO, another dtype, or other matrices.
        """
        if not isinstance(problems, Lasso):
            raise TypeError(f"problems is {kind_of(problems)}; pass sf.learned.Lasso")
        if problems.M.dtype != self.M.dtype or problems.M.device != self.M.device:
            raise TypeError(
                f"net is {self.M.dtype} on {self.M.device}, problems are {problems.M.dtype} on {problems.M.device}; "
                "convert one with .to"
            )
        if problems.M.shape[1:] != self.M.shape or not bool((problems.M == self.M).all()):
            raise ValueError(
                "problems have matrices other than net.M; the network is for one matrix: "
                "build problems with Lasso.from_matrix(net.M, …)"
            )
        return problems

    def _index(self, index: int) -> int:
        return 0 if self.shared else index

    def _copies(self, matrix: Tensor) -> nn.ParameterList:
        """The learned matrix of every layer, or of all."""
        return nn.ParameterList([nn.Parameter(matrix.clone()) for _ in range(1 if self.shared else self.layers)])


class LISTA(UnrolledISTA):
    """x ← soft(W1 Y + W2 x, θ_t) (Gregor and LeCun, 2010), at first W1 = Mᵀ/β, W2 = I - MᵀM/β and θ = λ/β.

    T layers for min ½‖Mx - Y‖² + λ‖x‖₁ with one M for all problems. No theorem of this library covers it. It takes Y (N, b), of
    the dtype of M, and gives x_T (N, d).

    Args:
        M: (b, d) float64 or float32, not zero.
        layers: T ≥ 1.
        lam: λ ≥ 0, of the thresholds before training.
        shared: whether all layers share one learned matrix W1 and one W2; thresholds belong to each layer.

    Raises:
        TypeError, ValueError: bad arguments.

    Example:
        >>> problems = sf.learned.Lasso.from_matrix(torch.randn(10, 20), lam=0.1, count=3)
        >>> net = sf.nn.LISTA(problems.M[0], layers=8, lam=0.1)
        >>> x = net(problems.Y)  # as many iterations of ISTA, until ``sf.learned.train_lista`` trains it
        >>> x.shape, bool((problems.objective(x) < problems.objective(0 * x)).all())
        (torch.Size([3, 20]), True)
    """

    def __init__(self, M: Any, layers: int, lam: float = 0.1, *, shared: bool = False) -> None:
        super().__init__(M, layers, lam, shared=shared)
        into = self.M.T / self.smoothness
        self.of_target = self._copies(into)
        self.of_iterate = self._copies(torch.eye(self.M.shape[1]).to(self.M) - into @ self.M)

    def layer(self, index: int, x: Tensor, Y: Tensor) -> Tensor:
        matrix = self._index(index)
        v = Y @ self.of_target[matrix].T + x @ self.of_iterate[matrix].T
        return soft(v, self.thresholds[index].clamp(min=0.0))

    def weight(self, index: int) -> Tensor:
        return self.of_target[self._index(index)].detach().T


@dataclass(frozen=True)
class Selection:
    """Which coordinates a layer passes without shrinking them: the ``selection``·(t+1) largest in size, as a share, where they
    exceed the threshold, and at most the share ``most``.

    Raises:
        TypeError, ValueError: not shares.
    """

    selection: float
    most: float

    def __post_init__(self) -> None:
        for name in ("selection", "most"):
            nonnegative(name, getattr(self, name))
        if max(self.selection, self.most) > 1.0:
            raise ValueError(f"selection and most are {self.selection!r} and {self.most!r}; they are shares, at most 1")

    def pass_on(self, v: Tensor, threshold: Tensor, index: int) -> Tensor:
        """soft(v, threshold) (N, d), except for what the layer ``index`` selects."""
        threshold = threshold.clamp(min=0.0)
        shrunk = soft(v, threshold)
        count = int(min(self.selection * (index + 1), self.most) * v.shape[1])
        if count == 0:
            return shrunk
        size = v.detach().abs()
        least = size.topk(count, dim=1).values[:, -1:]
        return torch.where((size >= least) & (size > threshold.detach()), v, shrunk)


class LISTACPSS(UnrolledISTA):
    """x ← soft(x - Wᵀ(Mx - Y), θ_t) with coupled weights and support selection (Chen, Liu, Wang and Yin, 2018), at first W = M/β.

    Layer t passes its ``selection``·(t+1) coordinates largest in size without shrinking them, where they exceed θ_t, up to
    ``most``.

    Args:
        M, layers, lam, shared: as ``LISTA``; the learned matrix is W.
        selection: share of the coordinates that each layer selects in addition; 0 is LISTA-CP.
        most: largest share selected.

    Raises:
        TypeError, ValueError: bad arguments, or shares that are none.

    Example:
        >>> M, count = torch.randn(10, 20), lambda net: sum(p.numel() for p in net.parameters())
        >>> count(sf.nn.LISTACPSS(M, layers=8)), count(sf.nn.LISTACPSS(M, layers=8, shared=True)), count(sf.nn.LISTA(M, layers=8))
        (1608, 208, 4808)
    """

    def __init__(
        self,
        M: Any,
        layers: int,
        lam: float = 0.1,
        *,
        shared: bool = False,
        selection: float = 0.012,
        most: float = 0.12,
    ) -> None:
        super().__init__(M, layers, lam, shared=shared)
        self.selection = Selection(selection, most)
        self.weights = self._copies(self.M / self.smoothness)

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, **asdict(self.selection)}

    def layer(self, index: int, x: Tensor, Y: Tensor) -> Tensor:
        v = x - (x @ self.M.T - Y) @ self.weights[self._index(index)]
        return self.selection.pass_on(v, self.thresholds[index], index)

    def weight(self, index: int) -> Tensor:
        return self.weights[self._index(index)].detach()


class ALISTA(UnrolledISTA):
    """x ← soft(x - γ_t Wᵀ(Mx - Y), θ_t) with support selection and analytic weights: of a layer only γ_t and θ_t are learned
    (Liu, Chen, Wang and Yin, 2019). At first γ = 1 and θ = λ.

    Args:
        M, layers, lam: as ``LISTA``.
        selection, most: as ``LISTACPSS``.

    Attributes:
        W: (b, d), of ``sf.learned.analytic_weights``; not learned.
        coherence, least_coherence: of W and M, as there.

    Raises:
        TypeError, ValueError: bad arguments, shares that are none, or a column of zeros in M.

    Example:
        >>> M = torch.randn(10, 20)
        >>> M = M / M.norm(dim=0)
        >>> net = sf.nn.ALISTA(M, layers=8, lam=0.05)
        >>> net(torch.randn(3, 10)).shape, sum(p.numel() for p in net.parameters())  # 3 problems; 2 numbers a layer to learn
        (torch.Size([3, 20]), 16)
    """

    W: Tensor
    steps: nn.Parameter
    """γ (T,)"""

    def __init__(self, M: Any, layers: int, lam: float = 0.1, *, selection: float = 0.012, most: float = 0.12) -> None:
        super().__init__(M, layers, lam)
        self.selection = Selection(selection, most)
        found = analytic_weights(self.M)
        self.coherence, self.least_coherence = found.coherence, found.least_coherence
        self.register_buffer("W", found.W)
        self.steps = nn.Parameter(self.M.new_ones(self.layers))
        with torch.no_grad():
            self.thresholds.fill_(lam)

    @property
    def options(self) -> dict[str, Any]:
        return {"layers": self.layers, **asdict(self.selection)}

    def layer(self, index: int, x: Tensor, Y: Tensor) -> Tensor:
        v = x - self.steps[index] * ((x @ self.M.T - Y) @ self.W)
        return self.selection.pass_on(v, self.thresholds[index], index)

    def weight(self, index: int) -> Tensor:
        """W (b, d), without the step."""
        return self.W


def check_unrolled(net: Any) -> None:
    """Raise unless ``net`` is one of these networks."""
    if not isinstance(net, UnrolledISTA):
        raise TypeError(f"net is {kind_of(net)}; pass sf.nn.LISTA, LISTACPSS or ALISTA")


def targets_of(problems: Lasso, targets: Any) -> Tensor:
    """x* (N, d) in the problems' dtype."""
    if targets is None:
        return problems.optimum().to(problems.M)
    targets = as_tensor("targets", targets).to(problems.M)
    if targets.shape != (problems.count, problems.columns):
        raise ValueError(
            f"targets has shape {tuple(targets.shape)}; these problems need {(problems.count, problems.columns)}"
        )
    finite("targets", targets)
    return targets
