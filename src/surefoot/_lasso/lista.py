"""LISTA and LISTA-CPSS: networks that unroll ISTA for one matrix, with learned matrices; and what they do to the conditions under
which LISTA is known to converge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surefoot_check.rigor.gram import extreme_bounds

from .._core.team import Message, member, name_of
from .._core.validate import as_tensor, finite, kind_of, nonnegative, positive_integer, real
from .._learning.fit import Course, Objective, fit
from .._learning.optimizers import Adam
from .._learning.run import TrainRun
from .._learning.shared_sum import SharedSum, Terms, assign, flat
from .._problems import Problems
from .._problems.batch import soft
from .._problems.lasso import Lasso

Fresh = Callable[[int], tuple[Lasso, Tensor]]
"""Problems and their x* of an epoch, the same ones whenever it is called with that epoch."""


class UnrolledISTA(nn.Module, ABC):
    """T layers for min ½‖Mx - Y‖² + λ‖x‖₁ with one M for all problems; before training they are ISTA with the step 1/β.

    No theorem of this library covers them: trained, they neither need to decrease the objective nor to converge.

    Args:
        M: (b, d) float64 or float32, not zero.
        layers: T ≥ 1.
        lam: λ > 0, of the thresholds before training.
        shared: whether all layers share one learned matrix; thresholds belong to each layer.

    Raises:
        TypeError, ValueError: bad arguments.
    """

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

    ``UnrolledISTA`` has the arguments.
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


class LISTACPSS(UnrolledISTA):
    """x ← soft(x - Wᵀ(Mx - Y), θ_t) with coupled weights and support selection (Chen, Liu, Wang and Yin, 2018), at first W = M/β.

    Layer t passes its ``selection``·(t+1) coordinates largest in size without shrinking them, where they exceed θ_t, up to
    ``most``.

    Args:
        M, layers, lam, shared: as ``UnrolledISTA``.
        selection: share of the coordinates that each layer selects in addition; 0 is LISTA-CP.
        most: largest share selected.
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
        self.selection, self.most = nonnegative("selection", selection), nonnegative("most", most)
        if max(self.selection, self.most) > 1.0:
            raise ValueError(f"selection and most are {selection!r} and {most!r}; they are shares, at most 1")
        self.weights = self._copies(self.M / self.smoothness)

    @property
    def options(self) -> dict[str, Any]:
        return {**super().options, "selection": self.selection, "most": self.most}

    def layer(self, index: int, x: Tensor, Y: Tensor) -> Tensor:
        v = x - (x @ self.M.T - Y) @ self.weights[self._index(index)]
        threshold = self.thresholds[index].clamp(min=0.0)
        shrunk = soft(v, threshold)
        count = int(min(self.selection * (index + 1), self.most) * v.shape[1])
        if count == 0:
            return shrunk
        size = v.detach().abs()
        least = size.topk(count, dim=1).values[:, -1:]
        return torch.where((size >= least) & (size > threshold.detach()), v, shrunk)

    def weight(self, index: int) -> Tensor:
        return self.weights[self._index(index)].detach()


def train_lista(
    net: UnrolledISTA,
    problems: Lasso,
    targets: Any = None,
    epochs: int = 1000,
    learning_rate: float = 1e-3,
    *,
    fresh: Fresh | None = None,
) -> TrainRun:
    """Minimise the mean of ‖x_T - x*‖² with Adam; one step an epoch on all problems. The network is changed in place.
    The ranks of a job share the problems, with the same result up to the rounding of sums.

    Args:
        net: trained in place.
        problems: of the network's matrix.
        targets: x* (N, d): the signals that the problems were made of; by default their minimisers.
        epochs: steps.
        learning_rate: of Adam.
        fresh: other problems and x* each epoch, a function of the epoch; the best weights are those on ``problems``.

    Returns:
        The run. With ``fresh``, its losses are those on the fresh problems and its validation that on ``problems``. A non-finite
        loss ends it with status "diverged", Ctrl-C, SIGTERM and SIGHUP with "interrupted".

    Raises:
        TypeError, ValueError: bad arguments.
    """
    _checked(net)
    pairs = net.check(problems).Y, _targets(problems, targets)
    course, rate = Course.of(epochs), nonnegative("learning_rate", learning_rate)
    parameters = list(net.parameters())
    with ExitStack() as held:
        objective = _Errors(net, pairs, fresh, held)
        best, run = fit(objective, flat(parameters), Adam(rate), course, None, lambda path, w: None, held)
        assign(parameters, best)
    return run


class _Errors(Objective):
    """The mean error on the problems of the epoch, and that on those of all epochs; w is the vector of all parameters."""

    def __init__(self, net: UnrolledISTA, pairs: tuple[Tensor, Tensor], fresh: Fresh | None, held: ExitStack) -> None:
        self._net, self._fresh = net, fresh
        common = Message({"kind": name_of(type(net)), **net.options}, {"M": net.M})
        self._fixed = SharedSum(ErrorTerms, common, held)
        self._training = self._fixed if fresh is None else SharedSum(ErrorTerms, common, held)
        _take(self._fixed, *pairs)

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        if self._fresh is not None:
            problems, signals = self._fresh(epoch)
            _take(self._training, self._net.check(problems).Y, _targets(problems, signals))
        return self._training.value_and_gradient(w)

    def measure(self, w: Tensor) -> float | None:
        return None if self._fresh is None else self._fixed.measure(w)


class ErrorTerms(Terms):
    """‖x_T - x*‖²/N of some of N problems; w is the vector of all parameters of the network."""

    def __init__(self, common: Message) -> None:
        options = dict(common.facts)
        self._net: UnrolledISTA = member(options.pop("kind"))(common.tensors["M"], **options)

    def take(self, data: Message, part: slice, count: int) -> None:
        self._Y, self._targets = data.tensors["Y"], data.tensors["targets"]
        self._share = len(self._Y) / count

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        parameters = list(self._net.parameters())
        assign(parameters, w)
        loss = self._loss()
        return loss.detach(), flat(torch.autograd.grad(loss, parameters))

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        assign(self._net.parameters(), w)
        return float(self._loss())

    def _loss(self) -> Tensor:
        return self._share * (self._net(self._Y) - self._targets).square().sum(1).mean()


def _take(loss: SharedSum, Y: Tensor, targets: Tensor) -> None:
    loss.take(len(Y), {}, {"Y": Y, "targets": targets})


@dataclass(frozen=True)
class Violations:
    """Shares in [0, 1], by layer (T,) float64, in which the conditions under which LISTA is known to converge do not hold.

    Attributes:
        signs: entries with sign(x_t) ≠ sign(x*), of all problems and coordinates.
        false_positives: entries outside the support of x* that are in that of x_t, of those outside; what the proof excludes.
        diagonal: columns i with |W_iᵀM_i - 1| > tolerance.
        off_diagonal: pairs i ≠ j with |W_iᵀM_j| > limit |W_iᵀM_i|, whatever the scale of W.
    """

    signs: Tensor
    false_positives: Tensor
    diagonal: Tensor
    off_diagonal: Tensor

    def table(self) -> str:
        """Percentages by layer."""
        lines = ["layer    signs  false positives  W_i'M_i = 1  |W_i'M_j| small"]
        columns = (self.signs, self.false_positives, self.diagonal, self.off_diagonal)
        for index, row in enumerate(zip(*(100.0 * column for column in columns), strict=True), 1):
            signs, false, diagonal, off = (float(value) for value in row)
            lines.append(f"{index:5}  {signs:5.1f} %  {false:13.1f} %  {diagonal:9.1f} %  {off:13.1f} %")
        return "\n".join(lines)


def violations(
    net: UnrolledISTA, problems: Lasso, targets: Any = None, *, tolerance: float = 1e-2, limit: float | None = None
) -> Violations:
    """At inference, how many of the conditions of Chen et al. (2018) each layer violates (the paper's figure 2).

    Args:
        net: LISTA or LISTACPSS.
        problems: of the network's matrix.
        targets: x* (N, d); by default the minimisers of the problems.
        tolerance: allowed in W_iᵀM_i = 1.
        limit: what counts as small in |W_iᵀM_j|/|W_iᵀM_i|; by default the coherence max |M_iᵀM_j|/(‖M_i‖‖M_j‖) of M, which W = M
            attains for unit columns.

    Raises:
        TypeError, ValueError: bad arguments.
    """
    _checked(net)
    x_best = _targets(net.check(problems), targets)
    tolerance, M = nonnegative("tolerance", tolerance), net.M.double()
    off = ~torch.eye(M.shape[1], dtype=torch.bool, device=M.device)
    if limit is None:
        unit = M / M.norm(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
        limit = float((unit.T @ unit)[off].abs().max()) if M.shape[1] > 1 else 0.0
    limit = nonnegative("limit", limit)
    with torch.no_grad():
        iterates = net.iterates(problems.Y)[1:]
    outside = x_best == 0.0
    rows = []
    for index, x in enumerate(iterates):
        product = net.weight(index).double().T @ M
        rows.append(
            [
                _share(x.sign() != x_best.sign()),
                _share((x != 0.0)[outside]),
                _share((product.diagonal() - 1.0).abs() > tolerance),
                _share((product.abs() > limit * (1.0 + 1e-12) * product.diagonal().abs()[:, None])[off]),
            ]
        )
    return Violations(*torch.tensor(rows, dtype=torch.float64).unbind(1))


def _share(condition: Tensor) -> float:
    return float(condition.double().mean()) if condition.numel() else 0.0


def _checked(net: Any) -> None:
    if not isinstance(net, UnrolledISTA):
        raise TypeError(f"net is {kind_of(net)}; pass sf.nn.LISTA or sf.nn.LISTACPSS")


def _targets(problems: Lasso, targets: Any) -> Tensor:
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
