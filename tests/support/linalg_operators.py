"""The public operators of ``surefoot.linalg``, one entry each, as ``tests/linalg/test_operators.py`` runs them.

Every entry goes through every transformation of torch, at every batch rank and dtype, against a Python loop over single
matrices, the ``reference`` and finite differences. An entry is

    Operator(name, call, kinds, reference, extras)

name:       the public function, which a test holds against ``surefoot.linalg.__all__``; ``way`` tells several entries apart.
call:       of A (..., m, n) and of one tensor for each of ``extras``. It returns a value, or (value, Info): a value is a
            tensor or a tuple of tensors, differentiable in A and free of arbitrary choices (``factors`` for singular vectors).
kinds:      the matrices that it takes, of KINDS. Their singular values (eigenvalues) differ, the smallest is SMALLEST, the
            largest 2, so that tolerances of TOLERANCES decide.
reference:  the same value by torch's own operators, or None.
extras:     for each further argument a function of A that makes it: its leading dimensions are those of A. Each is also
            mapped alone, and not at all, under ``vmap``.
dtypes:     ALL where nothing is said.
differentiable: False for an operator that refuses derivatives.
untested:   transformations (functions of the test) that do not apply, each with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from draws import normal
from torch import Tensor

from surefoot import linalg, nn

Values = tuple[Tensor, ...]

KINDS: dict[str, tuple[int, int]] = {
    "square": (3, 3),
    "wide": (2, 4),
    "tall": (4, 2),
    "hermitian": (3, 3),
    "positive": (3, 3),
}
SYMMETRIC = ("hermitian", "positive")
SQUARE, ANY, HERMITIAN, POSITIVE = ("square",), ("square", "wide", "tall"), ("hermitian",), ("positive",)
REAL = (torch.float32, torch.float64)
COMPUTED = (*REAL, torch.complex64, torch.complex128)
ALL = (*COMPUTED, torch.float16, torch.bfloat16)
SMALLEST = 0.05


@dataclass(frozen=True)
class Operator:
    name: str
    call: Callable[..., Any]
    kinds: tuple[str, ...]
    reference: Callable[..., Any] | None
    extras: tuple[Callable[[Tensor], Tensor], ...] = ()
    dtypes: tuple[torch.dtype, ...] = ALL
    differentiable: bool = True
    way: str = ""
    untested: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}-{self.way}" if self.way else self.name


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Gaussian numbers, real or complex, rounded to ``dtype``."""
    drawn = normal(*shape, seed=seed)
    return (torch.complex(drawn, normal(*shape, seed=seed + 1)) if dtype.is_complex else drawn).to(dtype)


def matrices(kind: str, *batch: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Matrices (*batch, m, n) with singular values or eigenvalues from 2 down to SMALLEST, alternating in sign if Hermitian."""
    m, n = KINDS[kind]
    wide, count, k = torch.promote_types(dtype, torch.float64), math.prod(batch), min(m, n)
    Q, R = (torch.linalg.qr(draw(count, size, size, dtype=wide, seed=seed + size)).Q for size in (m, n))
    S = torch.linspace(2.0, SMALLEST, k, dtype=torch.float64)
    if kind == "hermitian":
        S[1::2] *= -1.0
    A = (Q[..., :k] * S) @ (Q.mH if kind in SYMMETRIC else R[..., :k, :])
    return (symmetrised(A) if kind in SYMMETRIC else A).to(dtype).reshape(*batch, m, n)


def symmetrised(A: Tensor) -> Tensor:
    """The Hermitian part."""
    return (A + A.mH) / 2


def direction(kind: str, A: Tensor, seed: int = 70) -> Tensor:
    """A direction in which A may move: Hermitian where A is."""
    V = draw(*A.shape, dtype=A.dtype, seed=seed)
    return symmetrised(V) if kind in SYMMETRIC else V


def per_matrix(*values: float) -> Callable[[Tensor], Tensor]:
    """An argument (...) of A (..., m, n) that takes these values in turn."""

    def make(A: Tensor) -> Tensor:
        count = math.prod(A.shape[:-2])
        turns = torch.tensor(values, dtype=torch.float64, device=A.device)
        return turns.repeat(count // len(values) + 1)[:count].reshape(A.shape[:-2])

    return make


TOLERANCES = per_matrix(SMALLEST / 100, 4 * SMALLEST)
"""Below the smallest singular value, and between it and the next."""


def columns(A: Tensor) -> Tensor:
    """A right-hand side (..., m, 2) of its own for each matrix."""
    return draw(*A.shape[:-1], 2, dtype=A.dtype, seed=50)


def vector(A: Tensor) -> Tensor:
    """A right-hand side (..., m)."""
    return columns(A)[..., 0]


@torch.autocast("cpu", enabled=False)  # it is the operator that may not be touched by it
def factors(U: Tensor, S: Tensor, Vh: Tensor) -> Values:
    """What A determines of a singular value decomposition with different singular values."""
    k = S.shape[-1]
    U, Vh = U[..., :, :k], Vh[..., :k, :]
    S_of = S.to(U.dtype)
    return S, (U * S_of.atan().unsqueeze(-2)) @ Vh, U[..., :1] @ U[..., :1].mH, Vh[..., :1, :].mH @ Vh[..., :1, :]


@torch.autocast("cpu", enabled=False)
def eigenfactors(x: Tensor, Q: Tensor) -> Values:
    """What A determines of its eigenvectors where the eigenvalues differ."""
    return x, (Q * x.atan().to(Q.dtype).unsqueeze(-2)) @ Q.mH, Q[..., :1] @ Q[..., :1].mH


def record(call: Callable[..., Any], view: Callable[..., Any] = lambda value: value) -> Callable[..., Any]:
    """The call of a function ``*_ex``, with ``view`` of its value."""

    def run(*args: Any) -> Any:
        value, info = call(*args)
        return view(value), info

    return run


def leading(value: Any) -> Values:
    """What A determines of its largest singular value and the vectors."""
    return factors(value.U, value.S, value.Vh)


def torch_leading(A: Tensor) -> Values:
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    return factors(U[..., :1], S[..., :1], Vh[..., :1, :])


def torch_factors(A: Tensor) -> Values:
    return factors(*torch.linalg.svd(A, full_matrices=False))


def torch_eigenfactors(A: Tensor) -> Values:
    return eigenfactors(*torch.linalg.eigh(A))


def torch_polar(A: Tensor, side: str = "right") -> Values:
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    Q = U if side == "left" else Vh.mH
    return U @ Vh, (Q * S.to(Q.dtype).unsqueeze(-2)) @ Q.mH


def torch_cayley(P: Tensor, U: Tensor, t: Tensor) -> Tensor:
    half = t.to(P.real.dtype)[..., None, None] / 2 * P
    identity = torch.eye(P.shape[-1], dtype=P.dtype)
    return torch.linalg.solve(identity + half, (identity - half) @ U)


def torch_pinv(A: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    return torch.linalg.pinv(A, atol=atol, rtol=rtol)


def torch_pinvh(A: Tensor, atol: Tensor, rtol: Tensor) -> Tensor:
    return torch.linalg.pinv(A, atol=atol, rtol=rtol, hermitian=True)


def torch_solve_vector(A: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(A, b.unsqueeze(-1)).squeeze(-1)


def torch_pinv_product(A: Tensor, B: Tensor) -> Tensor:
    return torch.linalg.pinv(A) @ B


def torch_lstsq(A: Tensor, B: Tensor, atol: Tensor, ridge: Tensor) -> Tensor:
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    factor = torch.where(atol[..., None] < S, S / (S.square() + ridge[..., None]), 0.0)
    return Vh.mH @ (factor[..., None] * (U.mH @ B))


def of_eigenvalues(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """f of a Hermitian matrix."""

    def function(A: Tensor) -> Tensor:
        x, Q = torch.linalg.eigh(A)
        return (Q * f(x).to(Q.dtype).unsqueeze(-2)) @ Q.mH

    return function


def of_singular_values(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """U·diag(f(S))·Vh."""

    def function(A: Tensor, *args: Tensor) -> Tensor:
        U, S, Vh = torch.linalg.svd(A, full_matrices=False)
        return (U * f(S, *args).to(U.dtype).unsqueeze(-2)) @ Vh

    return function


def torch_svt(A: Tensor, threshold: Tensor) -> Tensor:
    return of_singular_values(lambda S: (S - threshold.to(S.dtype)[..., None]).clamp(min=0.0))(A)


def torch_nuclear_norm(A: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(A, "nuc")


GRADIENT_IN_DYNAMO = {"compile_of_transforms": "Dynamo fails on the gradient, as docs/linalg.md says"}
COARSE = "the polynomial, and so its derivative, depends on the precision"
THRESHOLDS = per_matrix(0.3, 1.5)
RIDGES = per_matrix(0.1, 0.3)
STEPS = per_matrix(1.0, -0.3, 0.7)
TWO_TOLERANCES = (TOLERANCES, TOLERANCES)


def with_tolerances(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda A, atol, rtol: function(A, atol=atol, rtol=rtol, **options)


def with_f(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda A: function(A, torch.tanh, lambda x: 1 - torch.tanh(x).square())


def with_option(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda *args: function(*args, **options)


OPERATORS: tuple[Operator, ...] = (
    # inverses and linear systems
    Operator("inv", linalg.inv, SQUARE, torch.linalg.inv),
    Operator("inv_ex", record(linalg.inv_ex), SQUARE, torch.linalg.inv),
    Operator("pinv", linalg.pinv, ANY, torch.linalg.pinv),
    Operator("pinv", with_tolerances(linalg.pinv), ANY, torch_pinv, TWO_TOLERANCES, way="tolerances"),
    Operator(
        "pinv", with_tolerances(linalg.pinv, hermitian=True), HERMITIAN, torch_pinvh, TWO_TOLERANCES, way="hermitian"
    ),
    Operator("pinv_ex", record(with_tolerances(linalg.pinv_ex)), ANY, torch_pinv, TWO_TOLERANCES),
    Operator("solve", linalg.solve, SQUARE, torch.linalg.solve, (columns,)),
    Operator("solve", linalg.solve, SQUARE, torch_solve_vector, (vector,), way="vector"),
    Operator("solve_ex", record(linalg.solve_ex), SQUARE, torch.linalg.solve, (columns,)),
    Operator("cholesky", linalg.cholesky, POSITIVE, torch.linalg.cholesky),
    Operator(
        "cholesky_ex",
        record(lambda A, most: linalg.cholesky_ex(A, max_shift=most), lambda value: value.factor),
        POSITIVE,
        lambda A, most: torch.linalg.cholesky(A),
        (THRESHOLDS,),
    ),
    Operator(
        "cholesky_ex",
        record(lambda A: linalg.cholesky_ex(A, upper=True), lambda value: value.factor),
        POSITIVE,
        lambda A: torch.linalg.cholesky(A, upper=True),
        way="upper",
    ),
    Operator("lstsq", lambda A, B: linalg.lstsq(A, B).solution, ANY, torch_pinv_product, (columns,)),
    Operator(
        "lstsq",
        lambda A, B, ridge: linalg.lstsq(A, B, ridge=ridge).solution,
        ANY,
        lambda A, B, ridge: torch_lstsq(A, B, torch.zeros_like(ridge), ridge),
        (columns, RIDGES),
        way="ridge",
    ),
    Operator(
        "lstsq_ex",
        record(lambda A, B, atol: linalg.lstsq_ex(A, B, atol=atol, rtol=0.0), lambda value: value.solution),
        ANY,
        lambda A, B, atol: torch_lstsq(A, B, atol, torch.zeros_like(atol)),
        (columns, TOLERANCES),
    ),
    Operator("LearnedInverse", nn.LearnedInverse.ones(20, 3), ANY, torch.linalg.pinv),
    Operator("LearnedInverse", record(nn.LearnedInverse.ones(20, 3).invert_ex), ANY, torch.linalg.pinv, way="ex"),
    # singular vectors
    Operator(
        "svd", lambda A: factors(*linalg.svd(A, full_matrices=False)), ANY, torch_factors, untested=GRADIENT_IN_DYNAMO
    ),
    Operator("svd", lambda A: linalg.svd(A).S, ANY, torch.linalg.svdvals, way="full", untested=GRADIENT_IN_DYNAMO),
    Operator("svd_ex", record(linalg.svd_ex, lambda value: factors(*value)), ANY, torch_factors),
    Operator(
        "svd_lowrank",
        lambda A: leading(linalg.svd_lowrank(A, 1)),
        ANY,
        torch_leading,
        differentiable=False,
        untested={"empty_matrices": "a rank of 1 needs entries"},
    ),
    Operator(
        "svd_lowrank_ex",
        record(lambda A: linalg.svd_lowrank_ex(A, 1), leading),
        ANY,
        torch_leading,
        differentiable=False,
        untested={"empty_matrices": "a rank of 1 needs entries"},
    ),
    Operator("eigh", lambda A: eigenfactors(*linalg.eigh(A)), HERMITIAN, torch_eigenfactors),
    Operator("eigh_ex", record(linalg.eigh_ex, lambda value: eigenfactors(*value)), HERMITIAN, torch_eigenfactors),
    Operator("polar", lambda A: tuple(linalg.polar(A)), ANY, torch_polar),
    Operator("polar", lambda A: tuple(linalg.polar(A, "left")), ANY, with_option(torch_polar, side="left"), way="left"),
    Operator("polar_ex", record(linalg.polar_ex, tuple), ANY, torch_polar),
    # products alone
    Operator(
        "orthogonalize",
        linalg.orthogonalize,
        ANY,
        lambda A: torch_polar(A)[0],
        untested={"gradients_of_dtypes": COARSE},
    ),
    Operator(
        "orthogonalize_ex",
        record(linalg.orthogonalize_ex),
        ANY,
        lambda A: torch_polar(A)[0],
        untested={"gradients_of_dtypes": COARSE},
    ),
    Operator("cayley", linalg.cayley, SQUARE, torch_cayley, (columns, STEPS)),
    Operator("cayley_ex", record(linalg.cayley_ex), SQUARE, torch_cayley, (columns, STEPS)),
    # functions of Hermitian matrices
    Operator("matrix_function", with_f(linalg.matrix_function), HERMITIAN, of_eigenvalues(torch.tanh)),
    Operator(
        "matrix_function",
        lambda A: linalg.matrix_function(A, torch.tanh),
        HERMITIAN,
        of_eigenvalues(torch.tanh),
        way="derivative",
        untested={"export": "the derivative of f is refused there, and must be given"},
    ),
    Operator(
        "matrix_function_ex",
        record(with_f(linalg.matrix_function_ex)),
        HERMITIAN,
        of_eigenvalues(torch.tanh),
    ),
    Operator("expm", linalg.expm, HERMITIAN, torch.linalg.matrix_exp),
    Operator("expm_ex", record(linalg.expm_ex), HERMITIAN, torch.linalg.matrix_exp),
    Operator("sqrtm", linalg.sqrtm, POSITIVE, of_eigenvalues(torch.sqrt)),
    Operator("sqrtm_ex", record(linalg.sqrtm_ex), POSITIVE, of_eigenvalues(torch.sqrt)),
    Operator("inv_sqrt", linalg.inv_sqrt, POSITIVE, of_eigenvalues(torch.rsqrt)),
    Operator("inv_sqrt_ex", record(linalg.inv_sqrt_ex), POSITIVE, of_eigenvalues(torch.rsqrt)),
    Operator("logm", linalg.logm, POSITIVE, of_eigenvalues(torch.log)),
    Operator("logdet", linalg.logdet, POSITIVE, lambda A: torch.logdet(A).real),
    Operator("logdet_ex", record(linalg.logdet_ex), POSITIVE, lambda A: torch.logdet(A).real),
    Operator("logm_ex", record(linalg.logm_ex), POSITIVE, of_eigenvalues(torch.log)),
    # functions of singular values
    Operator("singular_value_function", with_f(linalg.singular_value_function), ANY, of_singular_values(torch.tanh)),
    Operator(
        "singular_value_function_ex",
        record(with_f(linalg.singular_value_function_ex)),
        ANY,
        of_singular_values(torch.tanh),
    ),
    Operator("singular_power", with_option(linalg.singular_power, p=0.5), ANY, of_singular_values(torch.sqrt)),
    Operator(
        "singular_power_ex", record(with_option(linalg.singular_power_ex, p=0.5)), ANY, of_singular_values(torch.sqrt)
    ),
    Operator("svt", linalg.svt, ANY, torch_svt, (THRESHOLDS,)),
    Operator("svt_ex", record(linalg.svt_ex), ANY, torch_svt, (THRESHOLDS,)),
    Operator("svdvals", linalg.svdvals, ANY, torch.linalg.svdvals, untested=GRADIENT_IN_DYNAMO),
    Operator("svdvals_ex", record(linalg.svdvals_ex), ANY, torch.linalg.svdvals),
    Operator("nuclear_norm", linalg.nuclear_norm, ANY, torch_nuclear_norm),
    Operator("nuclear_norm_ex", record(linalg.nuclear_norm_ex), ANY, torch_nuclear_norm),
)
