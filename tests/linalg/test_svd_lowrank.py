"""``svd_lowrank``: what it cuts is bounded from above, what had to be cut from below, and it has no derivative."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hard_systems import graded, hilbert, kahan
from pinv_matrices import draw, with_singular_values
from pinv_reference import product_error

from surefoot._linalg.info import Status
from surefoot.linalg import LowRank, svd_lowrank, svd_lowrank_ex

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def matrices(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    spectra = {
        "decay": [2.0**-i for i in range(30)],
        "flat": [1.0] * 30,
        "gap": [1.0] * 4 + [1e-5] * 26,
        "tie at the cut": [1.0, 0.9, 0.5, 0.5, 0.5, 0.5, 0.1],
        "low rank": [1.0, 0.3, 1e-3],
    }
    result = {name: with_singular_values(values, 40, 35) for name, values in spectra.items()}
    result |= {"hilbert": hilbert(30), "kahan": kahan(30), "graded": graded(30, 9.0), "wide": draw(20, 50)}
    result["zero"] = torch.zeros(20, 18).double()
    if dtype in (torch.float64, torch.complex128):
        result |= {"huge": 1e150 * draw(25, 20), "tiny": 1e-150 * draw(20, 25)}
    factor = 0.6 + 0.8j if dtype.is_complex else 1.0
    return {name: (A * factor).to(dtype) for name, A in result.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_cut_is_between_its_bounds(dtype: torch.dtype) -> None:
    """The difference formed in 300 bits; few iterations, so that it is far from the best too."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    for name, A in matrices(dtype).items():
        scale = float(A.abs().max()) or 1.0
        for iterations in (0, 3):
            value, info = svd_lowrank_ex(A, 4, oversampling=3, iterations=iterations)
            assert torch.equal(value.S, svd_lowrank(A, 4, oversampling=3, iterations=iterations).S)
            US = value.U.to(wide) * value.S.to(wide)
            difference = A.to(wide) / scale - US / scale @ value.Vh.to(wide)
            error = scale * product_error(A.to(wide) / scale, US / scale, value.Vh)
            sigma = scale * torch.linalg.svdvals(A.to(wide) / scale)
            best = scale * float((sigma[4:] / scale).norm())
            # the reference is a double
            assert error <= float(value.cut) * (1 + 1e-14), name
            assert float(value.least) <= best * (1 + 1e-12) + 1e-15 * float(sigma[0]), name
            assert scale * float(torch.linalg.matrix_norm(difference, 2)) <= float(info.error_bound) * (1 + 1e-12), name
            assert float(sigma[4]) <= float(info.error_bound) * (1 + 1e-12) <= float(value.cut) * (1 + 1e-11), name
            if iterations:
                eps = torch.finfo(dtype).eps
                # of 0 the rounding of what underflows is left
                assert float(value.cut) <= 1.01 * best + 100 * eps * float(sigma[0]) or float(value.cut) < 1e-150, name


def test_the_bounds_meet_where_the_rest_decays() -> None:
    A = matrices(torch.float64)["decay"]
    value = svd_lowrank(A, 5)
    assert float(value.least) <= float(value.cut) <= 1.001 * float(value.least)
    exact = svd_lowrank(A, 35 - 10)
    assert float(exact.least) <= float(exact.cut) and svd_lowrank_ex(A, 30)[1].method == "svd"
    torch.testing.assert_close(svd_lowrank(A, 30).S, torch.linalg.svdvals(A)[:30])


def test_statuses_ranks_and_shapes() -> None:
    A = torch.stack((draw(6, 5), draw(6, 1) @ draw(1, 5, seed=1), draw(6, 5)))
    A[2, 0, 0] = math.nan
    value, info = svd_lowrank_ex(A, 2, oversampling=1)
    S = Status
    assert info.status.tolist() == [S.OK, S.RANK_DEFICIENT, S.NON_FINITE] and info.rank.tolist() == [2, 1, 0]
    assert value.U.shape == (3, 6, 2) and value.Vh.shape == (3, 2, 5) and value.cut.shape == (3,)
    assert bool(value.U[2].isnan().all()) and bool(value.U[:2].isfinite().all()) and math.isinf(info.error_bound[2])
    with pytest.raises(torch.linalg.LinAlgError, match=r"svd_lowrank: A\[2\] has infinite or NaN entries"):
        svd_lowrank(A, 2)
    for rank in (0, 6, 2.0):
        with pytest.raises(ValueError, match=r"from 1 to min\(m, n\) = 5"):
            svd_lowrank(A, rank)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"generator is 3: it must be a torch\.Generator"):
        svd_lowrank(A, 2, generator=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="iterations is -1"):
        svd_lowrank(A, 2, iterations=-1)


def test_the_vectors_are_those_of_the_generator() -> None:
    A = draw(30, 30)

    def values(seed: int | None) -> torch.Tensor:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return svd_lowrank(A, 3, oversampling=2, iterations=0, generator=generator).S

    state = torch.get_rng_state()
    assert torch.equal(values(None), values(None)) and torch.equal(values(1), values(1))
    assert not torch.equal(values(1), values(2)) and not torch.equal(values(1), values(None))
    assert torch.equal(torch.get_rng_state(), state)


@SCRIPTED
def test_derivatives_are_refused_rather_than_wrong() -> None:
    A = draw(6, 5).requires_grad_()
    with pytest.raises(NotImplementedError, match=r"cut the factors of svd.*A\.detach\(\)"):
        svd_lowrank(A, 2, oversampling=1).S.sum().backward()
    with pytest.raises(NotImplementedError, match="cut the factors of svd"):
        torch.func.jvp(lambda A: svd_lowrank(A, 2, oversampling=1).S, (A.detach(),), (A.detach(),))
    assert not svd_lowrank(A, 2, oversampling=1).cut.requires_grad


def test_vmap_and_half_precision() -> None:
    A = draw(3, 12, 20)
    for ours, theirs in zip(torch.vmap(lambda A: svd_lowrank(A, 2))(A), svd_lowrank(A, 2), strict=True):
        torch.testing.assert_close(ours, theirs)
    half = svd_lowrank(A.to(torch.bfloat16), 2)
    assert half.U.dtype == half.S.dtype == torch.bfloat16 and half.cut.dtype == torch.float64
    for a, U, S, Vh, cut in zip(A.to(torch.bfloat16), half.U, half.S, half.Vh, half.cut, strict=True):
        assert product_error(a.double(), U.double() * S.double(), Vh.double()) <= float(cut)


def test_bounds_of_subnormal_matrices_are_not_rounded_below_the_error() -> None:
    A = draw(10, 2, 2, dtype=torch.float64) * 1e-312
    for rank in (1, 2):
        value, info = svd_lowrank_ex(A, rank)
        for index in range(len(A)):
            a, u, s, v = ([[Fraction(x) for x in row] for row in M[index].tolist()] for M in (A, *factors(value)))
            rest = [a[i][j] - sum(u[i][k] * s[0][k] * v[k][j] for k in range(rank)) for i in (0, 1) for j in (0, 1)]
            assert sum(x * x for x in rest) <= Fraction(value.cut[index].item()) ** 2
        assert bool((value.least <= value.cut).all()) and bool((info.error_bound > 0).all())


def factors(value: LowRank) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return value.U, value.S.unsqueeze(-2), value.Vh
