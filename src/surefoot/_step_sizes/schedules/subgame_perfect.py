"""The subgame-perfect gradient method of Grimmer, Shu and Wang, *Beyond Minimax Optimality* (2024), with a memory of three steps.

OGM whose weights follow what the gradients say. In units β = 1, with x_0 = 0 and F_i = f_i - ½‖g_i‖², the step
x_n = (τ'(x_m - g_m) + ψz')/τ_n, τ_n = τ' + ψ, z_{n+1} = z' - ψg_n, proves

    τ_n(F_n - f*) + ½‖z_{n+1}‖² ≤ ⟨z_{n+1}, x*⟩,    and every step    f_n + ½‖g_n‖² - ⟨g_n, x_n⟩ - f* ≤ -⟨g_n, x*⟩.

With weights ρ, γ ≥ 0 of these inequalities, z' = Σρ_i z_{i+1} - Σγ_i g_i and τ' = Σρ_iτ_i + Σγ_i are admissible for the next
step if

    ½‖z'‖² ≤ Σρ_i(τ_i(F_i - F_m) + ½‖z_{i+1}‖²) + Σγ_i(f_i + ½‖g_i‖² - ⟨g_i, x_i⟩ - F_m),    F_m the least F_i.

The step is made from the largest τ', with ψ = 1 + √(1 + 2τ'), in the last one ψ = ½(1 + √(1 + 4τ')). The method of the paper
takes the largest over all steps, a cone programme an iteration, and is optimal against all functions that agree with what was
seen. This one takes the largest over the last three steps exactly, in closed form for each set of weights that can be positive.
OGM is ρ_n = 1.

Rate: f(x_T) - f* ≤ β‖x*‖²/(2τ_T), known after the run, with τ_T ≥ θ_T²: OGM's, before it. See docs/theorems/schedules.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from ..._problems import Problems
from .ogm import OGM
from .schedule import Schedule, rounded_up, smooth_only

MEMORY = 3
"""Steps that are remembered."""


class SubgamePerfect(Schedule):
    """Subgame-perfect with respect to the last three steps; everything but the gradients in float64."""

    name: ClassVar[str] = "subgame-perfect"

    @classmethod
    def refusal(cls, problems: Problems) -> str | None:
        return smooth_only(problems)

    def _iterates(self, problems: Problems) -> Iterator[Tensor]:
        for x, _ in self._run(problems):
            yield x

    def _bound(self, problems: Problems, radius: Tensor) -> Tensor:
        return OGM(self.horizon).bound(problems, radius)

    def bound_after(self, problems: Problems, radius: Tensor | None = None) -> Tensor:
        """β‖x*‖²/(2τ_T), in floats: combinations within the rounding of what they are made of count as worth nothing."""
        before = self.bound(problems, radius)
        *_, (_, tau) = self._run(problems)
        distance = self._radius(problems, radius)
        after = problems.smoothness * distance.square() / (2.0 * tau) * rounded_up(problems, self.horizon)
        return torch.minimum(before, after)

    def _run(self, problems: Problems) -> Iterator[tuple[Tensor, Tensor]]:
        """x_t in the problems' dtype and τ_t (N,) float64, t = 0 … T."""
        x = problems.start()
        tau = psi = torch.full_like(problems.smoothness, 2.0 if self.horizon else 1.0)
        z = torch.zeros_like(x, dtype=torch.float64)
        memory = _Memory(problems)
        yield x, tau
        for t in range(self.horizon):
            memory.add(x, tau, psi, z)
            free, z, base = memory.best()
            last = t == self.horizon - 1
            psi = 0.5 * (1.0 + (1.0 + 4.0 * free).sqrt()) if last else 1.0 + (1.0 + 2.0 * free).sqrt()
            tau = free + psi
            x = ((free[:, None] * base + psi[:, None] * z) / tau[:, None]).to(x)
            yield x, tau


class _Memory:
    """What the last k steps proved; quantities in units β = 1, the newest step first.

    Attributes:
        z: z_{i+1} (N, k, d).
        tau: τ_i (N, k).
        values: F_i (N, k).
        squares: ½‖z_{i+1}‖² (N, k).
    """

    def __init__(self, problems: Problems) -> None:
        self._problems, self._beta = problems, problems.smoothness
        self._unit = (problems.rows + problems.columns) * float(torch.finfo(problems.M.dtype).eps)
        none = torch.zeros(problems.count, 0, dtype=torch.float64, device=problems.M.device)
        flat = none[:, :, None].expand(-1, -1, problems.columns)
        self.z, self._g, self._descents = flat, flat, flat
        self.tau, self.values, self._doubts, self._linear, self._unsure, self.squares = (none,) * 6

    def add(self, x: Tensor, tau: Tensor, psi: Tensor, z: Tensor) -> None:
        """The step to ``x`` with the weights τ and ψ, from z'; two products."""
        value, gradient = self._problems.evaluate(x)
        x = x.double()
        f, g = value.double() / self._beta, gradient.double() / self._beta[:, None]
        after = z - psi[:, None] * g
        square, along = 0.5 * g.square().sum(1), (g * x).sum(1)
        # the rounding of Mx - Y moves √(2f), and Mᵀ of it moves g, by this
        size = self._unit * (x.norm(dim=1) + (self._problems.double.Y.square().sum(1) / self._beta).sqrt())
        doubt = self._unit * (f + square) + size * ((2.0 * f).sqrt() + g.norm(dim=1) + size)
        unsure = doubt + size * x.norm(dim=1) + self._unit * along.abs()
        kept = MEMORY - 1

        def push(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat([new[:, None], old[:, :kept]], 1)

        self.z, self._g, self._descents = push(self.z, after), push(self._g, g), push(self._descents, x - g)
        self.tau, self.squares = push(self.tau, tau), push(self.squares, 0.5 * after.square().sum(1))
        self.values, self._doubts = push(self.values, f - square), push(self._doubts, doubt)
        self._linear, self._unsure = push(self._linear, f + square - along), push(self._unsure, unsure)

    def best(self) -> tuple[Tensor, Tensor, Tensor]:
        """The largest τ' (N,), its z' (N, d), and x_m - g_m (N, d).

        For weights y whose set of positive ones is known, the largest w·y with ½‖Cy‖² ≤ b·y is at y = K⁻¹b + μK⁻¹w, K = CᵀC and
        μ² = b·K⁻¹b / w·K⁻¹w. Any y ≥ 0, scaled by 2b·y/‖Cy‖², is admissible, so that rounding here costs optimality alone.
        """
        lowest, m = self.values.min(1)
        at = torch.arange(len(m), device=m.device)
        least, doubt = lowest[:, None], self._doubts[at, m][:, None]
        columns = torch.cat([self.z, -self._g], 1)
        worth = torch.cat([self.tau, torch.ones_like(self.tau)], 1)
        rounding = torch.cat([self.tau * (self._doubts + doubt), self._unsure + doubt], 1)
        heights = torch.cat([self.tau * (self.values - least) + self.squares, self._linear - least], 1) - rounding
        y = _weights(columns, worth, heights)
        z = (y[:, :, None] * columns).sum(1)
        scale = (2.0 * (y * heights).sum(1) / z.square().sum(1)).nan_to_num(nan=0.0, posinf=0.0)
        free = scale * (y * worth).sum(1)
        better = free > self.tau[:, 0]
        z = torch.where(better[:, None], scale[:, None] * z, self.z[:, 0])
        return torch.where(better, free, self.tau[:, 0]), z, self._descents[at, m]


def _weights(columns: Tensor, worth: Tensor, heights: Tensor) -> Tensor:
    """The best weights y ≥ 0 (N, n) among those that are optimal for a set of positive ones; zero where there are none."""
    from .subgame_numba import best

    norms = columns.norm(dim=2)
    unit = torch.where(norms > 0.0, 1.0 / norms, 0.0)
    scaled = unit[:, :, None] * columns
    system = (scaled @ scaled.mT, unit * heights, unit * worth)
    return unit * torch.from_numpy(best(*(part.cpu().numpy() for part in system))).to(unit)
