"""Corollary C: how large orthonormal rows must be for a step sequence to reach a gap, from κ = K/μ and the sequence alone.

Evaluated in float64, for people; certificates rest on the recursions, which use the coefficients of W*.
Reference: docs/theorems/two-layer-prescribed-blocks.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surefoot_check.two_layer.blocks import DENSITY, Suprema, nodes, share, suprema

from .sequences import Array

SHARES = np.geomspace(0.01, 3.0, 48)
"""The grid of θ, by how much descent may differ from the frozen run, relatively."""


@dataclass(frozen=True)
class ClosedForm:
    """From weights with ZZᵀ = s²I, √(L_T/L_0) ≤ ``final`` + ``perturbation`` r² if r = ‖W*‖_F/s² is at most ``radius``."""

    radius: float
    """r_1."""
    perturbation: float
    """Γ."""
    final: float
    """ε_T, the largest |P_T|."""

    def scale(self, relative_gap: float) -> float:
        """The least s/√‖W*‖_F for which the relative gap after T steps is guaranteed; infinite where no s is enough."""
        room = math.sqrt(relative_gap) - self.final
        if not room > 0.0:
            return math.inf
        return math.sqrt(max(1.0 / self.radius, math.sqrt(self.perturbation / room)))


def closed_form(tau: Array, kappa: float, relative_gap: float) -> ClosedForm:
    """The constants of the sequence τ (T,) over [1, κ], for the share θ whose ``scale`` is least."""
    of_block = suprema(tau, 1.0, kappa)
    taken = _taken(tau, kappa)
    found = [_constants(tau, of_block, taken, float(share)) for share in SHARES]
    return min(found, key=lambda constants: constants.scale(relative_gap))


def _taken(tau: Array, kappa: float) -> float:
    """c, the largest |1 - P_t| for t ≤ T."""
    T = len(tau)
    M = DENSITY * (T + 1)
    largest = np.abs(1.0 - np.cumprod(1.0 - tau[:, None] * nodes(1.0, kappa, M), axis=0)).max(axis=1)
    return float((largest / share(np.arange(1.0, T + 1.0), M)).max())


def _constants(tau: Array, sup: Suprema, c: float, theta: float) -> ClosedForm:
    T, q = len(tau), 1.0 + theta
    b = 0.5 * tau * sup.linear[:T, 0]
    before = np.concatenate([[0.0], np.cumsum(b * b)[:-1]])
    k = q * np.maximum(0.5 * q * q * c * c, q * q * before)
    C = (2.0 * k + q * q * c * b) * q * b
    plain, linear, root = (M[:, 1:] for M in (sup.plain, sup.linear, sup.root))  # [t, j]: from after step j to t
    with np.errstate(divide="ignore"):
        squares = [
            theta * c / (plain @ C).max(),
            float((theta * b / (0.5 * tau * (linear[:T] @ C))).min()),
            _third(np.cumsum(q * q * b * b * k + q * c * C), np.cumsum(C * C), theta / q * k),
        ]
    return ClosedForm(math.sqrt(min(squares)), float(root[T] @ C), float(sup.plain[T, 0]))


def _third(linear: Array, squares: Array, room: Array) -> float:
    """The largest r² with linear_t r² + ½ squares_t r⁴ ≤ room_{t+1} for all t < T - 1."""
    if len(room) == 1:
        return math.inf
    a, d, rest = linear[:-1], squares[:-1], room[1:]
    return float((2.0 * rest / (a + np.sqrt(a * a + 2.0 * d * rest))).min())
