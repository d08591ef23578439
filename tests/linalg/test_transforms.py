"""``pinv`` and ``inv_ex`` under ``torch.func``, ``torch.compile`` and ``torch.export``, against torch's own operators."""

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
from surefoot._linalg.inverse import inv, inv_ex
from surefoot._linalg.pinv import pinv, pinv_ex

SHAPES = [(3, 3, 5), (3, 5, 3), (3, 4, 4)]
Function = Callable[[torch.Tensor], torch.Tensor]
# Dynamo makes an instance of every Function that it traces, which torch itself deprecates
TRACED = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
SCRIPTED = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def loss(function: Function) -> Function:
    return lambda A: function(A).abs().pow(3).sum()


def qr_pinv(A: torch.Tensor) -> torch.Tensor:
    return pinv(A, method="qr")


def cholesky_pinv(A: torch.Tensor) -> torch.Tensor:
    return pinv(A, method="cholesky")


def assert_close(got: torch.Tensor, true: torch.Tensor) -> None:
    assert got.shape == true.shape
    assert float((got - true).detach().abs().max()) <= 1e-9 * (1 + float(true.detach().abs().max()))


@SCRIPTED
@pytest.mark.parametrize("ours", [pinv, cholesky_pinv])
@pytest.mark.parametrize("shape", SHAPES)
def test_func_transforms(shape: tuple[int, ...], ours: Function) -> None:
    A, V, theirs = draw(*shape), draw(*shape, seed=1), torch.linalg.pinv
    grad, vmap, jvp = torch.func.grad, torch.vmap, torch.func.jvp
    assert_close(vmap(ours)(A), theirs(A))
    assert_close(vmap(ours, in_dims=1)(A.movedim(0, 1)), theirs(A))
    assert_close(vmap(vmap(ours))(A[None]), theirs(A)[None])
    assert_close(grad(loss(ours))(A), grad(loss(theirs))(A))
    assert_close(vmap(grad(loss(ours)))(A), grad(loss(theirs))(A))
    assert_close(jvp(ours, (A,), (V,))[1], jvp(theirs, (A,), (V,))[1])
    assert_close(vmap(lambda a, v: jvp(ours, (a,), (v,))[1])(A, V), jvp(theirs, (A,), (V,))[1])
    hessian = torch.func.hessian(loss(theirs))(A[0])
    assert_close(torch.func.hessian(loss(ours))(A[0]), hessian)
    assert_close(torch.func.jacrev(torch.func.jacrev(loss(ours)))(A[0]), hessian)
    assert_close(torch.func.jacrev(torch.func.jacfwd(loss(ours)))(A[0]), hessian)


@SCRIPTED
def test_forward_mode_inside_forward_mode_is_refused_rather_than_wrong() -> None:
    with pytest.raises(NotImplementedError, match=r"jacfwd\(jacrev\(f\)\)"):
        torch.func.jacfwd(torch.func.jacfwd(loss(pinv)))(draw(2, 3))


@SCRIPTED
def test_dual_numbers_and_batched_gradients() -> None:
    A, V = draw(3, 5), draw(3, 5, seed=1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(A, V)
        got = torch.autograd.forward_ad.unpack_dual(pinv(dual)).tangent
    assert_close(got, torch.func.jvp(torch.linalg.pinv, (A,), (V,))[1])
    A = A.requires_grad_()
    seeds = draw(4, 5, 3, seed=2)
    (ours,) = torch.autograd.grad(pinv(A), A, seeds, is_grads_batched=True)
    (theirs,) = torch.autograd.grad(torch.linalg.pinv(A), A, seeds, is_grads_batched=True)
    assert_close(ours, theirs)


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


@TRACED
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("ours", [pinv, qr_pinv, cholesky_pinv])
def test_compile_without_graph_breaks(ours: Function, dtype: torch.dtype) -> None:
    """Complex too: a kernel that used torch's lazy conjugates would be silently wrong in a compiled graph."""
    for shape in ((3, 3, 5), (3, 5, 3)):
        torch._dynamo.reset()
        A = draw(*shape, dtype=dtype).requires_grad_()
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        assert_close(compiled(A.detach()), torch.linalg.pinv(A.detach()))
        X = compiled(A)
        (gradient,) = torch.autograd.grad(X.abs().pow(3).sum(), A)
        (true,) = torch.autograd.grad(loss(torch.linalg.pinv)(A), A)
        assert_close(gradient, true)


@TRACED
def test_compile_of_transforms_and_of_the_other_functions() -> None:
    torch._dynamo.reset()
    A = draw(3, 4, 4)

    def compiled(function: Callable[..., object]) -> Callable[..., object]:
        return torch.compile(function, fullgraph=True, backend="aot_eager")

    assert_close(compiled(torch.vmap(pinv))(A), torch.linalg.pinv(A))  # type: ignore[arg-type]
    gradient = compiled(torch.func.grad(loss(pinv)))(A)
    assert_close(gradient, torch.func.grad(loss(torch.linalg.pinv))(A))  # type: ignore[arg-type]
    assert_close(compiled(inv)(A), torch.linalg.inv(A))  # type: ignore[arg-type]
    A[1] = 1.0
    X, info = compiled(inv_ex)(A)  # type: ignore[misc]
    assert info.status.tolist() == [Status.OK, Status.SINGULAR, Status.OK] and info.method == "lu"
    X, info = compiled(pinv_ex)(A)  # type: ignore[misc]
    assert_close(X, torch.linalg.pinv(A))
    assert info.rank.tolist() == [4, 1, 4]
    symmetric = A + A.mT
    hermitian = compiled(lambda A: pinv(A, hermitian=True))(symmetric)
    assert_close(hermitian, torch.linalg.pinv(symmetric))  # type: ignore[arg-type]


@TRACED
def test_export_and_meta_tensors() -> None:
    class Module(torch.nn.Module):
        def forward(self, A: torch.Tensor) -> torch.Tensor:
            return pinv(A)

    A = draw(2, 3, 5)
    assert_close(torch.export.export(Module(), (A,)).module()(A), torch.linalg.pinv(A))
    assert pinv(A.to("meta")).shape == (2, 5, 3) and inv(A[:, :, :3].to("meta")).is_meta


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
    assert added == []


def test_autocast_does_not_enter() -> None:
    """Values, derivatives and bounds are those without it."""
    A, U = draw(12, 16, dtype=torch.float32), draw(12, 3, dtype=torch.float32)
    square = A[:, :12].contiguous()
    P = square - square.mT
    calls: list[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = [
        (pinv, A),
        (lambda A: pinv_ex(A, method="iteration")[0], A),
        (lambda A: inv_ex(A)[0], square),
        (lambda A: surefoot_linalg.polar(A).U, A),
        (lambda A: surefoot_linalg.svd(A, full_matrices=False).Vh.abs(), A),
        (lambda P: surefoot_linalg.cayley(P, U), P),
    ]
    for call, matrix in calls:
        plain, cast = matrix.clone().requires_grad_(), matrix.clone().requires_grad_()
        expected = call(plain)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = call(cast)
        assert value.dtype == torch.float32 and torch.equal(value, expected)
        assert torch.equal(
            *(torch.autograd.grad(found.square().sum(), at)[0] for found, at in ((expected, plain), (value, cast)))
        )
    without = pinv(A)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(pinv(A), without)
        inside = A.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(pinv(inside).pow(2).sum(), inside)
    outside = A.clone().requires_grad_()
    torch.testing.assert_close(gradient, torch.autograd.grad(pinv(outside).pow(2).sum(), outside)[0])


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
