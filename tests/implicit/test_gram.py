"""The Gram matrix H against the reference cases and against sums over all weights of autograd's Jacobians."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, jacrev

from surefoot._implicit.network import ImplicitReLU

F64 = torch.float64

with (Path(__file__).resolve().parents[1] / "cases" / "implicit_relu.json").open() as _file:
    CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.load(_file)["cases"]}
BACKWARD = [name for name, case in CASES.items() if case["kind"] == "forward_backward"]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.mark.parametrize("name", BACKWARD)
def test_reference_cases(name: str) -> None:
    inputs, expected = CASES[name]["inputs"], CASES[name]["expected"]
    X, W, A, b = (torch.tensor(inputs[key], dtype=F64) for key in ("X", "W", "A", "b"))
    H = ImplicitReLU(W, A, b, inputs["gamma"]).gram(X)
    torch.testing.assert_close(H, torch.tensor(expected["H"], dtype=F64), rtol=1e-8, atol=1e-8)
    eigenvalues = torch.tensor(expected["H_eigenvalues_ascending"], dtype=F64)
    torch.testing.assert_close(torch.linalg.eigvalsh(H), eigenvalues, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("gamma", ["0.1", "0.5"])
def test_initialisation_of_the_paper(gamma: str) -> None:
    """b = 0: H = ZZᵀ."""
    case = CASES[f"paper_init_gamma_{gamma}"]
    X, W = torch.tensor(case["inputs"]["X"], dtype=F64), torch.tensor(case["inputs"]["W"], dtype=F64)
    net = ImplicitReLU(W, torch.eye(4, dtype=F64), torch.zeros(4, dtype=F64), case["inputs"]["gamma"])
    H, Z = net.gram(X), net.equilibrium(X).Z
    torch.testing.assert_close(H, Z @ Z.T, rtol=1e-12, atol=0)
    expected = torch.tensor(case["expected"]["H_eigenvalues_ascending"], dtype=F64)
    torch.testing.assert_close(torch.linalg.eigvalsh(H), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("column", [False, True])
def test_sum_of_jacobians(seed: int, column: bool) -> None:
    m = 7
    A, b = normal(seed, m, m), normal(seed + 10, m, 1) if column else normal(seed + 10, m)
    net = ImplicitReLU(normal(seed + 20, 3, m), A / torch.linalg.matrix_norm(A, 2), b, 0.8)
    X = normal(seed + 30, 5, 3)
    weights = {name: parameter.detach() for name, parameter in net.named_parameters()}
    jacobians: dict[str, Tensor] = jacrev(lambda weights: functional_call(net, weights, (X,)).flatten())(weights)  # type: ignore[assignment]
    flat = torch.cat([jacobian.reshape(5, -1) for jacobian in jacobians.values()], dim=1)
    H = net.gram(X)
    torch.testing.assert_close(H, flat @ flat.T, rtol=1e-8, atol=1e-8)
    assert float(torch.linalg.eigvalsh(H)[0]) >= float(torch.linalg.svdvals(net.equilibrium(X).Z)[-1]) ** 2 * (
        1.0 - 1e-6
    )


def test_it_is_the_speed_of_gradient_flow() -> None:
    """A small gradient step of size η changes the outputs by -ηH(ŷ - y), to first order."""
    A = normal(0, 6, 6)
    net = ImplicitReLU(normal(1, 3, 6), A / torch.linalg.matrix_norm(A, 2), normal(2, 6), 0.5)
    X, y, eta = normal(3, 4, 3), normal(4, 4), 1e-6
    before = net(X)
    (0.5 * (before - y).square().sum()).backward()
    with torch.no_grad():
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter -= eta * parameter.grad
        speed = (net(X) - before) / eta
        torch.testing.assert_close(speed, -net.gram(X) @ (before - y), rtol=1e-3, atol=1e-3)


def test_float32() -> None:
    A = normal(0, 6, 6)
    net = ImplicitReLU(normal(1, 3, 6), A / torch.linalg.matrix_norm(A, 2), normal(2, 6), 0.5)
    X = normal(3, 4, 3)
    double = net.gram(X)
    single = net.float().gram(X.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)
