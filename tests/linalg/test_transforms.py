"""What transformations do at matrices that are not regular, what they refuse, and what the module needs."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import surefoot.linalg as surefoot_linalg
from surefoot._linalg import norms
from surefoot._linalg.info import Status
from surefoot._linalg.inverse import inv_ex
from surefoot._linalg.pinv import pinv, pinv_ex

SHAPES = [(3, 3, 5), (3, 5, 3), (3, 4, 4)]
Function = Callable[[torch.Tensor], torch.Tensor]
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def loss(function: Function) -> Function:
    return lambda A: function(A).abs().pow(3).sum()


def assert_close(got: torch.Tensor, true: torch.Tensor) -> None:
    assert got.shape == true.shape
    assert float((got - true).detach().abs().max()) <= 1e-9 * (1 + float(true.detach().abs().max()))


@SCRIPTED
def test_forward_mode_inside_forward_mode_is_refused_rather_than_wrong() -> None:
    with pytest.raises(NotImplementedError, match=r"jacfwd\(jacrev\(f\)\)"):
        torch.func.jacfwd(torch.func.jacfwd(loss(pinv)))(draw(2, 3))


@SCRIPTED
@pytest.mark.parametrize("shape", SHAPES)
def test_tangent_and_gradient_agree_at_a_deficient_rank(shape: tuple[int, ...]) -> None:
    """⟨g, dA⁺(V)⟩ = ⟨gradient(g), V⟩, in one batch with a full-rank and a non-finite matrix."""
    A, V = draw(*shape), draw(*shape, seed=1)
    A[1] = A[1, :, :1] @ A[1, :1]
    A[2, 0, 0] = math.nan
    X, tangent = torch.func.jvp(lambda A: pinv_ex(A)[0], (A,), (V,))
    g = draw(*X.shape, seed=2)
    gradient = torch.func.vjp(lambda A: pinv_ex(A)[0], A)[1](g)[0]
    B = A.clone().requires_grad_()
    pinv_ex(B)[0].backward(g)
    assert B.grad is not None
    assert_close(gradient, B.grad)
    left, right = (g * tangent).sum((-2, -1)), (gradient * V).sum((-2, -1))
    assert_close(left[:2], right[:2])
    assert bool((gradient[2] == 0).all())


def test_info_and_statuses_pass_through_vmap() -> None:
    A = draw(4, 3, 3)
    A[1] = 1.0
    A[2, 0, 0] = math.inf
    X, info = torch.vmap(pinv_ex)(A)
    assert info.status.tolist() == [Status.OK, Status.RANK_DEFICIENT, Status.NON_FINITE, Status.OK]
    assert bool(X[2].isnan().all()) and torch.equal(X[0], pinv_ex(A)[0][0])
    _, info = torch.vmap(inv_ex)(A)
    assert info.status.tolist() == [Status.OK, Status.SINGULAR, Status.NON_FINITE, Status.OK]
    # without an exception to raise, the plain function is NaN there
    assert bool(torch.vmap(pinv)(A)[2].isnan().all())


def test_parameters_and_no_grad() -> None:
    layer = torch.nn.Parameter(draw(30, 40))
    with torch.no_grad():
        assert not pinv(layer).requires_grad
    pinv(layer).sum().backward()
    assert layer.grad is not None and bool(layer.grad.isfinite().all())
    assert not pinv_ex(layer)[1].error_bound.requires_grad


def test_the_module_itself_needs_torch_and_numpy_alone() -> None:
    """With an empty package around it, so that what the rest of surefoot imports does not count."""
    folder = Path(surefoot_linalg.__file__).parent
    program = (
        "import sys, types, torch, numpy; before = set(sys.modules); "
        f"package = types.ModuleType('surefoot'); package.__path__ = [{str(folder)!r}]; sys.modules['surefoot'] = package; "
        "import surefoot.linalg; "
        "added = set(sys.modules) - before - {'surefoot'}; "
        "added = {name for name in added if name.partition('.')[0] not in ('torch', 'numpy')}; "
        "print(sorted(name for name in added if not name.startswith(('surefoot.linalg', 'surefoot._linalg'))))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    added = [name for name in ast.literal_eval(result.stdout) if name.partition(".")[0] not in sys.stdlib_module_names]
    assert [name for name in added if name not in ("surefoot._core", "surefoot._core.brief")] == []  # short texts


@pytest.mark.parametrize(
    ("backend", "setting", "roundoff"),
    [("cuda", "tf32", 2.0**-11), ("mkldnn", "bf16", 2.0**-8), ("mkldnn", "tf32", 2.0**-11)],
)
def test_precision_settings_of_both_kinds(backend: str, setting: str, roundoff: float) -> None:
    """After one of the newer settings torch.get_float32_matmul_precision raises; the bounds must not."""
    matmul = getattr(torch.backends, backend).matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = setting
    try:
        assert norms.product_roundoff(torch.float32) == norms.product_roundoff(torch.complex64) == roundoff
        assert norms.product_roundoff(torch.float64) == 2.0**-53
        assert pinv_ex(draw(40, 50, dtype=torch.float32))[1].ok
    finally:
        matmul.fp32_precision = before
    older = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert norms.product_roundoff(torch.float32) == 2.0**-11
    finally:
        torch.set_float32_matmul_precision(older)
    assert norms.product_roundoff(torch.float32) == 2.0**-24


BAD: dict[str, Function] = {
    "svd": lambda A: surefoot_linalg.svd_ex(A)[0].U,
    "svdvals": lambda A: surefoot_linalg.svdvals_ex(A)[0],
    "complex": lambda A: surefoot_linalg.svd_ex(torch.complex(A, A))[0].S,
    "eigenvalues": lambda A: surefoot_linalg.eigh_ex(A)[0].eigenvalues,
    "eigenvectors": lambda A: surefoot_linalg.eigh_ex(A, "U")[0].eigenvectors,
    "polar": lambda A: surefoot_linalg.polar_ex(A)[0].H,
    "orthogonalize": lambda A: surefoot_linalg.orthogonalize_ex(A)[0],
    "solution": lambda A: surefoot_linalg.lstsq_ex(A, torch.ones(2, 1).double())[0].solution,
    "residuals": lambda A: surefoot_linalg.lstsq_ex(A, torch.ones(2, 1).double())[0].residuals,
    "square root": lambda A: surefoot_linalg.sqrtm_ex(A)[0],
    "inverse": lambda A: surefoot_linalg.inv_ex(A)[0],
    "pinv": lambda A: surefoot_linalg.pinv_ex(A)[0],
}


@pytest.mark.parametrize("name", BAD)
def test_a_matrix_that_is_not_finite_has_gradient_zero_to_the_second_order(name: str) -> None:
    A = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)).repeat(2, 1, 1)
    alone = A[0].clone().requires_grad_()
    A[1] = math.nan
    A.requires_grad_()
    (ours,) = torch.autograd.grad(BAD[name](A)[0].square().sum(), A, create_graph=True)
    (theirs,) = torch.autograd.grad(BAD[name](alone).square().sum(), alone)
    torch.testing.assert_close(ours[0], theirs)
    assert not ours[1].any()
    if ours.requires_grad:
        assert not torch.autograd.grad(ours[0].square().sum(), A)[0][1].any()


def test_what_eigh_does_not_read_may_be_anything() -> None:
    A = torch.tensor([[2.0, math.nan], [1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    value, info = surefoot_linalg.eigh_ex(A)
    assert info.ok
    assert bool(torch.autograd.grad(value.eigenvalues[0], A)[0].isfinite().all())
