"""A photograph whose blur varies: a grid of kernels, by tiles and as a whole, in the library and from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from deconvolution_pictures import DOUBLE, kernel, noisy, photos

from surefoot import cli
from surefoot._deconvolution.photo.kernel_grid import KernelGrid
from surefoot._deconvolution.photo.tiles import tiles
from surefoot.deconvolution import SpatiallyVaryingBlur, ValidBlur, deblur, psnr

GRID = torch.stack([kernel(5, 5, seed) for seed in range(4)]).reshape(2, 2, 5, 5)


def test_the_blurs_of_tiles_are_parts_of_the_whole() -> None:
    shape, row = (70, 200), GRID.reshape(1, 4, 5, 5)
    z = torch.rand(2, 74, 204, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    whole = SpatiallyVaryingBlur.from_grid(row, shape)
    grid, parts = KernelGrid(row, shape), tiles(shape, (5, 5), 32)
    assert len(parts) > 2
    kernels = set()
    for part in parts:
        blur = grid.blur(part)
        kernels.add(len(blur.kernel))
        rows, columns = part.rows.slice, part.columns.slice
        here = z[:, rows.start : rows.stop + 4, columns.start : columns.stop + 4]
        # the latent grid of a tile may be larger, for faster transforms
        latent = torch.zeros(2, *blur.domain, dtype=DOUBLE)
        top, left = ((big - small - 4) // 2 for big, small in zip(blur.domain, blur.range, strict=True))
        latent[:, top : top + here.shape[1], left : left + here.shape[2]] = here
        torch.testing.assert_close(blur.forward(latent), part.cut(whole.forward(z)), rtol=0, atol=1e-14)
    assert min(kernels) == 2  # those that do not act in a tile cost nothing there


@pytest.mark.parametrize("tile", [64, 512])
def test_a_grid_restores_where_its_mean_does_not(tile: int) -> None:
    lines = torch.zeros(2, 1, 9, 9, dtype=DOUBLE)
    lines[0, 0, 4, :], lines[1, 0, :, 4] = 1.0 / 9.0, 1.0 / 9.0
    sharp = photos(2, 104)[1]
    blur = SpatiallyVaryingBlur.from_grid(lines, (96, 96))
    observed, truth = noisy(blur, sharp, 0.01), blur.crop(sharp)
    found = deblur(observed, lines, 0.01, tile=tile)
    mean = deblur(observed, lines.mean((0, 1)), 0.01, tile=tile)
    assert any("the blur varies: of 2 x 1 kernels" in notice for notice in found.notices)
    quality = [float(psnr(image.double(), truth)) for image in (observed, mean.image, found.image)]
    assert quality[2] > max(quality[:2]) + 1.0


def test_a_grid_of_one_is_that_kernel() -> None:
    sharp = photos(1, 64)[0]
    blur = ValidBlur(GRID[0, 0], (64, 64))
    observed = noisy(blur, sharp, 0.01)
    one = deblur(observed, GRID[0, 0], 0.01, prior="tv", iterations=20).image
    grid = deblur(observed, GRID[:1, :1], 0.01, prior="tv", iterations=20).image
    torch.testing.assert_close(grid, one, rtol=0, atol=1e-5)


def test_the_command_takes_a_grid(tmp_path: Path) -> None:
    np.savez(tmp_path / "k.npz", grid=GRID.numpy(), three=GRID[0].numpy())
    np.save(tmp_path / "photo.npy", photos(1, 32)[0].numpy())
    out = tmp_path / "sharp.npy"
    line = ["deblur", str(tmp_path / "photo.npy"), "--noise", "0.01", "--out", str(out), "--quiet", "--kernel"]
    assert cli.main([*line, f"{tmp_path / 'k.npz'}:grid"]) == 0
    expected = deblur(photos(1, 32)[0], GRID, 0.01).image
    np.testing.assert_allclose(np.load(out), expected.numpy(), atol=1e-6)
    out.unlink()
    assert cli.main([*line, f"{tmp_path / 'k.npz'}:three"]) == 2
