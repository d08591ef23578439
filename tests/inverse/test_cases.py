"""Every value of the 90-digit reference cases on inverses (tests/cases/matrix_inverse.json), to the tolerances they state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._inverse.spectra import Spectra
from surefoot_check.inverse.constants import RESIDUALS
from surefoot_check.inverse.enclosures import Spectrum, base_quantities

Case = dict[str, Any]
OTHERS = {"cayley", "svd_derivs", "svd_step"}
"""Kinds of cases that are about orthogonality; tests/orthogonal runs them."""

with (Path(__file__).resolve().parents[1] / "cases" / "matrix_inverse.json").open() as _file:
    CASES: dict[str, Case] = {case["id"]: case for case in json.load(_file)["cases"]}


def tensor(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def close(case: Case, found: Any, expected: Any) -> None:
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float64), tensor(expected), rtol=case["rtol"], atol=case["atol"]
    )


def norm(A: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(A, 2)


def having(kind: str) -> list[str]:
    return [name for name, case in CASES.items() if case["kind"] == kind]


def test_every_case_is_run() -> None:
    assert {case["kind"] for case in CASES.values()} == OTHERS | {"ld_minv", "loss4_grad", "lemma2", "chebyshev"}


@pytest.mark.parametrize("name", having("ld_minv"))
def test_layers(name: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], dict(case["expected"])
    A = tensor(given["A"])
    net = sf.nn.LearnedInverse(given["C"], given["c0"], backward="unroll")
    layers = [X.detach() for X in net.unroll(A)]
    pseudoinverse = tensor(expected["pinv"]) if "pinv" in expected else torch.linalg.pinv(A)
    projector, identity = A @ pseudoinverse, torch.eye(len(A), dtype=torch.float64)
    errors = [norm(projector - A @ X) for X in layers]
    found = {
        "X_layers": lambda: layers,
        "E_layers": lambda: [identity - A @ X for X in layers],
        "X_last": lambda: layers[-1],
        "e_layers": lambda: errors,
        "e0": lambda: norm(projector - A @ A.T / given["c0"]),
        "test_loss": lambda: (A @ layers[-1] @ A - A).square().sum(),
        "pinv": lambda: torch.linalg.pinv(A),
        "norm_AApinv_minus_AX": lambda: errors[-1],
        "prop1_XAApinv_minus_X": lambda: norm(layers[-1] @ projector - layers[-1]),
        "prop1_ApinvAX_minus_X": lambda: norm(pseudoinverse @ A @ layers[-1] - layers[-1]),
    }
    assert expected
    for key, value in expected.items():
        result = found[key]()
        close(case, torch.stack(result) if isinstance(result, list) else result, value)
    if "test_loss" in expected:
        close(case, Spectra.of(A[None], given["c0"]).test_loss(tensor(given["C"])), expected["test_loss"])


@pytest.mark.parametrize("domain", ["spectral", "matrices"])
@pytest.mark.parametrize("name", having("loss4_grad"))
def test_loss_and_gradient(name: str, domain: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], case["expected"]
    A, c0, C = tensor(given["A"]), tensor(given["c0"]), tensor(given["C"])
    if domain == "spectral":
        spectra = Spectra.of(A, c0)
        loss, gradient = spectra.value_and_gradient(C)
        assert loss == pytest.approx(spectra.loss(C), rel=1e-14)
        test_loss = spectra.test_loss(C)
    else:
        net = sf.nn.LearnedInverse(C, 1.0, backward="unroll")
        losses = [(A @ X @ A - A).square().sum() for X in net.unroll(A, c0)]
        total = torch.stack(losses).sum() / (2 * len(A) * net.layers)
        gradient = torch.autograd.grad(total, net.coefficients)[0]
        loss, test_loss = total.detach(), losses[-1].detach() / len(A)
    close(case, loss, expected["loss4"])
    close(case, gradient, expected["grad_C"])
    close(case, test_loss, expected["test_loss"])


@pytest.mark.parametrize("name", having("lemma2"))
def test_one_learned_power(name: str) -> None:
    """Equation (16): ones and one coefficient C of the highest power; the identity is one of eigenvalues."""
    case = CASES[name]
    given = case["inputs"]
    for row in case["expected"]["rows"]:
        A = tensor(row.get("A", given["A"]))
        c0 = 1.05 if "A" in row else given["c0"]
        net = sf.nn.LearnedInverse([[1.0] * given["L"] + [row["C"]]], c0, backward="unroll")
        E = torch.eye(2, dtype=torch.float64) - A @ net.unroll(A)[-1].detach()
        close(case, torch.linalg.eigvalsh(E), sorted(row["eigs"]))
        close(case, norm(E), row["e1_spectral"])
        e0 = float(norm(torch.eye(2, dtype=torch.float64) - A @ A.T / c0))
        L = given["L"]
        close(case, (1 - row["C"]) * e0**L + row["C"] * e0 ** (L + 1), row["formula_scalar"])


@pytest.mark.parametrize("name", having("chebyshev"))
def test_chebyshev(name: str) -> None:
    case = CASES[name]
    given, expected = case["inputs"], case["expected"]
    A = tensor(given["A"])
    net = sf.nn.LearnedInverse.chebyshev(given["K"], given["L"], (given["l"], given["u"]), given["c0"])
    close(case, net.coefficients.detach(), expected["C"])
    close(case, net(A), expected["X_K"])
    close(case, torch.linalg.eigvalsh(A @ A.T), expected["gram_eigs"])
    close(case, norm(torch.eye(2, dtype=torch.float64) - A @ net(A)), expected["final_residual_spectral"])
    found = base_quantities(Spectrum(np.array([given["l"], given["u"]])), {"C": net.coefficients.detach().numpy()}, {})
    for residual, value in zip(RESIDUALS, expected["max_residual"], strict=False):
        low, high = found[residual]
        # the value is of exact coefficients, and itself rounded
        assert low * (1 - 1e-12) <= value <= high * (1 + 1e-12)
        assert high <= low * (1 + 1e-9)
    certificate = sf.certify(net)
    assert certificate.quantities["best_possible"] == pytest.approx(expected["inv_T16"], rel=1e-12)
