"""Exact descent of a linear residual network, enclosed for the replay of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb

from ..descent import FLOOR, Descent, Look, multiplications_of_loss
from ..problems import LinearMapProblem
from ..rigor.balls import arb_matrix, ball, frobenius
from ..rigor.bounds import Array
from . import enclosures


class LinearResNet(Descent):
    """W itself, on the stored reduced arrays; g = Σz² and b = ‖R‖ λ_max(M) of Lemma 3 on the ball."""

    def __init__(self, problem: LinearMapProblem, weights: Mapping[str, Array], bits: int) -> None:
        super().__init__(problem, weights, bits)
        self.ends = {name: weights[name] for name in ("A", "B")}
        self.A, self.B = (arb_matrix(weights[name]) for name in ("A", "B"))
        self.identity = arb_matrix(np.eye(weights["A"].shape[0]))
        self.centre, self.radius = [arb_matrix(layer) for layer in weights["W"]], arb(0)
        self.scale = frobenius(*(self.identity + W for W in self.centre))[1]

    def look(self) -> Look:
        layers = [self.identity + W for W in self.centre]
        forward = [self.A]
        for P in layers:
            forward.append(P * forward[-1])
        gradient, low, high = self.loss.at((self.B * forward.pop()).transpose())
        backward = [self.B]
        for P in layers[:0:-1]:
            backward.append(backward[-1] * P)
        gradients = [
            (before * gradient * after).transpose() for before, after in zip(forward, reversed(backward), strict=True)
        ]
        floats, radius = self.float_ball()
        with np.errstate(over="ignore", invalid="ignore"):  # infinite constants decide nothing
            measured = enclosures.measure({**self.ends, "W": np.array(floats)}, self.problem.design, self.problem.level)
            on_ball = enclosures.quantities_on_ball(measured, radius, self.problem.level)
        g, bilinear = (ball(on_ball.get(name, (0.0, math.inf))[1]) for name in ("gauss_newton", "bilinear"))
        residual = (2 * high).sqrt()
        bend = (residual + g.sqrt() * self.radius) * bilinear
        return Look(gradients, residual * g.sqrt(), low, high, g, bend)

    def defects(self, weights: Mapping[str, Array]) -> list[tuple[str, Any, Any, Any, Any]]:
        low, high = frobenius(*(M - arb_matrix(W) for M, W in zip(self.centre, weights["W"], strict=True)))
        size, e = frobenius(*self.centre), self.radius
        floor = ball(FLOOR) * arb(len(self.centre) * self.identity.nrows()).sqrt()
        return [("weights", low - e, high + e, size[0] - e + floor, size[1] + e + floor)]

    @staticmethod
    def multiplications(arrays: Mapping[str, Array], weights: Mapping[str, Array], steps: int, stored: int) -> int:
        depth, q, _ = weights["W"].shape
        ends = weights["A"].shape[1] + weights["B"].shape[0]
        each = multiplications_of_loss(arrays) + 2 * depth * q * q * ends
        return steps * (each + depth * depth * (q**3 + depth) // 40)
