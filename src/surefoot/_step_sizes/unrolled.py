"""The unrolled iteration: forward, and the gradient of its final objective with respect to the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from .._core.brief import brief
from .._core.validate import integer
from .._problems import Problems
from .._problems.batch import proximal_step
from .smoothness import Smoothness, inverse_smoothness, smoothness_of

Gradient = Literal["exact", "detached"]


class Evaluator(Protocol):
    """The network's output z before the sigmoid, and its derivatives, for weights that stay as they are."""

    def evaluate(self, x: Tensor, g: Tensor) -> Tensor:
        """z, of the shape of x and g."""
        ...

    def pullback(self, x: Tensor, g: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """q ∂z/∂x and q ∂z/∂g; adds Σ q ∂z/∂W_l to ``gradients``."""
        ...

    def gradients(self) -> list[Tensor]:
        """What ``pullback`` added up, of the shapes of W_1 … W_L."""
        ...


class Steps(Protocol):
    """What the iteration asks of the network that proposes the steps."""

    def evaluator(self) -> Evaluator:
        """z for weights that stay as they are."""
        ...

    def steps(self, z: Tensor) -> Tensor:
        """P of z."""
        ...

    def steps_derivative(self, z: Tensor) -> Tensor:
        """∂P/∂z."""
        ...


@dataclass(frozen=True)
class Solution:
    """What ``StepSizeNet.solve`` found.

    Attributes:
        solution: x_T (N, d).
        objectives: F_p(x_t) (T+1, N).
        lowest: least P of each step and problem (T, N).
        highest: largest P of each step and problem (T, N).
        smoothness: the β_p (N,) float64 it divided by.
        products: multiplications with M or Mᵀ, of all problems at once.
        trajectory: x_t (T+1, N, d) where it was asked for.
    """

    solution: Tensor
    objectives: Tensor
    lowest: Tensor
    highest: Tensor
    smoothness: Tensor
    products: int
    trajectory: Tensor | None = None

    __repr__ = brief


def solve(
    net: Steps, problems: Problems, iterations: int, start: Any, smoothness: Smoothness, *, trajectory: bool
) -> Solution:
    """See ``StepSizeNet.solve``."""
    iterations = integer("iterations", iterations, 0)
    beta = smoothness_of(problems, smoothness)
    inverse = inverse_smoothness(problems, beta)
    x = problems.start(start)
    before, evaluator = problems.products, net.evaluator()
    objectives, lowest, highest, kept = [], [], [], [x]
    for _ in range(iterations):
        value, gradient = problems.evaluate(x)
        P = net.steps(evaluator.evaluate(x, gradient))
        x = proximal_step(problems, x, gradient, P * inverse)
        objectives.append(value)
        lowest.append(P.amin(1))
        highest.append(P.amax(1))
        if trajectory:
            kept.append(x)
    objectives.append(problems.objective(x))
    none = problems.M.new_zeros(0, problems.count)
    return Solution(
        solution=x,
        objectives=torch.stack(objectives),
        lowest=torch.stack(lowest) if lowest else none,
        highest=torch.stack(highest) if highest else none,
        smoothness=beta,
        products=problems.products - before,
        trajectory=torch.stack(kept) if trajectory else None,
    )


def final_objective(net: Steps, problems: Problems, iterations: int, inverse: Tensor, start: Tensor) -> Tensor:
    """F = Σ_p F_p(x_T), a scalar; ``inverse`` = 1/β (N, 1)."""
    evaluator, x = net.evaluator(), start
    for _ in range(iterations):
        g = problems.gradient(x)
        x = proximal_step(problems, x, g, net.steps(evaluator.evaluate(x, g)) * inverse)
    return problems.objective(x).sum()


def final_objective_and_gradient(
    net: Steps, problems: Problems, iterations: int, inverse: Tensor, start: Tensor, gradient: Gradient = "exact"
) -> tuple[Tensor, list[Tensor]]:
    """F = Σ_p F_p(x_T) and its gradient with respect to W_1 … W_L, by the adjoint of the iteration; no autograd.

    With s = P/β, y = x_{t-1} - s g and x_t = prox(y, s), the adjoint a_t of x_t gives u of y and v of s through the prox, hence
    (v - u g)(∂P/∂z)/β of the network's output z, and a_{t-1} = u + ∇²f(x_{t-1})(-s u). ``exact`` adds what flows back through the
    network's inputs x and g; ``detached``, the paper's rule, leaves it out: not a gradient of F for T ≥ 2.

    Memory: 3 N d numbers a step, and N b more for logistic regression.
    """
    evaluator = net.evaluator()
    tape: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []
    x = start
    for _ in range(iterations):
        product = problems.forward(x)
        g = problems.adjoint(problems.outer_gradient(product))
        z = evaluator.evaluate(x, g)
        tape.append((x, g, z, None if problems.quadratic else product))
        x = proximal_step(problems, x, g, net.steps(z) * inverse)
    product = problems.forward(x)
    value = (problems.smooth_value(product) + problems.penalty(x)).sum()
    adjoint = problems.adjoint(problems.outer_gradient(product))
    kink = problems.penalty_gradient(x)
    if kink is not None:
        adjoint = adjoint + kink
    while tape:
        before, g, z, product = tape.pop()
        step = net.steps(z) * inverse
        u, v = problems.prox_pullback(x, step, adjoint)
        of_step = -u * g if v is None else v - u * g
        into_x, into_g = evaluator.pullback(before, g, of_step * net.steps_derivative(z) * inverse)
        x = before
        if not tape:
            break  # the start does not depend on the weights
        if gradient == "exact":
            adjoint = u + into_x + problems.curvature(into_g - step * u, product)
        else:
            adjoint = u + problems.curvature(-step * u, product)
    return value, evaluator.gradients()
