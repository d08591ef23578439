"""Learned inverses of operators that are only known by their products."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import surefoot as sf

DOUBLE = torch.float64
Net = sf.nn.LearnedInverse


@pytest.fixture
def spd(generator: torch.Generator) -> Tensor:
    """A symmetric positive definite 12×12 matrix with eigenvalues from 1 to 9."""
    Q = torch.linalg.qr(torch.randn(12, 12, dtype=DOUBLE, generator=generator)).Q
    return (Q * torch.linspace(1.0, 9.0, 12, dtype=DOUBLE)) @ Q.mT


def interval(low: float, high: float) -> tuple[float, float]:
    return 2 * low / (low + high), 2 * high / (low + high)


@pytest.mark.parametrize(("layers", "terms"), [(1, 1), (1, 4), (2, 3), (3, 2), (4, 2)])
def test_it_is_the_polynomial_of_the_layers(layers: int, terms: int, spd: Tensor, generator: torch.Generator) -> None:
    C = 1.0 + 0.2 * torch.randn(layers, terms, dtype=DOUBLE, generator=generator)
    b = torch.randn(12, dtype=DOUBLE, generator=generator)
    X, identity = 0.2 * torch.eye(12, dtype=DOUBLE), torch.eye(12, dtype=DOUBLE)
    for row in C:
        E = identity - spd @ X
        X = X @ sum(c * torch.linalg.matrix_power(E, j) for j, c in enumerate(row.tolist()))
    found = Net(C).solve_spd(lambda v: spd @ v, b, (1.0, 9.0))
    torch.testing.assert_close(found.x, X @ b, rtol=1e-11, atol=1e-12)
    assert found.products == terms**layers - 1
    assert found.residual == pytest.approx(float((b - spd @ found.x).norm() / b.norm()), rel=1e-10)


def test_the_certificate_is_one_of_the_solution(spd: Tensor, generator: torch.Generator) -> None:
    net = Net.chebyshev(2, 4, interval(1.0, 9.0), 1.0)
    certificate = sf.certify(net)
    for _ in range(5):
        b = torch.randn(12, dtype=DOUBLE, generator=generator)
        found = net.solve_spd(lambda v: spd @ v, b, (1.0, 9.0))
        assert found.residual <= certificate.bound(2)
    assert certificate.bound(2) < 1e-3


def test_any_shape_and_a_zero_right_hand_side(generator: torch.Generator) -> None:
    scale = torch.rand(2, 3, 4, dtype=DOUBLE, generator=generator) + 0.5
    net = Net.chebyshev(3, 3, interval(0.5, 1.5), 1.0)
    b = torch.randn(2, 3, 4, dtype=DOUBLE, generator=generator)
    found = net.solve_spd(lambda v: scale * v, b, (0.5, 1.5))
    torch.testing.assert_close(found.x, b / scale, rtol=1e-10, atol=1e-12)
    nothing = net.solve_spd(lambda v: scale * v, torch.zeros_like(b), (0.5, 1.5))
    assert nothing.residual == 0.0 and not bool(nothing.x.any())


@pytest.mark.parametrize("backward", ["implicit", "unroll"])
def test_gradients_in_b_and_in_the_operator(backward: str, spd: Tensor, generator: torch.Generator) -> None:
    net = Net.chebyshev(4, 3, interval(1.0, 12.0), 1.0, backward=backward)  # type: ignore[arg-type]
    b = torch.randn(12, dtype=DOUBLE, generator=generator).requires_grad_()
    shift = torch.rand(12, dtype=DOUBLE, generator=generator).requires_grad_()
    weight = torch.randn(12, dtype=DOUBLE, generator=generator)
    x = net.solve_spd(lambda v: spd @ v + shift * v, b, (1.0, 12.0)).x
    exact = torch.linalg.solve(spd + torch.diag(shift), b)
    torch.testing.assert_close(x, exact, rtol=1e-9, atol=1e-10)
    found = torch.autograd.grad((x * weight).sum(), (b, shift))
    expected = torch.autograd.grad((exact * weight).sum(), (b, shift))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_unrolled_gradient_reaches_the_coefficients(spd: Tensor, generator: torch.Generator) -> None:
    b = torch.randn(12, dtype=DOUBLE, generator=generator)
    net = Net.ones(2, 3, 1.0, backward="unroll")
    net.solve_spd(lambda v: spd @ v, b, (1.0, 9.0)).x.sum().backward()
    assert net.coefficients.grad is not None and bool((net.coefficients.grad != 0).all())
    assert not Net.ones(2, 3, 1.0).solve_spd(lambda v: spd @ v, b, (1.0, 9.0)).x.requires_grad


@pytest.mark.parametrize(
    ("b", "bounds", "error", "match"),
    [
        ([1.0], (1.0, 2.0), TypeError, "b must be"),
        (torch.ones(2, dtype=torch.int64), (1.0, 2.0), TypeError, "b must be"),
        (torch.ones(2), 3.0, TypeError, "two numbers"),
        (torch.ones(2), ("a", 1.0), TypeError, "two numbers"),
        (torch.ones(2), (0.0, 1.0), ValueError, "0 < lambda_min"),
        (torch.ones(2), (2.0, 1.0), ValueError, "0 < lambda_min"),
        (torch.ones(2), (1.0, float("inf")), ValueError, "0 < lambda_min"),
    ],
)
def test_bad_arguments(b: object, bounds: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Net.ones(2, 3).solve_spd(lambda v: v, b, bounds)  # type: ignore[arg-type]


def test_an_operator_that_changes_the_shape() -> None:
    with pytest.raises(ValueError, match="operator maps shape"):
        Net.ones(2, 3).solve_spd(lambda v: v[:1], torch.ones(3), (1.0, 2.0))
