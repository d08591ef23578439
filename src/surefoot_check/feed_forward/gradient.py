"""The gradient of a training objective in ball arithmetic, from the exact weights.

Near a minimum the rounding of a gradient in floats is as large as the gradient, so that floats say nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..rigor.balls import arb_matrix, ball, frobenius, rational
from ..rigor.bounds import Array
from .network import Objective
from .smooth import SMOOTH

PRECISION = 128
"""Bits of the ball arithmetic, the same for certifier and checker."""


def gradient(problem: Objective, weights: Mapping[str, Array]) -> dict[str, Any]:
    """∇L by the names of the trained weights, each as an ``arb_mat``; of b (1, outputs)."""
    from flint import ctx

    with ctx.workprec(PRECISION):
        return dict(_backwards(problem, weights))


def half_square(problem: Objective, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Lower bound (``None`` where it is 0) and upper bound of ½‖∇L‖², as balls."""
    from flint import ctx

    with ctx.workprec(PRECISION):
        low, high = frobenius(*gradient(problem, weights).values())
        return (low * low / 2 if low > 0 else None), high * high / 2


def _backwards(problem: Objective, weights: Mapping[str, Array]) -> Iterator[tuple[str, Any]]:
    from flint import arb_mat

    every, N = {**problem.frozen, **weights}, len(problem.X)
    a, before, inputs = arb_matrix(problem.X), [], []
    for number, kind in enumerate(problem.layers, 1):
        inputs.append(a)
        z = a * arb_matrix(every[f"W{number}"]).transpose()
        if kind.bias:
            b = [ball(x) for x in every[f"b{number}"].tolist()]
            z = arb_mat(N, kind.outputs, [x + b[index % kind.outputs] for index, x in enumerate(z.entries())])
        before.append(z)
        a = arb_mat(N, kind.outputs, [kind.activation.exact(x, kind.settings) for x in z.entries()])
    back = problem.exact_slope(_softmax(a) if problem.entropy else a) * rational(problem.scale)
    decay, ones = ball(problem.decay), arb_mat(1, N, [1] * N)
    for number, kind in reversed(list(enumerate(problem.layers, 1))):
        W = arb_matrix(every[f"W{number}"])
        if kind.trains_W:
            yield f"W{number}", back.transpose() * inputs[number - 1] + W * decay
        if kind.trains_b:
            yield f"b{number}", ones * back + arb_matrix(every[f"b{number}"][None, :]) * decay
        if number > 1:
            behind = problem.layers[number - 2]
            slope = SMOOTH[behind.activation.code].slope
            pulled = zip((back * W).entries(), before[number - 2].entries(), strict=True)
            back = arb_mat(N, kind.inputs, [x * slope(z, behind.settings) for x, z in pulled])


def _softmax(logits: Any) -> Any:
    from flint import arb_mat

    rows = []
    for row in logits.tolist():
        top = max(float(z) for z in row)
        powers = [(z - top).exp() for z in row]
        total = sum(powers, ball(0.0))
        rows += [x / total for x in powers]
    return arb_mat(logits.nrows(), logits.ncols(), rows)
