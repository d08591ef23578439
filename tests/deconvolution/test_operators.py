"""Every blur operator against its dense matrix: definition, adjoint, norm bound, majorizer and inverse."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from deconvolution_pictures import DOUBLE, blurs, kernel, stacks, varying, volume_kernel, weights
from torch import Tensor
from torch.linalg import vector_norm

from surefoot.deconvolution import (
    Blur,
    DeconvolutionProblem,
    PeriodicBlur,
    SpatiallyVaryingBlur,
    ValidBlur,
    normalised_kernel,
)

BLURS = blurs() | stacks()
every = pytest.mark.parametrize("blur", BLURS.values(), ids=list(BLURS))
LEADING = {"periodic, a kernel for each picture": (2, 3)}


def draw(shape: tuple[int, ...], seed: int, leading: tuple[int, ...] = (2, 3)) -> Tensor:
    return torch.randn(*leading, *shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def matrix(blur: Blur) -> Tensor:
    """B as (..., observed pixels, latent pixels); one for each kernel of a batch."""
    return blur.forward(units(blur)).flatten(-len(blur.range)).mT


def units(blur: Blur) -> Tensor:
    """The latent images (..., pixels, *domain) that have one pixel."""
    pixels = math.prod(blur.domain)
    found = torch.eye(pixels, dtype=DOUBLE).reshape(pixels, *blur.domain)
    if isinstance(blur, PeriodicBlur) and blur.kernel.ndim > len(blur.domain):
        return found[None]  # kernels (2, 1, kh, kw) against (1, pixels, H, W)
    return found


def convolution(k: Tensor, z: Tensor) -> Tensor:
    """Σ_i k(i) z(p + c - i), c the centre, circular: the definition, by shifts."""
    total = torch.zeros_like(z)
    for index in itertools.product(*map(range, k.shape)):
        shifts = [i - size // 2 for i, size in zip(index, k.shape, strict=True)]
        total += k[index] * z.roll(shifts, dims=tuple(range(-k.ndim, 0)))
    return total


def test_blur_of_stacks_is_the_convolution() -> None:
    k, z = volume_kernel(3, 2, 4), draw((6, 5, 7), 1)
    expected = convolution(k, z)
    torch.testing.assert_close(PeriodicBlur(k, (6, 5, 7)).forward(z), expected, rtol=0, atol=1e-14)
    blur = ValidBlur.observing(k, (4, 4, 4))  # the same latent size
    assert blur.domain == (6, 5, 7)
    torch.testing.assert_close(blur.forward(z), blur.crop(expected), rtol=0, atol=1e-14)
    dense = torch.nn.functional.conv3d(z.reshape(-1, 1, 6, 5, 7), k.flip((0, 1, 2))[None, None])
    torch.testing.assert_close(blur.forward(z), dense.reshape(2, 3, 4, 4, 4), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [(5, 3), (4, 4), (1, 6)])
def test_periodic_blur_is_the_circular_convolution(size: tuple[int, int]) -> None:
    k, z = kernel(*size), draw((9, 8), 1)
    torch.testing.assert_close(PeriodicBlur(k, (9, 8)).forward(z), convolution(k, z), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [(5, 3), (4, 6), (1, 1)])
def test_valid_blur_is_the_convolution_where_the_kernel_lies_inside(size: tuple[int, int]) -> None:
    k, z = kernel(*size), draw((11, 10), 2)
    flipped = k.flip((0, 1))[None, None]
    expected = torch.nn.functional.conv2d(z.reshape(-1, 1, 11, 10), flipped).reshape(2, 3, 12 - size[0], 11 - size[1])
    blur = ValidBlur(k, (11, 10))
    torch.testing.assert_close(blur.forward(z), expected, rtol=0, atol=1e-14)
    assert blur.range == (12 - size[0], 11 - size[1])


def test_observing_takes_the_size_of_the_observed_picture() -> None:
    blur = ValidBlur.observing(kernel(4, 3), (9, 8))
    assert (blur.range, blur.domain) == ((9, 8), (12, 10))


def test_valid_crop_is_aligned_with_the_observed_picture() -> None:
    # a kernel with all its mass at the centre blurs nothing
    for size in [(5, 3), (4, 6), (2, 2)]:
        k = torch.zeros(size, dtype=DOUBLE)
        k[size[0] // 2, size[1] // 2] = 1.0
        z, blur = draw((11, 10), 3), ValidBlur(k, (11, 10))
        torch.testing.assert_close(blur.forward(z), blur.crop(z), rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", ["valid", "periodic"])
def test_varying_blur_mixes_its_kernels_by_the_weights(boundary: str) -> None:
    blur = varying(9, 8, boundary)
    z = draw(blur.domain, 4)
    parts = [PeriodicBlur(k, blur.domain).forward(z) for k in blur.kernel]
    if boundary == "valid":
        parts = [ValidBlur(k, blur.domain).crop(p) for k, p in zip(blur.kernel, parts, strict=True)]
    expected = sum(w * p for w, p in zip(blur.weights, parts, strict=True))
    torch.testing.assert_close(blur.forward(z), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", ["valid", "periodic"])
def test_a_grid_of_kernels_acts_at_the_centres_of_its_parts(boundary: str) -> None:
    grid = torch.stack([kernel(3, 4, seed) for seed in range(6)]).reshape(2, 3, 3, 4)
    blur = SpatiallyVaryingBlur.from_grid(grid, (10, 15), boundary)
    assert blur.range == (10, 15)
    z = draw(blur.domain, 4, ())
    found = blur.forward(z)

    def one(k: Tensor) -> Tensor:
        return (PeriodicBlur(k, (10, 15)) if boundary == "periodic" else ValidBlur.observing(k, (10, 15))).forward(z)

    # parts of 5 x 5: the centres are pixels 2, 7 and 2, 7, 12
    for row, column in itertools.product(range(2), range(3)):
        centre = (2 + 5 * row, 2 + 5 * column)
        torch.testing.assert_close(found[centre], one(grid[row, column])[centre], rtol=0, atol=1e-14)
    torch.testing.assert_close(found[0, 0], one(grid[0, 0])[0, 0], rtol=0, atol=1e-14)  # constant beyond
    between = 0.8 * one(grid[1, 1]) + 0.2 * one(grid[1, 2])
    torch.testing.assert_close(found[7, 8], between[7, 8], rtol=0, atol=1e-14)
    same = SpatiallyVaryingBlur.from_grid(grid[:1, :1].expand(2, 3, 3, 4), (10, 15), boundary)
    torch.testing.assert_close(same.forward(z), one(grid[0, 0]), rtol=0, atol=1e-14)


def test_a_grid_of_kernels_of_stacks() -> None:
    grid = torch.stack([volume_kernel(2, 2, 1, seed) for seed in range(2)]).reshape(2, 1, 1, 2, 2, 1)
    blur = SpatiallyVaryingBlur.from_grid(grid, (6, 5, 4))
    z = draw(blur.domain, 4, ())
    first, last = (ValidBlur.observing(k, (6, 5, 4)).forward(z) for k in grid[:, 0, 0])
    torch.testing.assert_close(blur.forward(z)[1], first[1], rtol=0, atol=1e-14)
    torch.testing.assert_close(blur.forward(z)[2], (2 * first[2] + last[2]) / 3, rtol=0, atol=1e-14)


@every
def test_adjoint_and_linearity(blur: Blur) -> None:
    z, other, y = draw(blur.domain, 5), draw(blur.domain, 6), draw(blur.range, 7)
    left, right = (blur.forward(z) * y).sum(), (z * blur.adjoint(y)).sum()
    assert float((left - right).abs()) <= 1e-13 * float(z.norm() * y.norm())
    combined = blur.forward(2.0 * z - 3.0 * other)
    torch.testing.assert_close(combined, 2.0 * blur.forward(z) - 3.0 * blur.forward(other), rtol=0, atol=1e-13)


@every
def test_norm_bound_is_above_the_norm_and_tight(blur: Blur) -> None:
    norm = float(torch.linalg.matrix_norm(matrix(blur), ord=2).max())
    assert norm <= blur.norm_bound
    # the whole mass of the kernel: attained by a constant picture where the border is periodic, nearly so elsewhere
    assert blur.norm_bound <= norm * (1.0 + 1e-12 if isinstance(blur, PeriodicBlur) else 1.35)


def test_norm_bound_of_a_large_valid_blur_is_tight() -> None:
    blur = ValidBlur(kernel(5, 5), (96, 96))
    z = torch.ones(96, 96, dtype=DOUBLE)
    for _ in range(60):
        z = blur.gram(z)
        z = z / z.norm()
    reached = float(blur.forward(z).norm())
    assert reached <= blur.norm_bound <= 1.01 * reached


@every
def test_majorizer_is_above_the_gram_matrix(blur: Blur) -> None:
    B = matrix(blur)
    M = blur.majorized(units(blur)).flatten(-len(blur.domain)).mT
    difference = torch.linalg.eigvalsh(M - B.mT @ B)
    assert float(difference.min()) >= -1e-13
    assert blur.exact_majorizer == (float(difference.abs().max()) < 1e-12)


@every
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e4])
def test_solve_inverts_the_majorized_system(blur: Blur, alpha: float) -> None:
    right = draw(blur.domain, 8)
    z = blur.solve(right, alpha)
    torch.testing.assert_close(alpha * blur.majorized(z) + z, right, rtol=0, atol=1e-13 * (1 + alpha))
    if blur.exact_majorizer:
        torch.testing.assert_close(alpha * blur.gram(z) + z, right, rtol=0, atol=1e-13 * (1 + alpha))


@every
def test_float32_agrees_with_float64(blur: Blur) -> None:
    z = draw(blur.domain, 9)
    single = blur.to(torch.float32)
    found = single.forward(z.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), blur.forward(z), rtol=0, atol=2e-6)
    assert single.norm_bound >= float(torch.linalg.matrix_norm(matrix(blur), ord=2).max()) * (1.0 - 1e-6)


@every
def test_rounding_stays_inside_the_granted_error(blur: Blur) -> None:
    z = draw(blur.domain, 10)
    error = blur.to(torch.float32).to(torch.float64).forward(z) - blur.to(torch.float32).forward(z.float()).double()
    granted = blur.to(torch.float32).forward_error(vector_norm(z, dim=blur.axes))
    # converting z itself to float32 costs half a unit in the last place more
    conversion = 2.0**-24 * vector_norm(z, dim=blur.axes) * blur.norm_bound
    assert bool((vector_norm(error, dim=blur.axes) <= granted + conversion).all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PeriodicBlur(torch.zeros(3, 3, dtype=DOUBLE), (8, 8)), "zero everywhere"),
        (lambda: PeriodicBlur(kernel(3, 3) * 255.0, (8, 8)), "sums to 255"),
        (lambda: PeriodicBlur(kernel(3, 3) - 0.05, (8, 8)), "negative entries"),
        (lambda: PeriodicBlur(kernel(9, 3), (8, 8)), "larger than the image"),
        (lambda: ValidBlur.observing(kernel(9, 3), (8, 8)), "larger than the image"),
        (lambda: PeriodicBlur(torch.full((3, 3), torch.nan, dtype=DOUBLE), (8, 8)), "nan"),
        (lambda: PeriodicBlur(torch.ones(3, dtype=DOUBLE) / 3, (8, 8)), r"shape \(3,\)"),
        (lambda: PeriodicBlur(kernel(3, 3), (8,)), r"shape is \(8,\)"),
        (lambda: PeriodicBlur(kernel(3, 3), (8, 8, 8)), r"non-empty array \(\.\.\., planes, rows, columns\)"),
        (
            lambda: ValidBlur.observing(volume_kernel(3, 3, 3), (2, 8, 8)),
            r"kernel \(3 x 3 x 3\) is larger than the image",
        ),
        (lambda: DeconvolutionProblem(torch.zeros(4, 5, 5), stacks()["stacks, periodic"], 0.1), "is for pictures"),
        (lambda: normalised_kernel(torch.zeros(2, 2, dtype=DOUBLE)), "zero everywhere"),
        (lambda: SpatiallyVaryingBlur(kernel(3, 3), weights(2, 8, 8)), r"\(J, kh, kw\)"),
        (lambda: SpatiallyVaryingBlur(kernel(3, 3)[None], 2 * weights(1, 8, 8)), "sum to 1"),
        (lambda: SpatiallyVaryingBlur.from_grid(kernel(3, 3)[None], (8, 8)), r"pass a grid of them, \(R, C, kh, kw\)"),
        (lambda: PeriodicBlur(kernel(3, 3).to("meta"), (8, 8)), "meta device"),
        (lambda: PeriodicBlur(kernel(3, 3), (8, 8)).forward(torch.zeros(0, 8, 8, dtype=DOUBLE)), "holds no image"),
        (lambda: SpatiallyVaryingBlur(kernel(3, 3)[None], -weights(1, 8, 8)), r"not be negative \(the least is -1\)"),
        (lambda: SpatiallyVaryingBlur(kernel(3, 3)[None], weights(1, 8, 8), "reflect"), "boundary is 'reflect'"),
    ],
)
def test_bad_kernels_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_bad_images_are_refused() -> None:
    blur = PeriodicBlur(kernel(3, 3), (8, 8))
    with pytest.raises(ValueError, match=r"z has shape \(8, 9\); this blur takes"):
        blur.forward(torch.zeros(8, 9, dtype=DOUBLE))
    with pytest.raises(TypeError, match=r"torch.float32 on cpu"):
        blur.adjoint(torch.zeros(8, 8))
    with pytest.raises(TypeError, match="dtype int64"):
        normalised_kernel(torch.ones(3, 3, dtype=torch.int64))


def test_normalised_kernel_keeps_each_of_a_batch_at_sum_one() -> None:
    found = normalised_kernel(torch.rand(4, 5, 6, dtype=DOUBLE))
    torch.testing.assert_close(found.sum((-2, -1)), torch.ones(4, dtype=DOUBLE))
