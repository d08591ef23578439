"""Linear algebra, Cayley optimisers and deconvolution on a GPU: the results of the CPU, on the device of their arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import surefoot as sf

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

CUDA = torch.device("cuda")
Function = Callable[[Tensor], Tensor]


def matrices(name: str, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = {"wide": (4, 6, 9), "tall": (4, 9, 6), "square": (4, 6, 6), "rank 2": (4, 6, 9)}[name]
    if name == "rank 2":
        left = torch.randn(4, 6, 2, generator=generator, dtype=torch.float64)
        A = left @ torch.randn(4, 2, 9, generator=generator, dtype=torch.float64)
    else:
        A = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return A.to(dtype)


def rank_two(A: Tensor) -> Tensor:
    U, S, Vh = sf.linalg.svd(A, full_matrices=False)
    return (U[..., :2] * S[..., None, :2]) @ Vh[..., :2, :]


def principal(A: Tensor) -> Tensor:
    """The projector on two principal components; with ties outside at rank 2."""
    Q = sf.linalg.eigh(A @ A.mH).eigenvectors[..., -2:]
    return Q @ Q.mH


FUNCTIONS: dict[str, Function] = {
    "pinv": sf.linalg.pinv,
    "iteration": lambda A: sf.linalg.pinv(A, method="iteration"),
    "svd": rank_two,
    "eigh": principal,
    "polar": lambda A: sf.linalg.polar(A).U,
    "orthogonalize": lambda A: sf.linalg.orthogonalize(A, lower=0.1),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", ["wide", "tall", "square", "rank 2"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_the_cpu(name: str, shape: str, dtype: torch.dtype) -> None:
    if name == "polar" and shape == "rank 2":
        pytest.skip("the factor of a singular matrix is not unique")
    values, gradients = [], []
    for device in (torch.device("cpu"), CUDA):
        A = matrices(shape, dtype).to(device).requires_grad_()
        value = FUNCTIONS[name](A)
        weights = torch.linspace(-1.0, 1.0, value.numel(), dtype=torch.float64).reshape(value.shape).to(device)
        (gradient,) = torch.autograd.grad((value * weights).real.sum(), A)
        assert value.device.type == gradient.device.type == device.type
        values.append(value.detach().cpu())
        gradients.append(gradient.cpu())
    torch.testing.assert_close(values[1], values[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_error_bounds_hold_and_stay_on_the_device(dtype: torch.dtype) -> None:
    A = matrices("wide", torch.float64).to(dtype)
    X, info = sf.linalg.pinv_ex(A.to(CUDA))
    assert X.device.type == info.error_bound.device.type == "cuda"
    error = torch.linalg.matrix_norm(X.cpu().double() - torch.linalg.pinv(A.double()), 2)
    assert bool((error <= info.error_bound.cpu()).all())
    assert info.ok


def test_one_bad_matrix_spoils_no_other() -> None:
    A = matrices("square", torch.float32).to(CUDA)
    A[1], A[2, 0, 0] = 1.0, torch.nan
    X, info = sf.linalg.pinv_ex(A)
    assert info.status.tolist() == [0, 1, 3, 0]
    torch.testing.assert_close(X[1].cpu(), torch.full((6, 6), 1 / 36))
    torch.testing.assert_close(X[0], torch.linalg.inv(A[0]), rtol=1e-3, atol=1e-3)


def test_cayley_steps_keep_columns_orthonormal() -> None:
    generator = torch.Generator().manual_seed(0)
    U = torch.nn.Parameter(torch.linalg.qr(torch.randn(20, 4, generator=generator))[0].to(CUDA))
    S = torch.randn(20, 20, generator=generator).to(CUDA)
    optimizer = sf.optim.CayleyAdam([U], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        (-(U * ((S + S.mT) @ U)).sum()).backward()
        optimizer.step()
    assert U.device.type == "cuda"
    assert float((U.mT @ U - torch.eye(4, device=CUDA)).abs().max().detach()) <= 1e-5


def test_deconvolution_agrees_with_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(32, 40, generator=generator, dtype=torch.float64)
    kernel = torch.full((5, 5), 1 / 25, dtype=torch.float64)
    found = []
    for device in (torch.device("cpu"), CUDA):
        blur = sf.deconvolution.PeriodicBlur(kernel.to(device), (32, 40))
        problem = sf.deconvolution.DeconvolutionProblem(blur.forward(image.to(device)), blur, 2e-3)
        model = sf.deconvolution.LADMM()
        state = model.start(problem)
        for k in range(20):
            state = model.step(problem, state, k)
        assert state.z.device.type == device.type
        found.append(state.z.cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-10, atol=1e-10)
