"""Equilibria where nothing but tensors comes out, as in ``torch.export``: plain steps, and the stopping rule of ``samples``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..cell.packing import Packing
from ..contractive import Contractive
from ..solver import samples as rule
from ..solver.fixed_point import beside, default_tolerance, norm, scaled_norm


class _State(NamedTuple):
    """Of the iteration; number is one, z is (S, D), ratios (S, 5), all else (S,)."""

    number: Tensor
    z: Tensor
    code: Tensor
    q: Tensor
    bound: Tensor
    first: Tensor
    before: Tensor
    best: Tensor
    improved: Tensor
    ratios: Tensor


def infer(
    f: Callable[..., Any],
    packing: Packing,
    start: Tensor,
    x: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    batch_dims: int,
    contraction: float | None,
    tolerance: float | None,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """z, packed, with the bound on its error (*batch) float64, and whether it converged (*batch) bool; without gradients.

    The bound has the meaning of ``SolveInfo.error_bound``. A start is looked at from beside, at the cost of two evaluations,
    where no contraction factor is given.
    """
    if isinstance(f, nn.Module) and any(module.training for module in f.modules()):
        raise ValueError("f is in training mode, in which it may change with each evaluation; call eval() first")
    autocast = torch.amp.is_autocast_available(start.device.type) and torch.is_autocast_enabled(start.device.type)
    if packing.dtype != packing.solved or autocast:
        raise ValueError(
            "f computes in a half precision; pass float32 and leave autocast, as the bound here is that of float32"
        )
    if isinstance(f, Contractive):
        kwargs = f.with_scale(packing.unpack(start), x, kwargs)
    batch = start.shape[:batch_dims]
    rows = start.reshape(math.prod(batch), math.prod(start.shape[batch_dims:])).clone()
    solve = _Solve(contraction, default_tolerance(start.dtype) if tolerance is None else tolerance, start.dtype)

    def g(z: Tensor) -> Tensor:
        z = z.view(start.shape)
        return packing.pack_value(f(packing.unpack(z), *x, **kwargs), z, None).reshape(rows.shape)

    def unfinished(*state: Tensor) -> Tensor:
        now = _State(*state)
        return (now.number < max_iterations) & (now.code == rule.ACTIVE).any()

    def step(*state: Tensor) -> tuple[Tensor, ...]:
        now = _State(*state)
        return tuple(solve.step(now, g(now.z)))

    with torch.no_grad():
        state = tuple(solve.begin(rows, g))
        if torch.compiler.is_compiling():
            from torch._higher_order_ops.while_loop import while_loop  # imports the compiler

            state = while_loop(unfinished, step, state)
        else:
            while unfinished(*state):
                state = step(*state)
    end = _State(*state)
    converged = (end.code == rule.CONVERGED) | (end.code == rule.STAGNATED)
    bound = torch.where(end.code >= rule.NOT_CONTRACTING, math.inf, end.bound)
    return end.z.detach().view(start.shape), bound.detach().view(batch), converged.view(batch)


class EquilibriumInference(nn.Module):
    """The equilibrium of a layer with what is known of it, all as tensors: (z, error bound, converged), without gradients.

    For ``torch.export``, in which there are no records and no errors that depend on numbers. The iteration is plain, whatever the
    layer's solver, to the tolerance, contraction factor and largest number of iterations of the layer. The bound (*batch)
    float64 means what ``SolveInfo.error_bound`` does: a guarantee where the layer has a contraction factor, else an estimate. A
    sample with ``converged`` (*batch) false has its last iterate as z, and a bound of infinity or above the tolerance.

    Args:
        layer: an ``EquilibriumLayer`` with f in evaluation mode.

    Raises:
        ValueError: when it is called: f in training mode, or computing in half precision.

    Example:
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: torch.tanh(0.5 * z + x), contraction=0.5)
        >>> z, bound, converged = sf.nn.EquilibriumInference(layer)(torch.randn(4, 3))
        >>> z.shape, bool((bound < 1e-4).all()), converged.tolist()
        (torch.Size([4, 3]), True, [True, True, True, True])
    """

    def __init__(self, layer: Inferable) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *x: Any, z0: Any = None, **kwargs: Any) -> tuple[Any, Tensor, Tensor]:
        """z, its bound, and whether it converged; arguments as for the layer."""
        return self.layer.infer(x, kwargs, z0)


class Inferable(Protocol):
    """What ``EquilibriumInference`` needs of a layer."""

    def infer(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> tuple[Any, Tensor, Tensor]: ...


class _Solve:
    """The rule for one sample each, in operations that a graph can hold."""

    def __init__(self, given: float | None, tolerance: float, dtype: torch.dtype) -> None:
        self.given, self.tolerance, self.eps = given, tolerance, torch.finfo(dtype).eps

    def begin(self, z: Tensor, g: Callable[[Tensor], Tensor]) -> _State:
        def full(value: float, *shape: int) -> Tensor:
            return z.new_full((z.shape[0], *shape), value, dtype=torch.float64)

        q = full(math.nan if self.given is None else self.given)
        if self.given is None:
            q = self._probed(z, g)
        code = torch.zeros_like(q, dtype=torch.int8)
        improved, count = torch.zeros_like(q, dtype=torch.int64), torch.zeros((), dtype=torch.int64, device=z.device)
        inf = math.inf
        return _State(
            count, z, code, q, full(inf), full(inf), full(math.nan), full(inf), improved, full(math.nan, rule.RATIOS)
        )

    def _probed(self, z: Tensor, g: Callable[[Tensor], Tensor]) -> Tensor:
        """q beside a start that is so near its fixed point that no step shows it; NaN elsewhere."""
        value = g(z)
        blind = _norm(value - z) <= 2.0 * rule.TRUSTED * rule.ROUNDING * self.eps * _norm(value)
        other = beside(z, _norm(z), self.eps)
        ratio = _norm(g(other) - value) / _norm(other - z)
        return torch.where(blind & ratio.isfinite(), ratio, math.nan)

    def step(self, now: _State, g: Tensor) -> _State:
        count, eps = now.number + 1, self.eps
        residual, size = _norm(g - now.z), _norm(g)
        rounding, half = rule.ROUNDING * eps * size, eps**0.5 * size
        first = torch.where(now.number == 0, residual, now.first)
        improved = torch.where(residual < now.best, count, now.improved)
        best = torch.fmin(now.best, residual)
        q, ratios, refuted = self._measured(now, residual, rounding)

        gap = 1.0 - q
        contracts = gap > 0.0
        bound = torch.where(contracts, (q * residual + rounding) / gap, math.inf)
        bound = torch.where(q.isnan() & (residual == 0.0), rounding, bound)
        wanted = self.tolerance * (size + eps**0.5 * first)
        target = torch.maximum(wanted, torch.where(contracts, torch.minimum(2.0 * rounding / gap, half), 0.0))
        active, finite = now.code == rule.ACTIVE, (residual + size).isfinite()
        usable = active & finite
        solved = usable & (bound <= target)
        stalled = (
            usable
            & ~solved
            & contracts
            & (count - improved >= rule.STALLED)
            & (best <= min(rule.STALL_LEVEL * eps, eps**0.5) * size)
        )
        bound = torch.where(stalled, (q * residual + torch.maximum(rounding, residual)) / gap, bound)
        hopeless = (count - improved >= rule.NO_PROGRESS) | (residual > rule.DIVERGED * torch.maximum(best, rounding))
        hopeless = hopeless | refuted | ((residual <= rounding) & (gap <= 0.0))
        code = now.code
        for mask, value in (
            (solved, rule.CONVERGED),
            (stalled, rule.STAGNATED),
            (stalled & (bound > torch.maximum(wanted, half)), rule.UNRESOLVED),
            (hopeless & usable & ~solved & ~stalled, rule.NOT_CONTRACTING),
            (active & ~finite, rule.NON_FINITE),
        ):
            code = code.masked_fill(mask, value)
        bound = torch.where(usable, bound, now.bound)
        moving = usable & ((code == rule.ACTIVE) | solved | stalled)
        z = torch.where(moving[:, None], g, now.z)
        return _State(count, z, code, q, bound, first, residual, best, improved, ratios)

    def _measured(self, now: _State, residual: Tensor, rounding: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, the latest ratios, and whether these contradict a given q; a plain step is as long as the residual before."""
        ratio = residual / now.before
        trusted = (now.before > rule.TRUSTED * rounding) & ((now.before - residual).abs() > rule.DISTINCT * rounding)
        ratio = torch.where(trusted & (ratio < math.inf), ratio, 0.0)
        ratios = torch.cat((now.ratios[:, 1:], ratio[:, None]), 1)
        known = ratios.nan_to_num(nan=0.0)
        largest = known.amax(1)
        if self.given is not None:
            return now.q.clone(), ratios, largest > self.given * (1.0 + rule.FALSE_CLAIM) + 2.0 / rule.TRUSTED
        # a non-normal map contracts in the long run only: the mean over the window shows it
        estimate = torch.where((largest >= 1.0) & (known > 0.0).all(1), known.log().mean(1).exp(), largest)
        return torch.where(largest > 0.0, estimate, now.q), ratios, torch.zeros_like(largest, dtype=torch.bool)


def _norm(rows: Tensor) -> Tensor:
    return scaled_norm(rows) if rows.dtype == torch.float64 else norm(rows)
