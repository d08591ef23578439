"""Optimisers for parameters with orthonormal columns, beside ordinary parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .cayley_steps import STEPS, components, polar_correction, reach, slope, tall, tangent
from .feasible import require_orthonormal
from .search import SearchedStep, descent_gradient

Closure = Callable[[], Any]
Group = dict[str, Any]
State = dict[str, Any]
Parameters = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]


class CayleyOptimizer(Optimizer):
    """What both share: the groups, and a step that moves all parameters or, on an error, none.

    A group with ``orthonormal=True`` (the default) holds matrices (..., m, r) with orthonormal columns, rows if m < r, float32,
    float64 or complex. They move along Cayley curves and stay orthonormal to rounding, for any number of steps: each step ends
    with one Newton–Schulz step towards the polar factor. A group with ``orthonormal=False`` holds ordinary parameters, which
    move as torch's optimiser of the same name moves them.
    """

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; the options it leaves out are the defaults.

        Raises:
            TypeError, ValueError: an option out of range, or a parameter of an orthonormal group that is not orthonormal.
        """
        group = {**self.defaults, **param_group}
        self._check(group)
        if group["orthonormal"]:
            given = group["params"]
            group["params"] = given = [given] if isinstance(given, Tensor) else list(given)
            for index, entry in enumerate(given):
                name, parameter = entry if isinstance(entry, tuple) else (f"parameter {index}", entry)
                if isinstance(parameter, Tensor):  # torch refuses anything else
                    try:
                        require_orthonormal(name, parameter)
                    except (TypeError, ValueError) as error:
                        hint = "ordinary parameters belong in a group with orthonormal=False"
                        raise type(error)(f"{error}; {hint}") from None
        super().add_param_group(group)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step of every parameter that has a gradient.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns the loss.

        Returns:
            the loss that the closure returned, or None.

        Raises:
            FloatingPointError: an orthonormal parameter has a non-finite gradient, or one so long for its lr that the step would
                be many turns; no parameter has moved, the ordinary ones neither.
            RuntimeError: a sparse gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moves: list[tuple[Tensor, Tensor, State]] = []
        for number, group in enumerate(self.param_groups):
            for index, parameter in enumerate(group["params"]):
                if parameter.grad is None:
                    continue
                gradient = descent_gradient(parameter, group)
                state = self.state[parameter]
                if group["orthonormal"]:
                    where = f"parameter {index} of group {number}"
                    moves.append((parameter, *self._moved(parameter, gradient, group, state, where)))
                else:
                    moves.append((parameter, *self._ordinary(parameter, gradient, group, state)))
        for parameter, value, state in moves:
            parameter.copy_(value)
            self.state[parameter].update(state)
        return loss

    def _moved(
        self, parameter: Tensor, gradient: Tensor, group: Group, state: State, where: str
    ) -> tuple[Tensor, State]:
        adjoint = parameter.shape[-2] < parameter.shape[-1]
        U = tall(parameter)
        A, N, new_state = self._direction(U, gradient.mH if adjoint else gradient, group, state)
        lr = float(group["lr"])
        length = lr * math.sqrt(2.0 * slope(A, N))
        if not math.isfinite(length):
            raise FloatingPointError(
                f"the gradient of {where} is not finite; nothing has moved: clip it, skip this batch, or lower lr"
            )
        if length > reach(U.dtype, group["inverse"]):
            raise FloatingPointError(
                f"lr‖P‖_F of {where} is {length:.3g}, many turns; nothing has moved: lower lr = {lr:g}"
            )
        value = polar_correction(STEPS[group["inverse"]](U, A, N, lr))
        return value.mH if adjoint else value, new_state

    def _check(self, group: Group) -> None:
        _in_range("lr", group["lr"], lambda lr: 0.0 < lr < math.inf, "above 0 and finite")
        _in_range("weight_decay", group["weight_decay"], lambda decay: 0.0 <= decay < math.inf, "at least 0 and finite")
        if group["inverse"] not in STEPS:
            raise ValueError(f"inverse is {group['inverse']!r}; it must be one of {', '.join(STEPS)}")

    @abstractmethod
    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, State]:
        """Components of the direction against which U moves at the rate lr, and what changes in the state."""

    @abstractmethod
    def _ordinary(self, parameter: Tensor, gradient: Tensor, group: Group, state: State) -> tuple[Tensor, State]:
        """The new value of an ordinary parameter, and what changes in the state."""


class CayleySGD(CayleyOptimizer):
    """Stochastic gradient descent with momentum on matrices with orthonormal columns (rows if wide).

    Without momentum a step is equation (6) of the learning-based matrix inverse paper with t = lr. The momentum buffer is carried
    from point to point by projection on the tangent space (as in Li, Li and Todorovic, 2020).

    Args:
        params: parameters or groups; a group may set any option below and ``orthonormal=False`` (see ``CayleyOptimizer``).
        lr: step length t; with a line search the first trial.
        momentum, dampening, weight_decay, nesterov, maximize: as in ``torch.optim.SGD``. Weight decay acts on ordinary parameters
            only: on orthonormal ones the penalty is constant.
        inverse: "reduced" (one r×r solve), "woodbury" (2r×2r), "exact" (m×m), or "chebyshev" (products alone).
        line_search: "nonmonotone" chooses one length t for all parameters by Barzilai–Borwein steps and a nonmonotone Armijo
            search (Wen and Yin, 2013): parameters move by t·lr of their group. ``step`` then needs a closure, which it calls at
            least twice and which must be deterministic; momentum and weight decay must be 0. If the closure raises, the
            parameters are back at the last accepted point; trials with a non-finite loss or gradient are rejected.

    Raises:
        TypeError: an integer or half-precision parameter.
        ValueError: an option out of range, or a parameter that is not orthonormal.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        inverse: str = "reduced",
        line_search: str | None = None,
    ) -> None:
        if line_search not in (None, "nonmonotone"):
            raise ValueError(f"line_search is {line_search!r}; it must be None or 'nonmonotone'")
        self.line_search = line_search
        self.step_length: float | None = None
        """t of the last line search: 0 where no step lowered the loss, None before the first."""
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
                "inverse": inverse,
                "orthonormal": True,
            },
        )

    def __getstate__(self) -> dict[str, Any]:
        # torch copies and pickles the groups and the state alone
        return {**super().__getstate__(), "line_search": self.line_search, "step_length": self.step_length}

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step; see ``CayleyOptimizer.step``. With a line search, the loss at the start of the step is returned.

        Raises:
            ValueError: a line search without closure.
            FloatingPointError: a non-finite loss or gradient at the start of the step; no parameter has moved.
        """
        if self.line_search is None:
            return super().step(closure)
        if closure is None:
            raise ValueError(
                "line_search needs step(closure), and the closure must compute the loss and its gradients anew"
            )
        with torch.enable_grad():
            loss = closure()
        self.step_length = SearchedStep(self.param_groups, self.state, closure).run(loss)
        return loss

    def _check(self, group: Group) -> None:
        super()._check(group)
        momentum = group["momentum"]
        _in_range("momentum", momentum, lambda beta: 0.0 <= beta < 1.0, "at least 0 and below 1")
        if group["nesterov"] and (momentum <= 0.0 or group["dampening"] != 0.0):
            raise ValueError("nesterov needs momentum above 0 and dampening 0")
        if self.line_search is not None and (momentum != 0.0 or group["weight_decay"] != 0.0):
            raise ValueError(
                "line_search compares losses, which momentum and weight_decay do not descend: set both to 0"
            )

    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, State]:
        if group["momentum"] == 0.0:
            return *components(U, G), {}
        # the buffer of a wide parameter is kept tall, as U is
        buffer = _averaged(G, group, state)
        A, N = components(U, buffer)
        buffer = tangent(U, A, N)
        if group["nesterov"]:
            A, N = components(U, G + group["momentum"] * buffer)
        return A, N, {"momentum_buffer": buffer}

    def _ordinary(self, parameter: Tensor, gradient: Tensor, group: Group, state: State) -> tuple[Tensor, State]:
        if group["weight_decay"] != 0.0:
            gradient = gradient + group["weight_decay"] * parameter
        update: State = {}
        if group["momentum"] != 0.0:
            buffer = _averaged(gradient, group, state)
            update = {"momentum_buffer": buffer}
            gradient = gradient + group["momentum"] * buffer if group["nesterov"] else buffer
        return torch.add(parameter, gradient, alpha=-float(group["lr"])), update


class CayleyAdam(CayleyOptimizer):
    """Adam on matrices with orthonormal columns (rows if wide).

    The first moment is carried from point to point by projection on the tangent space. The second moment is one number for each
    matrix, the mean square of the tangent gradient's entries, since a scaling entry by entry would leave the tangent space (Li,
    Li and Todorovic, 2020); with the mean, lr has about the size it has in Adam.

    Args:
        params: parameters or groups; a group may set any option below and ``orthonormal=False`` (see ``CayleyOptimizer``).
        lr, betas, eps, weight_decay, maximize: as in ``torch.optim.Adam``. Weight decay acts on ordinary parameters only: on
            orthonormal ones the penalty is constant.
        inverse: as in ``CayleySGD``.

    Raises:
        TypeError: an integer or half-precision parameter.
        ValueError: an option out of range, or a parameter that is not orthonormal.
    """

    def __init__(
        self,
        params: Parameters,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        inverse: str = "reduced",
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "inverse": inverse,
                "orthonormal": True,
            },
        )

    def _check(self, group: Group) -> None:
        super()._check(group)
        if not isinstance(group["betas"], tuple | list) or len(group["betas"]) != 2:
            raise ValueError(f"betas is {group['betas']!r}; it must be two numbers (beta1, beta2)")
        for index, beta in enumerate(group["betas"]):
            _in_range(f"betas[{index}]", beta, lambda value: 0.0 <= value < 1.0, "at least 0 and below 1")
        _in_range("eps", group["eps"], lambda eps: 0.0 < eps < math.inf, "above 0 and finite")

    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, State]:
        beta1, beta2 = group["betas"]
        count = int(state.get("step", 0)) + 1
        A, N = components(U, G)
        # ½‖P‖²_F of each matrix, over its number of entries
        squares = (0.5 * _entries(A) + _entries(N)) / max(1, N.shape[-2] * N.shape[-1])
        second = (1.0 - beta2) * squares
        mean = (1.0 - beta1) * G
        if state:
            second = second + beta2 * state["exp_avg_sq"]
            mean = mean + beta1 * state["exp_avg"]
        A, N = components(U, mean)
        scale = (second / (1.0 - beta2**count)).sqrt().add(group["eps"]).mul(1.0 - beta1**count).reciprocal()
        return scale * A, scale * N, {"step": count, "exp_avg": tangent(U, A, N), "exp_avg_sq": second}

    def _ordinary(self, parameter: Tensor, gradient: Tensor, group: Group, state: State) -> tuple[Tensor, State]:
        if group["weight_decay"] != 0.0:
            gradient = gradient + group["weight_decay"] * parameter
        value: Tensor = parameter
        if parameter.is_complex():  # real and imaginary parts are scaled each by itself, as in torch
            value, gradient = torch.view_as_real(value), torch.view_as_real(gradient.resolve_conj())
        beta1, beta2 = group["betas"]
        count = int(state.get("step", 0)) + 1
        first = (1.0 - beta1) * gradient
        second = (1.0 - beta2) * gradient.square()
        if state:
            first, second = first + beta1 * state["exp_avg"], second + beta2 * state["exp_avg_sq"]
        scale = (second / (1.0 - beta2**count)).sqrt().add(group["eps"])
        # a scheduler may set lr to 0
        value = torch.addcdiv(value, first, scale, value=-float(group["lr"]) / (1.0 - beta1**count))
        moved = torch.view_as_complex(value) if parameter.is_complex() else value
        return moved, {"step": count, "exp_avg": first, "exp_avg_sq": second}


def _averaged(gradient: Tensor, group: Group, state: State) -> Tensor:
    """The momentum buffer with the new gradient; the first gradient enters undamped, as in torch."""
    if "momentum_buffer" not in state:
        return gradient.clone()
    return group["momentum"] * state["momentum_buffer"] + (1.0 - group["dampening"]) * gradient


def _entries(matrix: Tensor) -> Tensor:
    """Sum of the squared entries, (..., 1, 1)."""
    return matrix.abs().square().sum((-2, -1), keepdim=True)


def _in_range(name: str, value: Any, inside: Callable[[float], bool], range_text: str) -> None:
    scalar = isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()
    if not scalar and (isinstance(value, bool) or not isinstance(value, Real)):
        raise TypeError(f"{name} is {value!r}; it must be a number {range_text}")
    if not inside(float(value)):
        raise ValueError(f"{name} is {value!r}; it must be {range_text}")
