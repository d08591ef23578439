"""Divided differences of ``sf.linalg``'s functions against 60 digits, from exact ties to gaps of the size of the nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from surefoot._linalg.divided_differences import Custom, Elementwise, Exp, InverseSqrt, Log, Sqrt, integral

EPS = 2.0**-52
Exact = Callable[[Any], Any]


# our f; f, f′ and f″ for mpmath; the errors of first and second differences, in units of what rounds in the quotient
FUNCTIONS: dict[str, tuple[Elementwise, Exact, Exact, Exact, float, float]] = {
    "sqrt": (Sqrt(), mpmath.sqrt, lambda x: x**-0.5 / 2, lambda x: -(x**-1.5) / 4, 1, 2),
    "inverse root": (
        InverseSqrt(),
        lambda x: x ** mpmath.mpf(-0.5),
        lambda x: -(x ** mpmath.mpf(-1.5)) / 2,
        lambda x: x ** mpmath.mpf(-2.5) * 3 / 4,
        2,
        4,
    ),
    "log": (Log(), mpmath.log, lambda x: 1 / x, lambda x: -(x**-2), 2, 8),
    "exp": (Exp(), mpmath.exp, mpmath.exp, mpmath.exp, 4, 30),
    "atan, by automatic differentiation": (
        Custom(torch.atan),
        mpmath.atan,
        lambda x: 1 / (1 + x * x),
        lambda x: -2 * x / (1 + x * x) ** 2,
        20,
        400,
    ),
    "cube, derivative given": (
        Custom(lambda x: x**3, lambda x: 3 * x * x),
        lambda x: x**3,
        lambda x: 3 * x * x,
        lambda x: 6 * x,
        10,
        50,
    ),
}


def first(f: Exact, df: Exact, a: Any, b: Any) -> Any:
    return df(a) if a == b else (f(a) - f(b)) / (a - b)


def second(f: Exact, df: Exact, ddf: Exact, a: Any, b: Any, c: Any) -> Any:
    a, b, c = sorted((a, b, c))
    return ddf(a) / 2 if a == c else (first(f, df, a, b) - first(f, df, b, c)) / (a - c)


def size(f: Exact, df: Exact, *nodes: Any) -> Any:
    """What rounds in a quotient over a gap of the size of the largest node."""
    return (
        max(abs(f(x)) for x in nodes) / max(nodes) if len(nodes) == 2 else max(abs(df(x)) for x in nodes) / max(nodes)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_sixty_digits_at_every_gap(name: str) -> None:
    ours, f, df, ddf, units_first, units_second = FUNCTIONS[name]
    worst = [0.0, 0.0]
    for base, exponent in itertools.product((0.03, 7.0), (0, 2, 3, 9, 26, 40, 52, 60)):
        x = base * (1 + torch.tensor([0.0, 2.0**-exponent, 2.0 ** -(exponent + 2)], dtype=torch.float64))
        table = ours.first(x, x)
        triples = ours.second(x, table, slice(0, 3))
        nodes = [mpmath.mpf(value) for value in x.tolist()]
        with mpmath.workdps(60):
            for i, j in itertools.combinations_with_replacement(range(3), 2):
                exact = first(f, df, nodes[i], nodes[j])
                error = abs(table[i, j].item() - exact) / (abs(exact) + size(f, df, nodes[i], nodes[j]))
                worst[0] = max(worst[0], float(error) / EPS)
            for i, j, k in itertools.combinations_with_replacement(range(3), 3):
                exact = second(f, df, ddf, nodes[i], nodes[j], nodes[k])
                error = abs(triples[i, j, k].item() - exact)
                error /= abs(exact) + size(f, df, nodes[i], nodes[j], nodes[k])
                worst[1] = max(worst[1], float(error) / EPS)
    assert worst[0] <= units_first and worst[1] <= units_second, worst


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_differences_are_symmetric_and_come_in_blocks(name: str) -> None:
    ours = FUNCTIONS[name][0]
    x = torch.tensor([1.0, 1.1, 3.0], dtype=torch.float64)
    table = ours.first(x, x)
    everything = ours.second(x, table, slice(0, 3))
    assert torch.equal(everything[1:], ours.second(x, table, slice(1, 3)))
    for order in itertools.permutations(range(3)):
        torch.testing.assert_close(everything.permute(order), everything, rtol=1e-12, atol=0)


def test_a_function_that_bends_within_a_fiftieth_of_its_argument() -> None:
    """Neither the quotient nor the quadrature alone is right at every gap; f′ is up to 50."""

    def f(x: Tensor) -> Tensor:
        return 10 + torch.tanh((x - 1) * 50)

    def exact(a: float, b: float) -> float:
        with mpmath.workdps(50):
            u, v = (50 * (mpmath.mpf(x) - 1) for x in (a, b))
            return float(50 * (mpmath.sech(u) ** 2 if u == v else (mpmath.tanh(u) - mpmath.tanh(v)) / (u - v)))

    ours = quotients = quadratures = 0.0
    for exponent in range(1, 60, 2):
        a, b = torch.tensor([0.995], dtype=torch.float64), torch.tensor([0.995 + 2.0**-exponent], dtype=torch.float64)
        true = exact(a.item(), b.item())
        ours = max(ours, abs(Custom(f).first(a, b).item() - true))
        if a != b:
            quotients = max(quotients, abs(((f(a) - f(b)) / (a - b)).item() - true))
        quadratures = max(quadratures, abs(integral(Custom(f).slope, a, b).item() - true))
    assert ours < 1e-7 * 50
    assert quotients > 0.5 and quadratures > 0.5
