"""Inexact by choice: derivatives by a few damped steps, with a bound of what is left out, and states on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..._core.brief import brief
from ..._core.validate import positive, positive_integer
from ..solver.fixed_point import solve
from ..solver.records import SolveInfo, SolveStatus
from .implicit_function import Kind, Settings


@dataclass(frozen=True)
class PhantomGradient:
    """Derivatives of an equilibrium by K damped steps: inexact, but cheap (Geng et al., "On Training Implicit Models", 2021).

    Of u = v + Jᵀu, with J = ∂f/∂z, u_K is taken, where u_{k+1} = (1 − d) u_k + d (v + Jᵀu_k) from u_0 = 0. This is the
    derivative of K damped steps z ↦ (1 − d) z + d f(z, x) that begin at the equilibrium as if it were a constant; the memory is
    that of one step. Left out is ((1 − d) I + d Jᵀ)^K u, at most (1 − d (1 − q))^K of ‖u‖ if ‖J‖ ≤ q. K = 1 with d = 1
    neglects J altogether (Fung et al., "JFB: Jacobian-free backpropagation for implicit networks", 2022). Forward mode and
    higher derivatives are cut short alike.

    The record then has the status ``truncated``, ``exact`` False, and in ``error_bound`` a bound of ‖u_K − u‖: as in a solve,
    a guarantee where the contraction factor was given, else an estimate from the steps (``inf`` for K = 1, which shows none).
    Its ``contraction`` is that of a damped step.

    Args:
        steps: K.
        damping: d, above 0 and at most 1.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range.

    Example:
        >>> W = torch.tensor([0.5], requires_grad=True)
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: torch.tanh(W * z + x), contraction=0.5, gradient=sf.nn.PhantomGradient(5))
        >>> layer(torch.randn(4, 3)).sum().backward()
        >>> layer.backward_info.status.value, layer.backward_info.exact  # and what is left out has a bound:
        ('truncated', False)
        >>> bool(layer.backward_info.error_bound.isfinite().all())
        True
    """

    steps: int = 5
    damping: float = 0.5

    def __post_init__(self) -> None:
        positive_integer("steps", self.steps)
        if positive("damping", self.damping, "a number above 0 and at most 1") > 1.0:
            raise ValueError(f"damping is {self.damping!r}; it must be a number above 0 and at most 1")

    def solve(
        self,
        step: Callable[[Tensor], Tensor],
        start: Tensor,
        *,
        batch_dims: int,
        contraction: float | None,
        eps: float | None,
    ) -> tuple[Tensor, SolveInfo]:
        """u_K and its record, for ``step(u)`` = ``start`` + Jᵀu or + Ju."""
        d = self.damping
        factor = None if contraction is None else 1.0 - d * (1.0 - contraction)
        u, info = solve(
            lambda u: torch.lerp(u, step(u), d),
            d * start,
            batch_dims=batch_dims,
            contraction=factor,
            tolerance=0.0,
            max_iterations=self.steps - 1,
            solver="plain",
            affine=True,
            eps=eps,
        )
        if info.status is not SolveStatus.MAX_ITERATIONS:  # a failure; or already exact
            return u, info
        if self.steps == 1 and factor is not None:
            length = torch.linalg.vector_norm(u.reshape(*u.shape[:batch_dims], -1), dim=-1, dtype=torch.float64)
            info = replace(info, residual=length, error_bound=length * factor / (1.0 - factor))
        note = f"{self.steps} step(s) damped by {d:g} in place of a solve"
        return u, replace(info, status=SolveStatus.TRUNCATED, failed=torch.zeros_like(info.failed), note=note)


@dataclass(frozen=True)
class Trajectory:
    """States on the way to an equilibrium, for losses that look at them too.

    Attributes:
        states: f(zₙ, x), where zₙ is the iterate of the n-th evaluation of f, of whatever solver. Their derivatives are inexact:
            those of that one evaluation, with zₙ as a constant.
        evaluations: n of each state.
        z: the equilibrium, differentiated as the layer does.
        info: the record of its solve.
    """

    states: tuple[Any, ...]
    evaluations: tuple[int, ...]
    z: Any
    info: SolveInfo

    __repr__ = brief

    @property
    def text(self) -> str:
        """One line for people."""
        numbers = ", ".join(map(str, self.evaluations))
        return f"states of evaluation {numbers}, their derivatives inexact by choice: of one evaluation; z: {self.info.text}"


class Iterates:
    """The iterates of chosen evaluations of f in one forward solve."""

    def __init__(self, evaluations: Sequence[int]) -> None:
        if isinstance(evaluations, str) or not isinstance(evaluations, Sequence):
            raise TypeError(f"evaluations is {evaluations!r}; pass the numbers of evaluations, such as [1, 4]")
        self.wanted = tuple(positive_integer("evaluations", n) for n in evaluations)
        self.kept: dict[int, Tensor] = {}

    def watch(self, settings: Settings) -> Settings:
        """The same solver, watched."""

        def watched(step: Callable[[Tensor], Tensor], start: Tensor, batch_dims: int, kind: Kind) -> Tensor:
            if kind != "forward":
                return settings.solve(step, start, batch_dims, kind)
            if batch_dims != settings.batch_dims:
                raise NotImplementedError(
                    "trajectory keeps iterates, which torch.vmap cannot return; use batch dimensions"
                )
            count = 0

            def counted(z: Tensor) -> Tensor:
                nonlocal count
                count += 1
                if count in self.wanted:
                    self.kept[count] = z.clone()
                return step(z)

            return settings.solve(counted, start, batch_dims, kind)

        return replace(settings, solve=watched)

    def of(self, info: SolveInfo, z: Tensor) -> tuple[list[Tensor], tuple[int, ...]]:
        """The iterates and their numbers; z for those after the last evaluation, as the next."""
        iterates = [self.kept[n] if n <= info.iterations else z.detach() for n in self.wanted]
        return iterates, tuple(min(n, info.iterations + 1) for n in self.wanted)
