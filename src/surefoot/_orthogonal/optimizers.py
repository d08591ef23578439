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

from .._linalg.arguments import HALF
from .._linalg.polar import polar
from .cayley_steps import SHORT, STEPS, components, corrects_itself, move, reach, tangent
from .feasible import require_orthonormal
from .matrices import placed, tall_matrix
from .search import SearchedStep, descent_gradient

Closure = Callable[[], Any]
Group = dict[str, Any]
State = dict[str, Any]
Member = tuple[int, Tensor]
"""A parameter that has a gradient, and its place in the group."""
Parameters = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]


BATCHED = 2**14
"""Up to so many entries parameters of one shape are moved in one batch: calls, not arithmetic, take the time there."""


class CayleyOptimizer(Optimizer):
    """What both share: the groups, and a step that moves all parameters or, on an error, none.

    A group with ``orthonormal=True`` (the default) holds matrices (..., m, r) with orthonormal columns, rows if m < r, float32,
    float64 or complex. They move along Cayley curves and stay orthonormal to rounding, for any number of steps: each step
    takes away the defect that rounding left before, a long one by a Newton–Schulz step towards the polar factor. With
    ``flatten=True`` a parameter is one matrix, with its first dimension for rows: a convolution's weight (out, in, kh, kw) is
    the matrix (out, in·kh·kw), as ``torch.nn.init.orthogonal_`` makes it.

    float16 and bfloat16 parameters are rounded copies of orthonormal matrices in float32, which the state holds as ``master``;
    all else of their state is in float32 too. A parameter that something else wrote to starts anew from its polar factor.

    A group with ``orthonormal=False`` holds ordinary parameters, which move as torch's optimiser of the same name moves them.
    """

    def __setstate__(self, state: State) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("flatten", False)

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
                    flat = group["flatten"] and parameter.layout == torch.strided and parameter.ndim > 2
                    try:
                        require_orthonormal(name, parameter.flatten(1) if flat else parameter, half=self._takes_half)
                    except (TypeError, ValueError) as error:
                        hint = "ordinary parameters belong in a group with orthonormal=False"
                        if parameter.ndim > 2 and not flat:
                            hint += (
                                ", and convolutions, of which (out, in·kh·kw) is the matrix, in one with flatten=True"
                            )
                        raise type(error)(f"{error}; {hint}") from None
        super().add_param_group(group)

    @property
    def _takes_half(self) -> bool:
        """Whether orthonormal parameters may be of half precision."""
        return True

    def load_state_dict(self, state_dict: State) -> None:
        """As torch's; what torch rounds, the float32 state of half-precision parameters, stays as it was saved."""
        super().load_state_dict(state_dict)
        saved = (number for group in state_dict["param_groups"] for number in group["params"])
        own = (parameter for group in self.param_groups for parameter in group["params"])
        for number, parameter in zip(saved, own, strict=True):
            if parameter.dtype in HALF and "master" in state_dict["state"].get(number, ()):
                for key, value in state_dict["state"][number].items():
                    if isinstance(value, Tensor):
                        self.state[parameter][key] = value.to(parameter.device, copy=True)

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
            ValueError: a half-precision parameter that something else wrote to is not orthonormal.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moves: list[tuple[Tensor, Tensor, State]] = []
        for number, group in enumerate(self.param_groups):
            moving = [(index, p) for index, p in enumerate(group["params"]) if p.grad is not None]
            if group["orthonormal"]:
                for members in [moving] if len(moving) == 1 else self._alike(moving):
                    moves += self._moved(members, group, number)
            else:
                for _, p in moving:
                    moves.append((p, *self._ordinary(p, descent_gradient(p, group), group, self.state[p])))
        for parameter, value, state in moves:
            parameter.copy_(value)
            if state:
                self.state[parameter].update(state)
        return loss

    def _alike(self, moving: list[Member]) -> list[list[Member]]:
        """The parameters in lists of those that move in one batch."""
        lists: dict[Any, list[Member]] = {}
        for index, p in moving:
            state = self.state[p]
            alike = (p.shape, p.dtype, p.device, len(state), state.get("step")) if p.numel() <= BATCHED else index
            lists.setdefault(alike, []).append((index, p))
        return list(lists.values())

    def _moved(self, members: list[Member], group: Group, number: int) -> list[tuple[Tensor, Tensor, State]]:
        """Each parameter with its new value, and what changes in its state."""
        flatten = group["flatten"]
        if len(members) == 1:
            ((index, p),) = members
            U, G = self._matrices(p, group, index, number)
            value, state = self._step_of(U, G, group, self.state[p], members, number)
            return [(p, placed(value, p, flatten), state)]
        pairs = [self._matrices(p, group, index, number) for index, p in members]
        U, G = (torch.stack(matrices) for matrices in zip(*pairs, strict=True))
        states = [self.state[p] for _, p in members]
        state = {key: _stack([s[key] for s in states]) for key in states[0]}
        values, state = self._step_of(U, G, group, state, members, number)
        return [
            (p, placed(values[k], p, flatten), {key: _unstacked(entry, k) for key, entry in state.items()})
            for k, (_, p) in enumerate(members)
        ]

    def _matrices(self, parameter: Tensor, group: Group, index: int, number: int) -> tuple[Tensor, Tensor]:
        """The orthonormal matrix, tall, and its gradient, in the dtype of the computation."""
        flatten = group["flatten"]
        G = tall_matrix(descent_gradient(parameter, group), flatten)
        if parameter.dtype in HALF:
            return self._master(parameter, flatten, f"parameter {index} of group {number}"), G.float()
        return tall_matrix(parameter, flatten), G

    def _step_of(
        self, U: Tensor, G: Tensor, group: Group, state: State, members: list[Member], number: int
    ) -> tuple[Tensor, State]:
        """The new matrix, or those of a batch of members, and what changes in the state."""
        count, lr, reduced = len(members), float(group["lr"]), group["inverse"] == "reduced"
        D, A, N, new_state = self._direction(U, G, group, state)
        sizes = [lr * norm for norm in _norms(D, count)]
        short = reduced and all(size <= SHORT for size in sizes)
        if not short:
            lengths = [
                lr * math.sqrt(a * a + 2.0 * n * n) for a, n in zip(_norms(A, count), _norms(N, count), strict=True)
            ]
            _require_reach(lengths, U.dtype, members, group, number)
            short = reduced and all(map(corrects_itself, lengths, sizes))
        value = move(group["inverse"], U, A, N, lr, correct=not short)
        if members[0][1].dtype in HALF:
            new_state["master"] = value
        return value, new_state

    def _master(self, parameter: Tensor, flatten: bool, name: str) -> Tensor:
        """The tall matrix in float32 of which a half-precision parameter is the rounded copy."""
        matrix, master = tall_matrix(parameter, flatten), self.state[parameter].get("master")
        if master is None or not torch.equal(master.to(parameter.dtype), matrix):
            require_orthonormal(name, matrix, half=True)
            master = polar(matrix.float()).U
        return master

    def _check(self, group: Group) -> None:
        _in_range("lr", group["lr"], lambda lr: 0.0 < lr < math.inf, "above 0 and finite")
        _in_range("weight_decay", group["weight_decay"], lambda decay: 0.0 <= decay < math.inf, "at least 0 and finite")
        if group["inverse"] not in STEPS:
            raise ValueError(f"inverse is {group['inverse']!r}; it must be one of {', '.join(STEPS)}")
        if not isinstance(group["flatten"], bool):
            raise TypeError(f"flatten is {group['flatten']!r}; it must be True or False")

    @abstractmethod
    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, Tensor, State]:
        """The direction D against which U moves at the rate lr, its components A and N, and what changes in the state."""

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
        flatten: dimensions after the first are the columns of one matrix: for the weights of convolutions.
        inverse: "reduced" (one r×r solve), "woodbury" (2r×2r), "exact" (m×m), or "chebyshev" (products alone).
        line_search: "nonmonotone" chooses one length t for all parameters by Barzilai–Borwein steps and a nonmonotone Armijo
            search (Wen and Yin, 2013): parameters move by t·lr of their group. ``step`` then needs a closure, which it calls at
            least twice and which must be deterministic; momentum and weight decay must be 0. If the closure raises, the
            parameters are back at the last accepted point; trials with a non-finite loss or gradient are rejected.

    Raises:
        TypeError: an integer parameter, or with a line search one of half precision.
        ValueError: an option out of range, or a parameter that is not orthonormal.

    Example:
        >>> A = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
        >>> U = torch.nn.Parameter(torch.linalg.qr(torch.ones(3, 1) + torch.eye(3, 1)).Q)
        >>> optimizer = sf.optim.CayleySGD([U], lr=0.2)
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     (-(U.T @ A @ U).trace()).backward()
        ...     optimizer.step()
        >>> round((U.T @ A @ U).item(), 4), round(U.norm().item(), 4)  # the largest eigenvalue; still of norm 1
        (3.0, 1.0)
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
        flatten: bool = False,
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
                "flatten": flatten,
                "inverse": inverse,
                "orthonormal": True,
            },
        )

    def __getstate__(self) -> dict[str, Any]:
        # torch copies and pickles the groups and the state alone
        return {**super().__getstate__(), "line_search": self.line_search, "step_length": self.step_length}

    @property
    def _takes_half(self) -> bool:
        return self.line_search is None

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
        with torch.no_grad():
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

    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, Tensor, State]:
        if group["momentum"] == 0.0:
            return G, *components(U, G), {}
        # the buffer of a wide parameter is kept tall, as U is
        D = _averaged(G, group, state)
        A, N = components(U, D)
        buffer = tangent(U, A, N)
        if group["nesterov"]:
            D = G + group["momentum"] * buffer
            A, N = components(U, D)
        return D, A, N, {"momentum_buffer": buffer}

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
        flatten, inverse: as in ``CayleySGD``.

    Raises:
        TypeError: an integer parameter.
        ValueError: an option out of range, or a parameter that is not orthonormal.

    Example:
        >>> layer = torch.nn.Linear(8, 3)
        >>> _ = torch.nn.init.orthogonal_(layer.weight)
        >>> groups = [{"params": [layer.weight]}, {"params": [layer.bias], "orthonormal": False}]
        >>> optimizer = sf.optim.CayleyAdam(groups, lr=1e-2)
        >>> layer(torch.randn(5, 8)).square().sum().backward()
        >>> optimizer.step()
        >>> torch.allclose(layer.weight @ layer.weight.T, torch.eye(3), atol=1e-5)
        True
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
        flatten: bool = False,
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
                "flatten": flatten,
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

    def _direction(self, U: Tensor, G: Tensor, group: Group, state: State) -> tuple[Tensor, Tensor, Tensor, State]:
        beta1, beta2 = group["betas"]
        count = int(state.get("step", 0)) + 1
        A, N = components(U, G)
        # ½‖P‖²_F of each matrix, over its number of entries
        squares = (0.5 * _entries(A) + _entries(N)) / max(1, N.shape[-2] * N.shape[-1])
        second = (1.0 - beta2) * squares
        mean = (1.0 - beta1) * G
        if "exp_avg" in state:
            second = second + beta2 * state["exp_avg_sq"]
            mean = mean + beta1 * state["exp_avg"]
        A, N = components(U, mean)
        scale = (second / (1.0 - beta2**count)).sqrt().add(group["eps"]).mul(1.0 - beta1**count).reciprocal()
        new_state = {"step": count, "exp_avg": tangent(U, A, N), "exp_avg_sq": second}
        return scale * mean, scale * A, scale * N, new_state

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


def _stack(entries: list[Any]) -> Any:
    """Tensors of one shape as a batch; of numbers, which are equal, the first."""
    return torch.stack(entries) if isinstance(entries[0], Tensor) else entries[0]


def _unstacked(entry: Any, index: int) -> Any:
    # a copy: a view would keep the whole batch in memory and in checkpoints
    return entry[index].clone() if isinstance(entry, Tensor) else entry


def _norms(batch: Tensor, count: int) -> list[float]:
    """Frobenius norms of ``count`` tensors in a batch, or of the one."""
    if count == 1:
        return [torch.linalg.vector_norm(batch).item()]
    return torch.linalg.vector_norm(batch.flatten(1), dim=1).tolist()


def _require_reach(lengths: list[float], dtype: torch.dtype, members: list[Member], group: Group, number: int) -> None:
    longest = reach(dtype, group["inverse"])
    for length, (index, _) in zip(lengths, members, strict=True):
        where = f"parameter {index} of group {number}"
        if not math.isfinite(length):
            raise FloatingPointError(
                f"the gradient of {where} is not finite; nothing has moved: clip it, skip this batch, or lower lr"
            )
        if length > longest:
            raise FloatingPointError(
                f"lr‖P‖_F of {where} is {length:.3g}, many turns; nothing has moved: lower lr = {float(group['lr']):g}"
            )


def _entries(matrix: Tensor) -> Tensor:
    """Sum of the squared entries, (..., 1, 1)."""
    return matrix.abs().square().sum((-2, -1), keepdim=True)


def _in_range(name: str, value: Any, inside: Callable[[float], bool], range_text: str) -> None:
    scalar = isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex()
    if not scalar and (isinstance(value, bool) or not isinstance(value, Real)):
        raise TypeError(f"{name} is {value!r}; it must be a number {range_text}")
    if not inside(float(value)):
        raise ValueError(f"{name} is {value!r}; it must be {range_text}")
