"""``inv`` and ``inv_ex``: torch's values and errors, statuses and bounds on top."""

from __future__ import annotations

import math

import pytest
import torch
from pinv_reference import spectral_error, true_gradient, true_pinv

from surefoot._linalg.info import Method, Status
from surefoot._linalg.inverse import inv, inv_ex

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (2, 3, 4, 4), (0, 0), (2, 0, 0), (0, 3, 3)])
def test_values_are_those_of_torch(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    A = draw(*shape, dtype=dtype)
    X, info = inv_ex(A)
    assert torch.equal(inv(A), torch.linalg.inv(A)) and torch.equal(X, inv(A))
    assert info.ok and info.status.shape == shape[:-2]
    if A.numel():
        assert info.method == "lu"
        for x, a, bound in zip(
            X.reshape(-1, *shape[-2:]), A.reshape(-1, *shape[-2:]), info.error_bound.flatten(), strict=True
        ):
            assert spectral_error(x, a) <= float(bound) < 1e-2
        assert bool((info.condition >= 0.999 * torch.linalg.cond(A.to(torch.complex128))).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    A = (draw(4, 3, 3) + 3 * torch.eye(3)).to(dtype).requires_grad_()
    X, info = inv_ex(A)
    assert X.dtype == dtype and torch.equal(inv(A), X)
    for x, a, bound in zip(X, A, info.error_bound, strict=True):
        assert spectral_error(x, a) <= float(bound) <= 4 * torch.finfo(dtype).eps * float(x.detach().float().norm())
    inv(A).sum().backward()
    assert A.grad is not None and A.grad.dtype == dtype and bool(A.grad.isfinite().all())


def test_bad_matrices_have_their_status_and_spoil_no_other() -> None:
    A = draw(6, 3, 3)
    A[1] = 1.0
    A[2] = torch.tensor([[0.0, 1.0, -1.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    A[3, 0, 0] = math.nan
    A[4] = 0.0
    A = A.requires_grad_()
    X, info = inv_ex(A)
    S = Status
    assert info.status.tolist() == [S.OK, S.SINGULAR, S.SINGULAR, S.NON_FINITE, S.SINGULAR, S.OK]
    assert info.messages[1].startswith("exactly singular") and not info.ok
    good = [0, 5]
    without = A.detach().clone()
    without[1:5] = torch.eye(3)
    assert torch.equal(X[good], torch.linalg.inv(without)[good])
    for bad in (1, 2, 3, 4):
        assert bool(X[bad].isnan().all()) and math.isinf(info.error_bound[bad]) and math.isinf(info.condition[bad])
    X[good].pow(2).sum().backward()
    assert A.grad is not None and bool((A.grad[1:5] == 0).all())
    B = A.detach()[good].requires_grad_()
    torch.linalg.inv(B).pow(2).sum().backward()
    assert torch.allclose(A.grad[good], B.grad, rtol=1e-10)
    assert info.method == ["lu", "lu", "lu", "none", "lu", "lu"] and info.method_code[0] == Method.LU


def test_plain_inv_raises_and_passes_on_what_torch_does() -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        inv(torch.ones(3, 3))
    bad = torch.tensor([[math.nan, 1.0], [1.0, 2.0]])
    assert torch.equal(inv(bad).isnan(), torch.linalg.inv(bad).isnan())


@pytest.mark.parametrize(("smallest", "dtype"), [(1e-9, torch.float32), (1e-18, torch.float64)])
def test_nearly_singular_matrices_are_not_called_accurate(smallest: float, dtype: torch.dtype) -> None:
    Q = torch.linalg.qr(draw(4, 4))[0]
    A = (Q @ torch.diag(torch.tensor([1.0, 0.7, 0.5, smallest], dtype=torch.float64)) @ Q.mT).to(dtype)
    X, info = inv_ex(A)
    if math.isfinite(info.error_bound):
        assert spectral_error(X, A) <= float(info.error_bound)
    else:
        assert info.status in (Status.INACCURATE, Status.SINGULAR)
    assert info.condition > 1e7


@pytest.mark.parametrize("scale", [1e-20, 1e20, 1e-37, 1e37])
def test_scale_changes_nothing_in_single_precision(scale: float) -> None:
    A = (draw(5, 4, 4) * scale).to(torch.float32)
    X, info = inv_ex(A)
    unit = inv_ex(draw(5, 4, 4).to(torch.float32))[1]
    assert info.ok
    for x, a, bound in zip(X, A, info.error_bound, strict=True):
        assert spectral_error(x, a) <= float(bound) <= 1e-4 * float(true_pinv(a).norm())
    assert torch.allclose(info.condition, unit.condition, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient(dtype: torch.dtype) -> None:
    A, g = draw(5, 5, dtype=dtype).requires_grad_(), draw(5, 5, dtype=dtype, seed=1)
    true = true_gradient(A, g)
    for function in (inv, lambda A: inv_ex(A)[0]):
        (gradient,) = torch.autograd.grad(function(A), A, g)
        error = float((gradient - true).abs().max() / true.abs().max())
        assert error <= 30 * float(torch.linalg.cond(A.detach())) * torch.finfo(dtype).eps


def test_second_derivatives() -> None:
    A = draw(2, 3, 3, dtype=torch.complex128).requires_grad_()
    for function in (inv, lambda A: inv_ex(A)[0]):
        assert torch.autograd.gradcheck(function, A)
        assert torch.autograd.gradgradcheck(function, A)


def test_no_error_exceeds_its_bound() -> None:
    """Graded, nearly singular and scaled matrices against 300 bits."""
    checked = 0
    for seed in range(40):
        G = draw(5, 5, seed=seed)
        for A in (
            G * torch.logspace(0, -(seed % 14), 5, dtype=torch.float64),
            G * torch.logspace(0, -(seed % 14), 5, dtype=torch.float64)[:, None],
            G[:, :1] @ G[:1] + 10.0 ** -(seed % 13) * draw(5, 5, seed=seed + 99),
            (10 * G).round() * 2.0 ** (seed * 5 - 100),
        ):
            for dtype in (torch.float64, torch.float32):
                B = A.to(dtype)
                X, info = inv_ex(B)
                if math.isfinite(info.error_bound):
                    checked += 1
                    assert info.status == Status.OK and spectral_error(X, B) <= float(info.error_bound)
                else:
                    assert info.status != Status.OK
    assert checked >= 200


def test_arguments_are_checked() -> None:
    for function in (inv, inv_ex):
        for wrong, error, text in (
            (
                draw(3, 4),
                ValueError,
                r"A has shape \(3, 4\): the last two sizes must be equal; svd, pinv and lstsq take any",
            ),
            (torch.ones(3, 3, dtype=torch.int32), TypeError, "A has dtype torch.int32: convert it"),
            (torch.ones(3, 3, dtype=torch.bool), TypeError, "A has dtype torch.bool"),
            (torch.ones(3, 3).to(torch.float8_e4m3fn).requires_grad_(), TypeError, "float8"),
            (torch.tensor(1.0), ValueError, r"A has shape \(\)"),
            (torch.eye(3).to_sparse(), TypeError, "to_dense"),
            ([[1.0]], TypeError, "not list"),
        ):
            with pytest.raises(error, match=text):
                function(wrong)  # type: ignore[arg-type]


def test_every_status_says_what_to_do() -> None:
    texts = [status.text for status in Status]
    assert len(set(texts)) == len(texts) and all(len(text) > 20 for text in texts)


@pytest.mark.parametrize(
    ("dtype", "entries", "status"),
    [(torch.float32, (1e-10, 1e30), Status.OK), (torch.float64, (1e-160, 1e190), Status.INACCURATE)],
)
def test_entries_of_very_different_size_are_not_called_singular(
    dtype: torch.dtype, entries: tuple[float, float], status: Status
) -> None:
    """Divided by the largest entry, the smallest underflows; the inverse is representable all the same.

    The bound of single precision is computed in double, where nothing is lost.
    """
    d = torch.tensor(entries, dtype=dtype, requires_grad=True)
    X, info = inv_ex(torch.stack((torch.diag(d), torch.eye(2, dtype=dtype))))
    assert torch.allclose(X[0].diagonal(), d.reciprocal(), rtol=1e-6, atol=0.0)
    assert info.status.tolist() == [status, Status.OK]
    assert (info.error_bound[0] == math.inf) == (status == Status.INACCURATE)
    assert spectral_error(X[0], torch.diag(d)) <= float(info.error_bound[0])
    assert not bool(info.residual.isnan().any() | info.condition.isnan().any())


def test_complex_entries_whose_magnitude_overflows() -> None:
    A = torch.eye(2, dtype=torch.complex64) * (2.5e38 + 2.5e38j)
    X, info = inv_ex(A)
    assert info.ok and spectral_error(X, A) <= float(info.error_bound)
