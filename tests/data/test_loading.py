"""Choosing the format, bundled data, splits, and sources that do not exist."""

import numpy as np
import pytest
import torch

from surefoot.data import DataError, MissingSourceError, load, names


def test_names():
    assert names() == ("diabetes", "digits", "photos")


def test_digits():
    data = load("digits")
    assert data.X.shape == (1797, 64) and data.X.dtype == torch.float64
    assert data.X.min() == 0 and data.X.max() == 1
    assert torch.equal(data.X * 16, (data.X * 16).round())
    assert data.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert data.Y is None and "CC BY" in data.licence and len(data.feature_names) == 64


def test_digits_split_is_stratified_and_seeded():
    data = load("digits")
    shares = data.test().labels.bincount() / data.labels.bincount()
    assert (shares - 0.2).abs().max() < 0.5 / 174 + 1e-6
    assert torch.equal(load("digits").split, data.split)
    assert not torch.equal(load("digits", split_seed=1).split, data.split)
    assert int(load("digits", test_fraction=0.5).split.sum()) == pytest.approx(1797 / 2, abs=5)
    assert load("digits", test_fraction=0).split is None


def test_the_split_leaves_the_global_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load("digits")
    assert torch.equal(torch.rand(1), expected)


def test_diabetes():
    data = load("diabetes", test_fraction=0.25)
    assert data.X.shape == (442, 10) and data.Y.shape == (442, 1) and data.labels is None
    assert int(data.split.sum()) == 110  # round half to even of 110.5
    assert data.feature_names[:2] == ("age", "sex")
    assert data.X[:, 0].min() == 19  # raw years


def test_photos():
    data = load("photos")
    assert list(data.X) == ["china.jpg", "flower.jpg"]
    for image in data.X.values():
        assert image.shape == (427, 640, 3) and image.dtype == torch.float64
        assert image.min() >= 0 and 0.9 < image.max() <= 1
    assert data.train() is data


def test_a_path_object_and_a_home_path(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path / "a.npz").name == load("~/a.npz").name == "a.npz"


def test_file_names_with_a_comma_or_a_colon(tmp_path):
    for name in ("a,b.npy", "a.npz:b.npy"):
        np.save(tmp_path / name, np.ones((2, 2)))
        assert load(tmp_path / name).name == name


@pytest.mark.parametrize("fraction", [1, -0.1, float("nan"), True])
def test_fraction_out_of_range(fraction):
    with pytest.raises(DataError, match="test_fraction is"):
        load("digits", test_fraction=fraction)


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(
        MissingSourceError, match=r"'digit' is neither .*did you mean 'digits'.*diabetes, digits, photos"
    ):
        load("digit")


def test_missing_file_suggests_names_in_its_folder(tmp_path):
    (tmp_path / "mnist01.npz").touch()
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path / "mnist1.npz")
    assert str(caught.value) == f"{tmp_path / 'mnist1.npz'}: no such file or folder; nearest names there: mnist01.npz"
    assert isinstance(caught.value, ValueError)
    with pytest.raises(MissingSourceError, match="nothing there has a similar name"):
        load(tmp_path / "zzzzzz.csv")
    with pytest.raises(MissingSourceError, match=r"folder .*absent does not exist either"):
        load(tmp_path / "absent" / "a.csv")


def test_missing_half_of_a_pair(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((2, 2)))
    with pytest.raises(MissingSourceError, match=r"Y\.npy: no such file or folder"):
        load(f"{tmp_path}/X.npy,{tmp_path}/Y.npy")


@pytest.mark.parametrize(
    "suffix, message",
    [
        ("a.feather", r"the format '\.feather' is not read; pass pandas.read_feather"),
        ("a.h5", r"the format '\.h5' is not known; expected table.csv"),
        ("a.csv.gz", "tables are read unpacked; unpack it first"),
        ("a", "the format '' is not known"),
    ],
)
def test_unknown_format(tmp_path, suffix, message):
    (tmp_path / suffix).write_bytes(b"1")
    with pytest.raises(DataError, match=message):
        load(tmp_path / suffix)


def test_wrong_pairs(tmp_path):
    for name in ("a.npy", "b.csv", "c.csv"):
        (tmp_path / name).write_bytes(b"1")
    for pair in (f"{tmp_path}/a.npy,{tmp_path}/b.csv", f"{tmp_path}/b.csv,{tmp_path}/c.csv"):
        with pytest.raises(DataError, match=r"a pair is two \.npy files or two IDX files"):
            load(pair)


def test_empty_source_and_empty_name(tmp_path):
    with pytest.raises(DataError, match="source is empty; expected one of diabetes"):
        load("")
    with pytest.raises(DataError, match="NAME is missing after the colon"):
        load(f"{tmp_path}/a.npz:")


def test_what_is_no_path_is_told_where_to_go():
    with pytest.raises(
        TypeError, match=r"source is ndarray; pass a name or a path; sf.data.from_frame takes DataFrames"
    ):
        load(np.ones((2, 2)))
