"""Real files kept beside the project; skipped where they are absent."""

from pathlib import Path

import pytest
import torch

from surefoot.data import DataError, load

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"


def source(name):
    path = FOLDER / name.partition(":")[0]
    if not path.exists():
        pytest.skip(f"real data file {path.name} is not beside the repository")
    return str(FOLDER / name)


@pytest.mark.parametrize(
    "name, rows, pixels, test_rows",
    [
        ("mnist01.npz", 14780, 784, 980 + 1135),
        ("fashion01.npz", 14000, 784, 2000),
        ("cifar01.npz", 5000, 3072, 2000),
        ("usps01.npz", 2822, 256, 359 + 264),
    ],
)
def test_two_class_images(name, rows, pixels, test_rows):
    data = load(source(name))
    assert data.X.shape == (rows, pixels) and data.X.dtype == torch.float64
    assert data.X.min() == 0 and data.X.max() == 1
    assert data.labels.unique().tolist() == [0, 1]
    assert len(data.test().X) == test_rows


def test_usps_standardised_and_whitened():
    data = load(source("usps01.npz"))
    X = data.standardise().train().X
    torch.testing.assert_close(X.square().mean(0), torch.ones(X.shape[1], dtype=torch.float64), atol=1e-12, rtol=0)
    X = data.whiten().train().X
    torch.testing.assert_close(X.mT @ X / len(X), torch.eye(X.shape[1], dtype=torch.float64), atol=1e-11, rtol=0)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("airfoil", (1503, 5)),
        ("autompg", (392, 7)),
        ("concrete", (1030, 8)),
        ("energy", (768, 8)),
        ("forest", (517, 12)),
        ("gas", (2565, 128)),
        ("parkinsons", (5875, 20)),
        ("wine", (1599, 11)),
        ("yacht", (308, 6)),
    ],
)
def test_regression_tables(name, shape):
    data = load(source(f"uci_regression.npz:{name}"))
    assert data.X.shape == shape and data.Y.shape == (shape[0], 1) and data.labels is None
    assert 0.05 < data.split.double().mean() < 0.2
    X = data.whiten().train().X
    torch.testing.assert_close(X.mT @ X / len(X), torch.eye(X.shape[1], dtype=torch.float64), atol=1e-12, rtol=0)


def test_regression_tables_list_their_names():
    with pytest.raises(DataError, match=r"did you mean 'yacht'\? \(names found: airfoil, autompg"):
        load(source("uci_regression.npz:yatch"))


@pytest.mark.parametrize(
    "name, shape, target",
    [
        ("ash219", (219, 85), False),
        ("well1033", (1033, 320), True),
        ("illc1850", (1850, 712), True),
        ("lp_share1b", (117, 253), False),
        ("bcsstk02", (66, 66), False),
    ],
)
def test_matrices(name, shape, target):
    data = load(source(f"matrices/{name}.mtx"))
    assert data.X.shape == shape and (data.Y is not None) == target
    if name == "ash219":
        assert data.X.sum() == 438 and data.X.max() == 1
        sigma = torch.linalg.svdvals(data.X)
        assert float(sigma[0] / sigma[-1]) == pytest.approx(3.0, abs=0.05)


def test_images_without_labels():
    data = load(source("bsd400_gray180.npz"))
    assert data.X.shape == (400, 180 * 180) and data.labels is None and data.split is None


@pytest.mark.parametrize("name", ["jester5k.npz", "movielens_small.npz", "levin_kernels.npz"])
def test_archives_of_another_kind(name):
    with pytest.raises(DataError, match=r"expected arrays 'images'.*found: "):
        load(source(name))
