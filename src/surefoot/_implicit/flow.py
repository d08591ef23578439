"""Gradient flow θ' = -∇L(θ) of an implicit ReLU network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.losses import Loss
from .._core.samples import sample_loss
from .._core.status import RunStatus
from .._core.validate import kind_of, positive_integer, real, require_trained
from .engine import Iterate
from .network import ImplicitReLU
from .norms import spectral_norm_upper
from .share import Weights
from .solvers import SolverMemory


@dataclass(frozen=True)
class Flow:
    """A gradient flow at the times asked for.

    Attributes:
        times: (T,), up to the last that was reached.
        gaps: ½‖f(X) - Y‖² at each.
        outputs: f(X) at each, (T, N, p).
        status: ``converged`` where the last time was reached, ``ill_posed`` or ``collapsed`` where the flow ended before,
            ``max_iterations`` where the evaluations ran out, ``diverged`` where the integrator gave up.
        evaluations: gradients computed.
    """

    times: Tensor
    gaps: list[float]
    outputs: Tensor
    status: RunStatus
    evaluations: int

    __repr__ = brief


def gradient_flow(
    net: ImplicitReLU,
    loss: Loss,
    times: Sequence[float] | Tensor,
    *,
    method: str = "DOP853",
    relative_tolerance: float = 1e-11,
    absolute_tolerance: float = 1e-14,
    max_evaluations: int = 100_000,
) -> Flow:
    """Integrate θ' = -∇L(θ) from the network's weights, which are set to those at the last time reached.

    For small networks: the integrator works on all weights as one vector. The field jumps where an entry of U changes its sign
    (relu'). Where it points at such a surface from both sides, no classical solution goes on, and the integrator's steps shrink
    until the evaluations run out: so it is soon after A = I, where half of U is 0 (the theorem ``implicit/flow`` takes for
    granted that the flow exists).

    What comes out are points of a curve with an error that nothing bounds: the checker accepts no run of a flow, and a flow
    writes none.

    Args:
        net: float64 weights.
        loss: ``sf.SquaredLoss(X, Y)``.
        times: increasing, from 0 or later.
        method: of ``scipy.integrate.solve_ivp``; the default is of order 8, which at these tolerances takes a third to a half
            of the gradients that ``RK45`` takes; ``LSODA`` where the flow is stiff.
        relative_tolerance, absolute_tolerance: of the integrator, per step. The gap falls by orders of magnitude: an error
            that is small beside the weights need not be small beside a late gap.
        max_evaluations: limit on the gradients computed.

    Returns:
        The flow at the times that were reached; its status says why it ended.

    Raises:
        TypeError, ValueError: times that are no sequence or do not increase, or arguments as for ``sf.descend``.

    Example:
        >>> X, y = torch.randn(3, 2).double(), torch.randn(3).double()
        >>> net = sf.nn.ImplicitReLU.gaussian(2, width=8)
        >>> loss = sf.SquaredLoss(X, y)
        >>> flow = sf.gradient_flow(net, loss, [0.0, 0.1, 0.2], relative_tolerance=1e-6)
        >>> flow.status.value, flow.outputs.shape, flow.gaps[0] > flow.gaps[1] > flow.gaps[2]
        ('converged', torch.Size([3, 3, 1]), True)
    """
    import numpy as np
    from scipy.integrate import solve_ivp

    if not isinstance(net, ImplicitReLU):
        raise TypeError(f"net is {kind_of(net)}; sf.gradient_flow integrates the flow of sf.nn.ImplicitReLU")
    require_trained(net)
    samples = sample_loss(loss)
    if not isinstance(times, Sequence | Tensor | np.ndarray):
        raise TypeError(
            f"times is {times!r} ({type(times).__name__}); pass a list of increasing times, such as [0.0, 1.0]"
        )
    grid = real("times", times, 1)
    if float(grid[0]) < 0.0 or bool((grid.diff() <= 0.0).any()):
        raise ValueError("times must increase from 0 or later; sort them and drop repeated ones")
    first = Weights.of({"W": net.W, "A": net.A, "b": net.b.reshape(net.width, -1)})
    shapes = [tuple(w.shape) for w in (first.W, first.A, first.b)]
    positive_integer("max_evaluations", max_evaluations)
    memory = SolverMemory()
    evaluations = 0

    def weights(vector: Any) -> Weights:
        parts = torch.from_numpy(np.array(vector)).to(first.A).split([math.prod(shape) for shape in shapes])
        return Weights(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))

    def iterate_at(vector: Any) -> Iterate:
        nonlocal memory
        theta = weights(vector)
        iterate = Iterate(samples, theta, net.gamma, spectral_norm_upper(theta.A), memory)
        memory = iterate.memory
        return iterate

    def field_at(_: float, vector: Any) -> Any:
        nonlocal evaluations
        evaluations += 1
        if evaluations > max_evaluations:
            raise _Ended(RunStatus.MAX_ITERATIONS)
        iterate = iterate_at(vector)
        if not iterate.contraction < 1.0:
            raise _Ended(RunStatus.ILL_POSED)
        if iterate.gap > 0.0 and not bool(iterate.Z.any()):
            raise _Ended(RunStatus.COLLAPSED)
        g = iterate.gradient
        return -torch.cat([g.W.reshape(-1), g.A.reshape(-1), g.b.reshape(-1)]).cpu().numpy()

    current = torch.cat([first.W.reshape(-1), first.A.reshape(-1), first.b.reshape(-1)]).cpu().numpy()
    reached, gaps, outputs, time = [], [], [], 0.0
    status = RunStatus.CONVERGED
    for target in grid.tolist():
        if target > time:
            try:
                part = solve_ivp(
                    field_at, (time, target), current, method, rtol=relative_tolerance, atol=absolute_tolerance
                )
            except _Ended as end:
                status = end.status
                break
            if not part.success:
                status = RunStatus.DIVERGED
                break
            current, time = part.y[:, -1], target
        iterate = iterate_at(current)
        reached.append(target)
        gaps.append(iterate.gap)
        outputs.append(iterate.residual + samples.Y)
    last = weights(current)
    with torch.no_grad():
        net.W.copy_(last.W)
        net.A.copy_(last.A)
        net.b.copy_(last.b.reshape(net.b.shape))
    stacked = torch.stack(outputs) if outputs else torch.empty((0, *samples.Y.shape), dtype=samples.Y.dtype)
    return Flow(torch.tensor(reached, dtype=torch.float64), gaps, stacked, status, evaluations)


class _Ended(Exception):
    """The flow left the region where it is defined."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(status.text)
        self.status = status
