"""Upper bounds, with derivatives, of the norms of matrices and convolutions: never below the norm, and close to it."""

import pytest
import torch
from torch.nn import functional as F

from surefoot._equilibrium.lipschitz.norms import convolution_upper, spectral_upper

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def norm(A):
    return torch.linalg.matrix_norm(A.to(torch.complex128 if A.is_complex() else torch.float64), 2)


MATRICES = {
    "one number": draw(1, 1),
    "a row": draw(1, 9),
    "a column": draw(9, 1),
    "wide": draw(4, 11),
    "random": draw(30, 30),
    "float32": draw(30, 20, dtype=torch.float32),
    "half": draw(8, 8).half(),
    "complex": draw(6, 9, dtype=torch.complex128),
    "orthogonal": torch.linalg.qr(draw(64, 64))[0],
    "larger": draw(180, 150),
    "larger and orthogonal": torch.linalg.qr(draw(150, 150))[0],
    "large and of low rank": draw(200, 3) @ draw(3, 150),
    "rank one": draw(7, 1) @ draw(1, 7, seed=1),
    "far apart": torch.diag(torch.logspace(0, -300, 9, dtype=torch.float64)),
    "nilpotent": torch.diag(torch.ones(8, dtype=torch.float64), 1),
    "huge": 1e300 * draw(5, 5),
    "tiny": 1e-300 * draw(5, 5),
    "subnormal": torch.full((3, 4), 1e-310, dtype=torch.float64),
}


@pytest.mark.parametrize("name", MATRICES)
def test_the_bound_of_a_matrix(name):
    A = MATRICES[name]
    scale = float(A.abs().max())
    true = norm(A / scale if scale < 1e-200 or scale > 1e200 else A) * (
        scale if scale < 1e-200 or scale > 1e200 else 1.0
    )
    bound = spectral_upper(A)
    assert bound.dtype == torch.float64
    # 1e-12 for the singular values that torch computes
    assert true * (1.0 - 1e-12) <= bound <= true * (1.0 + 1e-8)


def test_zeros_nothing_and_nan():
    zeros = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    bound = spectral_upper(zeros)
    bound.backward()
    assert float(bound.detach()) <= 1e-280
    assert torch.equal(zeros.grad, torch.zeros(3, 4, dtype=torch.float64))
    assert float(spectral_upper(torch.zeros(0, 4))) == 0.0
    assert not spectral_upper(torch.tensor([[1.0, torch.nan]])).isfinite()
    assert not spectral_upper(torch.tensor([[1.0, torch.inf]])).isfinite()


@pytest.mark.parametrize("shape", [(4, 4), (2, 3), (3, 2)])
def test_derivatives_of_every_kind(shape):
    A = draw(*shape).requires_grad_()
    assert torch.autograd.gradcheck(spectral_upper, A)
    assert torch.autograd.gradgradcheck(spectral_upper, A)
    assert torch.autograd.gradcheck(lambda A: torch.func.jacrev(spectral_upper)(A), A)
    H = torch.func.jacfwd(torch.func.grad(spectral_upper))(A.detach())
    assert torch.allclose(torch.func.hessian(spectral_upper)(A.detach()), H)


def test_the_derivative_at_equal_singular_values_is_that_of_one():
    A = torch.linalg.qr(draw(4, 4))[0].requires_grad_()
    (gradient,) = torch.autograd.grad(spectral_upper(A), A)
    singular = torch.linalg.svdvals(gradient)
    assert torch.allclose(singular, torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64), atol=1e-6)
    assert float((gradient * A).sum().detach()) == pytest.approx(1.0, abs=1e-6)


def test_the_derivative_of_a_large_matrix():
    A = draw(200, 150)
    U, _, Vh = torch.linalg.svd(A)
    gradient = torch.func.grad(spectral_upper)(A)
    assert torch.allclose(gradient, torch.outer(U[:, 0], Vh[0]), atol=1e-6)


def test_batches_and_vmap():
    A = draw(3, 5, 4)
    assert torch.allclose(spectral_upper(A), torch.stack([spectral_upper(part) for part in A]), rtol=1e-14)
    assert torch.allclose(torch.vmap(spectral_upper)(A), spectral_upper(A), rtol=1e-14)


def matrix(weight, sizes, stride, groups, dilation, around):
    """That of a convolution on maps of these sizes, between zeros that reach as far as they can or around a torus."""
    dims = weight.ndim - 2
    channels = weight.shape[1] * groups
    units = torch.eye(channels * torch.Size(sizes).numel(), dtype=torch.float64).reshape(-1, channels, *sizes)
    reach = [(size - 1) * dilation for size in weight.shape[2:]]
    if around:
        units = F.pad(units, [part for size in reversed(reach) for part in (0, size)], mode="circular")
    conv = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    return conv(units, weight, None, stride, 0 if around else reach, dilation, groups).flatten(1)


# channels (out, in), kernel, stride, groups, dilation, sizes of a torus that has frequencies near the maximum
CONVOLUTIONS = [
    ((3, 3), (3, 3), (1, 1), 1, 1, (9, 9)),
    ((2, 3), (5, 4), (1, 1), 1, 1, (10, 10)),
    ((4, 4), (3, 3), (1, 1), 2, 1, (8, 8)),
    ((3, 3), (3, 3), (1, 1), 3, 1, (9, 9)),
    ((2, 2), (3, 3), (2, 2), 1, 1, (12, 12)),
    ((2, 2), (2, 4), (2, 1), 1, 1, (10, 10)),
    ((3, 2), (3, 1), (3, 1), 1, 1, (15, 6)),
    ((2, 2), (3, 3), (1, 1), 1, 2, (9, 9)),
    ((2, 2), (3, 3), (2, 2), 1, 2, (18, 18)),
    ((3, 2), (2, 2), (2, 3), 1, 3, (18, 18)),
    ((3, 2), (3,), (4,), 1, 2, (72,)),
    ((3, 2), (3,), (2,), 1, 3, (72,)),
    ((3, 2), (1, 1), (1, 1), 1, 1, (5, 5)),
    ((3, 2), (7,), (1,), 1, 1, (60,)),
    ((3, 2), (2,), (1,), 1, 1, (60,)),
    ((3, 2), (5,), (2,), 1, 1, (60,)),
    ((1, 2), (2, 2, 2), (1, 1, 1), 1, 1, (4, 4, 4)),
]


@pytest.mark.parametrize(("channels", "kernel", "stride", "groups", "dilation", "sizes"), CONVOLUTIONS)
def test_the_bound_of_a_convolution(channels, kernel, stride, groups, dilation, sizes):
    weight = draw(channels[0], channels[1] // groups, *kernel)
    bound = convolution_upper(weight, stride, [dilation] * len(sizes), groups)
    between = norm(matrix(weight, sizes, stride, groups, dilation, around=False))
    around = norm(matrix(weight, sizes, stride, groups, dilation, around=True))
    # the reach of zeros is a part of the convolution on the whole plane; a torus has some of its frequencies
    assert between <= bound
    assert around <= bound
    assert bound <= (1.08 if len(sizes) > 1 else 1.025) * around


@pytest.mark.parametrize("seed", range(3))
def test_no_map_size_exceeds_the_bound(seed):
    weight = draw(2, 2, 3, 3, seed=seed)
    bound = convolution_upper(weight, (1, 1), (1, 1), 1)
    for size in (1, 2, 3, 5, 8):
        assert norm(matrix(weight, (size, size), (1, 1), 1, 1, around=False)) <= bound
        assert norm(matrix(weight, (size + 2, size + 3), (1, 1), 1, 1, around=True)) <= bound


def test_a_symbol_with_its_maximum_between_angles():
    """cos has its maximum between the angles of the grid, wherever those are."""
    for turn in torch.linspace(0.0, 0.2, 9, dtype=torch.float64):
        # |exp(iθ + i turn) + exp(−iθ − i turn)|, as two real channels
        c, s = torch.cos(turn), torch.sin(turn)
        first, last = (
            torch.stack([torch.stack([c, -s]), torch.stack([s, c])]),
            torch.stack([torch.stack([c, s]), torch.stack([-s, c])]),
        )
        weight = torch.stack([first, torch.zeros(2, 2, dtype=torch.float64), last], -1)
        bound = convolution_upper(weight, (1,), (1,), 1)
        assert 2.0 <= bound <= 2.0 * 1.02


def test_the_derivative_of_a_convolution():
    weight = draw(2, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: convolution_upper(w, (1,), (1,), 1), weight)
    assert torch.autograd.gradcheck(lambda w: convolution_upper(w, (2,), (1,), 1), weight)


def test_convolutions_under_transforms():
    weights = draw(3, 2, 1, 3, 2)

    def bound(weight):
        return convolution_upper(weight, (1, 1), (1, 1), 2)

    assert torch.allclose(torch.vmap(bound)(weights), torch.stack([bound(weight) for weight in weights]), rtol=1e-12)
    gradients = torch.stack([torch.func.grad(bound)(weight) for weight in weights])
    assert torch.allclose(torch.vmap(torch.func.grad(bound))(weights), gradients, rtol=1e-9, atol=1e-12)
    assert torch.allclose(torch.vmap(torch.func.jacfwd(bound))(weights), gradients, rtol=1e-9, atol=1e-12)


def test_extreme_convolutions():
    weight = draw(2, 2, 3, 3)
    assert float(convolution_upper(0.0 * weight, (1, 1), (1, 1), 1)) <= 1e-150
    assert torch.allclose(
        convolution_upper(1e140 * weight, (1, 1), (1, 1), 1), 1e140 * convolution_upper(weight, (1, 1), (1, 1), 1)
    )
    assert not convolution_upper(weight * torch.nan, (1, 1), (1, 1), 1).isfinite()
