"""The methods of Data, on real bundled data and on small matrices with known answers."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from surefoot.data import Data, DataError, load


def matrix(rows, **fields):
    return Data(X=torch.tensor(rows, dtype=torch.float64), **fields)


def mask(*values):
    return torch.tensor(values, dtype=torch.bool)


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_train_and_test_partition_the_rows(digits):
    train, test = digits.train(), digits.test()
    assert len(train.X) + len(test.X) == 1797
    assert torch.equal(train.X, digits.X[~digits.split])
    assert torch.equal(test.labels, digits.labels[digits.split])
    assert not train.split.any() and test.split.all()
    assert torch.equal(test.test().X, test.X)


def test_without_a_split_every_row_is_a_train_row():
    data = matrix([[1.0], [2.0]])
    assert data.train() is data
    with pytest.raises(DataError, match=r"test\(\) needs a split.*test_fraction"):
        data.test()


def test_parts_without_rows_are_refused():
    with pytest.raises(DataError, match=r"test\(\) would leave no rows"):
        matrix([[1.0], [2.0]], split=mask(0, 0)).test()
    with pytest.raises(DataError, match=r"train\(\) would leave no rows"):
        matrix([[1.0], [2.0]], split=mask(1, 1)).train()


@pytest.mark.parametrize("method", ["standardise", "whiten", "one_hot", "centre_targets"])
def test_statistics_need_train_rows(digits, method):
    test = replace(digits.test(), Y=torch.ones(int(digits.split.sum()), 1, dtype=torch.float64))
    with pytest.raises(DataError, match="statistics from the train rows"):
        getattr(test, method)()


def test_standardise_uses_the_train_rows_only():
    data = matrix(
        [[1.0, 5.0, 7.0], [3.0, 5.0, 7.0], [11.0, 6.0, 7.0]],
        split=mask(0, 0, 1),
        feature_names=("a", "b", "c"),
    )
    result = data.standardise()
    # Column a has train mean 2 and deviation 1; b varies on the test row alone, c not at all.
    assert torch.equal(result.X, torch.tensor([[-1.0], [1.0], [9.0]], dtype=torch.float64))
    assert result.feature_names == ("a",)
    assert data.X.shape == (3, 3)  # the original is untouched


def test_standardise_digits(digits):
    result = digits.standardise()
    X = result.train().X
    assert X.shape[1] == len(result.feature_names) < 64
    torch.testing.assert_close(X.mean(0), torch.zeros(X.shape[1], dtype=torch.float64), atol=1e-14, rtol=0)
    torch.testing.assert_close(X.square().mean(0), torch.ones(X.shape[1], dtype=torch.float64), atol=1e-13, rtol=0)
    # The condition number of the Hessian is about 150; it varies a little with the split.
    sigma = torch.linalg.svdvals(X)
    assert 130 < (sigma[0] / sigma[-1]).square() < 170


@pytest.mark.parametrize("scale, shift", [(1e-200, 0.0), (1e200, 0.0), (1e-3, 1e9)])
def test_standardise_does_not_lose_extreme_scales(scale, shift):
    values = torch.tensor([1.0, 2.0, 3.0, 6.0, 9.0, 4.0, 8.0], dtype=torch.float64) * scale + shift
    exact = np.array([float(v) - shift for v in values])
    exact = exact / scale
    exact = (exact - exact.mean()) / exact.std()
    result = Data(X=values[:, None]).standardise().X[:, 0]
    torch.testing.assert_close(result, torch.from_numpy(exact), atol=1e-12, rtol=0)


def test_a_varying_column_is_kept_however_small_its_variation():
    step = np.nextafter(1.0, 2.0)
    assert matrix([[1.0, 3.0], [step, 3.0]]).standardise().X.shape == (2, 1)


def test_standardise_refuses_constant_data():
    with pytest.raises(DataError, match="every column constant"):
        matrix([[1.0, 2.0], [1.0, 2.0]]).standardise()


def test_standardise_refuses_overflow():
    with pytest.raises(DataError, match="overflowed; rescale"):
        matrix([[1.7e308], [-1.7e308], [1.7e308], [1.7e308]]).standardise()


def test_whiten_digits(digits):
    result = digits.whiten()
    X = result.train().X
    identity = torch.eye(X.shape[1], dtype=torch.float64)
    torch.testing.assert_close(X.mT @ X / len(X), identity, atol=1e-12, rtol=0)
    torch.testing.assert_close(X.mean(0), torch.zeros(X.shape[1], dtype=torch.float64), atol=1e-12, rtol=0)
    assert result.feature_names is None
    # The column space of the centred inputs is kept, so least squares reaches the same fit.
    centred = digits.train().X - digits.train().X.mean(0)
    fitted = X @ (X.mT @ centred) / len(X)
    torch.testing.assert_close(fitted, centred, atol=1e-10, rtol=0)


@pytest.mark.parametrize("condition", [1e3, 1e8, 1e11])
def test_whiten_is_orthonormal_for_ill_conditioned_inputs(condition):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 7, generator=generator, dtype=torch.float64)
    X = X * torch.logspace(0, -float(np.log10(condition)), 7, dtype=torch.float64)
    X = X @ torch.linalg.qr(torch.randn(7, 7, generator=generator, dtype=torch.float64))[0]
    white = Data(X=X).whiten().X
    assert white.shape == (60, 7)
    torch.testing.assert_close(white.mT @ white / 60, torch.eye(7, dtype=torch.float64), atol=1e-13, rtol=0)


def test_whiten_maps_test_rows_by_the_train_map():
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    split = torch.zeros(30, dtype=torch.bool)
    split[20:] = True
    X[25] = X[4]
    white = Data(X=X, split=split).whiten().X
    torch.testing.assert_close(white[25], white[4], atol=1e-14, rtol=0)
    alone = Data(X=X[:20]).whiten().X
    torch.testing.assert_close(white[:20], alone, atol=1e-12, rtol=0)


def test_whiten_drops_dependent_directions():
    generator = torch.Generator().manual_seed(2)
    X = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    white = Data(X=torch.cat([X, X @ torch.ones(3, 2, dtype=torch.float64)], 1)).whiten().X
    assert white.shape == (40, 3)
    wide = Data(X=torch.randn(5, 9, generator=generator, dtype=torch.float64)).whiten().X
    assert wide.shape == (5, 4)  # centring costs one direction
    torch.testing.assert_close(wide.mT @ wide / 5, torch.eye(4, dtype=torch.float64), atol=1e-13, rtol=0)


def test_whiten_refuses_equal_rows_and_overflow():
    with pytest.raises(DataError, match="all train rows equal"):
        matrix([[1.0, 2.0], [1.0, 2.0]]).whiten()
    with pytest.raises(DataError, match=r"whiten\(\) overflowed"):
        matrix([[1.7e308], [-1.7e308], [1.7e308], [1.7e308]]).whiten()


def test_one_hot():
    data = matrix([[0.0]] * 4, labels=torch.tensor([3, 7, 7, 3]), split=mask(0, 0, 0, 1))
    plain = data.one_hot(centred=False).Y
    assert torch.equal(plain, torch.tensor([[1, 0], [0, 1], [0, 1], [1, 0]], dtype=torch.float64))
    frequencies = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    torch.testing.assert_close(data.one_hot().Y, plain - frequencies, atol=1e-16, rtol=0)


def test_one_hot_digits_is_centred_on_train_rows(digits):
    Y = digits.one_hot().train().Y
    assert Y.shape[1] == 10
    torch.testing.assert_close(Y.mean(0), torch.zeros(10, dtype=torch.float64), atol=1e-15, rtol=0)


def test_centre_targets():
    Y = torch.tensor([[1.0, 0.0], [3.0, 4.0], [100.0, 7.0]], dtype=torch.float64)
    centred = matrix([[0.0]] * 3, Y=Y, split=mask(0, 0, 1)).centre_targets().Y
    assert torch.equal(centred, torch.tensor([[-1.0, -2.0], [1.0, 2.0], [98.0, 5.0]], dtype=torch.float64))


def test_classes_keeps_and_renumbers(digits):
    pair = digits.one_hot().classes(8, 3)
    assert torch.equal(pair.labels == 0, digits.labels[(digits.labels == 8) | (digits.labels == 3)] == 8)
    assert pair.labels.unique().tolist() == [0, 1]
    assert pair.Y is None and len(pair.split) == len(pair.X)
    assert pair.one_hot().Y.shape[1] == 2


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda d: d.classes(), "at least one label"),
        (lambda d: d.classes(1, 1), "each once"),
        (lambda d: d.classes(0, 12), "no row has label 12; the labels are"),
        (lambda d: d.centre_targets(), r"needs targets Y.*one_hot\(\)"),
        (lambda d: replace(d, labels=None).one_hot(), "needs class labels"),
        (lambda d: replace(d, labels=None).classes(0), "needs class labels"),
        (lambda d: replace(d, labels=None).centre_targets(), "no labels either"),
    ],
)
def test_label_and_target_errors(digits, call, message):
    with pytest.raises(DataError, match=message):
        call(digits)


@pytest.mark.parametrize("method", ["standardise", "whiten", "in_memory"])
def test_images_are_not_a_matrix(method):
    photos = Data(X={"a.png": torch.zeros(2, 3, dtype=torch.float64)})
    with pytest.raises(DataError, match=rf"{method}\(\) needs X as a matrix"):
        getattr(photos, method)()


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"X": torch.zeros(0, 2, dtype=torch.float64)}, "no rows"),
        ({"X": {}}, "no rows"),
        ({"X": torch.zeros(2, 0, dtype=torch.float64)}, "n >= 1"),
        ({"X": torch.zeros(2, 2, 2, dtype=torch.float64)}, r"shape \(2, 2, 2\)"),
        ({"X": torch.zeros(2, 2)}, r"float32; convert it with X.to\(torch.float64\)"),
        ({"X": {"a": torch.zeros(2, 2)}}, "image 'a' is torch.float32"),
        ({"Y": torch.zeros(2, dtype=torch.float64)}, r"Y is torch.float64 of shape \(2,\)"),
        ({"Y": torch.zeros(3, 1, dtype=torch.float64)}, "Y has 3 rows, but X has 2"),
        ({"labels": torch.zeros(2)}, "labels is torch.float32"),
        ({"split": torch.zeros(2, dtype=torch.int64)}, "split is torch.int64"),
        ({"feature_names": ("a",)}, "1 feature names"),
    ],
)
def test_fields_are_checked(fields, message):
    with pytest.raises(DataError, match=message):
        Data(**{"X": torch.zeros(2, 2, dtype=torch.float64), **fields})


def test_frozen_and_short_repr(digits):
    with pytest.raises(FrozenInstanceError):
        digits.name = "other"
    assert repr(digits) == "Data('digits', X=(1797, 64) Tensor, classes=10, test rows=359)"
    assert repr(replace(load("diabetes"), split=None)) == "Data('diabetes', X=(442, 10) Tensor, Y=(442, 1))"
