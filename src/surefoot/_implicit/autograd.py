"""The derivatives of the equilibrium of ``ImplicitReLU``, to any order, and its batches under ``torch.vmap``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from .adjoint import structural_columns
from .equilibrium import Equilibrium
from .norms import LOOSE
from .solvers import LowRankModel, SolverMemory


class Solves(Protocol):
    """What is asked of the network: its equations, solved with its own options."""

    def _norm(self, A: Tensor, share: float = 0.0) -> float: ...

    def _solve(self, A: Tensor, Phi: Tensor, norm_A: float, *, memory: SolverMemory) -> Equilibrium: ...

    def _require(self, what: str, solution: Equilibrium, norm_A: float) -> None: ...

    def _solve_linear(self, B: Tensor, active: Tensor, C: Tensor, gamma: float, **given: Any) -> Tensor: ...


@dataclass
class Call:
    """What a call of ``forward`` hands to its backward passes: the caller's memory, the bound of ‖A‖, and the model of A."""

    net: Solves
    memory: SolverMemory | None = None
    norm_A: float = math.inf
    model: LowRankModel | None = None

    def solve_linear(
        self, A: Tensor, active: Tensor, C: Tensor, gamma: float, transposed: bool, start: Tensor | None = None
    ) -> Tensor:
        """V = D ∘ (C + γVB), B = Aᵀ if ``transposed`` else A."""
        model = self.model.transposed if transposed and self.model is not None else self.model
        B = A.T if transposed else A
        return self.net._solve_linear(B, active, C, gamma, norm_B=self.norm_A, start=start, model=model)


class EquilibriumFunction(torch.autograd.Function):
    """(A, Φ) -> Z. Only Z is kept besides the arguments; the derivative is the solution of a linear equation at Z.

    γ is an argument, so that a later change of ``net.gamma`` does not reach a graph that exists already.
    """

    @staticmethod
    def forward(A: Tensor, Phi: Tensor, gamma: float, call: Call) -> Tensor:
        A, Phi = A.detach(), Phi.detach()
        memory = SolverMemory() if call.memory is None else call.memory
        call.norm_A = call.net._norm(A, LOOSE)
        equilibrium = call.net._solve(A, Phi, call.norm_A, memory=memory)
        call.net._require("the equilibrium", equilibrium, call.norm_A)
        call.model = memory.model
        # the tensor that is returned will hold on to the graph
        memory.Z = equilibrium.Z.detach()
        memory.release()
        return equilibrium.Z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        A, Phi, ctx.gamma, ctx.call = inputs
        ctx.save_for_backward(A, Phi, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        A, Phi, Z = ctx.saved_tensors
        with torch.no_grad():
            # Z > 0 where U > 0, to the accuracy of either
            active = (Z > 0) & ~((Phi == 0) & structural_columns(A))
        memory: SolverMemory | None = ctx.call.memory
        start = None if memory is None else memory.V
        V = LinearFunction.apply(A, grad_outputs[0], active, start, True, ctx.gamma, ctx.call)
        if memory is not None:
            memory.V = V.detach()
        return ctx.gamma * (Z.mT @ V) if ctx.needs_input_grad[0] else None, V, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        A, Phi, gamma, call = args
        A, (Phi,), shape = _rows_of_batch(info, in_dims[0], A, (in_dims[1],), (Phi,))
        return EquilibriumFunction.apply(A, Phi, gamma, call).reshape(shape), 0


class LinearFunction(torch.autograd.Function):
    """(A, C) -> V = D ∘ (C + γVB), B = Aᵀ or A; the derivative is the same with the other of the two, for every order."""

    @staticmethod
    def forward(
        A: Tensor, C: Tensor, active: Tensor, start: Tensor | None, transposed: bool, gamma: float, call: Call
    ) -> Tensor:
        return call.solve_linear(A.detach(), active, C.detach(), gamma, transposed, start)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        A, _, active, _, ctx.transposed, ctx.gamma, ctx.call = inputs
        ctx.save_for_backward(A, active, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        A, active, V = ctx.saved_tensors
        # ⟨grad, dV⟩ = ⟨Y, dC + γV dB⟩
        Y = LinearFunction.apply(A, grad_outputs[0], active, None, not ctx.transposed, ctx.gamma, ctx.call)
        gradient = Y.mT @ V if ctx.transposed else V.mT @ Y
        return ctx.gamma * gradient, Y, None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        A, C, active, _, transposed, gamma, call = args
        A, (C, active), shape = _rows_of_batch(info, in_dims[0], A, in_dims[1:3], (C, active))
        return LinearFunction.apply(A, C, active, None, transposed, gamma, call).reshape(shape), 0


def _rows_of_batch(
    info: Any, A_dim: int | None, A: Tensor, in_dims: tuple[int | None, ...], batched: tuple[Tensor, ...]
) -> tuple[Tensor, list[Tensor], tuple[int, ...]]:
    """A batch of matrices as the rows of one, because rows do not interact."""
    if A_dim is not None:
        raise NotImplementedError("torch.vmap over A is not supported, only over X; loop over the networks instead")
    moved = [
        value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0)
        for dim, value in zip(in_dims, batched, strict=True)
    ]
    shape = tuple(moved[0].shape)
    return A, [value.reshape(-1, shape[-1]) for value in moved], shape
