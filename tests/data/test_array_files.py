"""`.npz` archives, memory-mapped `.npy` files, IDX files and Matrix Market files."""

import gzip
import struct

import numpy as np
import pytest
import torch

from surefoot.data import DataError, load

X = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def npz(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        return tmp_path / "a.npz"

    return save


# --- .npz ---


def test_npz_images_labels_split(npz):
    images = np.array([[[0, 255], [51, 102]]] * 3, dtype=np.uint8)
    data = load(npz(images=images, labels=np.array([0, 1, 1], np.uint8), split=np.array([0, 0, 1], np.uint8)))
    assert torch.equal(data.X, torch.tensor([[0, 1, 0.2, 0.4]] * 3, dtype=torch.float64))
    assert data.labels.tolist() == [0, 1, 1] and data.labels.dtype == torch.int64
    assert data.split.tolist() == [False, False, True] and data.Y is None


@pytest.mark.parametrize(
    "dtype, value, expected",
    [(np.uint16, 65535, 1.0), (np.float32, 0.5, 0.5), (np.int64, 7, 7.0), (bool, True, 1.0)],
)
def test_npz_images_of_other_types(npz, dtype, value, expected):
    data = load(npz(images=np.full((2, 2, 2), value, dtype)))
    assert torch.equal(data.X, torch.full((2, 4), expected, dtype=torch.float64))
    assert data.labels is None and data.split is None


def test_npz_regression_target(npz):
    data = load(npz(X=X.astype(np.float32), y=np.array([1.5, 2, 3, 4])), test_fraction=0.25)
    assert torch.equal(data.X, torch.from_numpy(X))
    assert data.Y.tolist() == [[1.5], [2], [3], [4]] and data.labels is None
    assert int(data.split.sum()) == 1


def test_npz_matrix_target_and_vector_inputs(npz):
    data = load(npz(X=np.arange(4.0), Y=X), test_fraction=0)
    assert data.X.shape == (4, 1) and torch.equal(data.Y, torch.from_numpy(X)) and data.split is None


def test_npz_whole_number_target_is_both(npz):
    data = load(npz(X=X, y=np.array([-1, 1, 1, -1])))
    assert data.Y.tolist() == [[-1], [1], [1], [-1]] and data.labels.tolist() == [-1, 1, 1, -1]


def test_npz_image_stack_under_x_has_labels_only(npz):
    images, labels = np.full((20, 2, 2), 255, np.uint8), np.arange(20) % 10
    data = load(npz(X=images, y=labels), test_fraction=0.5)
    assert torch.equal(data.X, torch.ones(20, 4, dtype=torch.float64)) and data.Y is None
    assert sorted(data.test().labels.tolist()) == list(range(10))  # stratified


def test_npz_split_leaves_a_train_row(npz):
    data = load(npz(X=X, y=np.ones(4)), test_fraction=0.95)
    assert len(data.train().X) == 1 and len(data.test().X) == 3


def test_npz_counts_under_x_are_not_rescaled(npz):
    assert load(npz(X=np.full((2, 2), 255, np.uint8))).X.max() == 255


def test_npz_by_name(npz):
    path = npz(a_X=X, a_y=np.ones(4), a_test0=np.array([True, False, False, False]), b_X=X[:2], b_y=np.zeros(2))
    data = load(f"{path}:a")
    assert data.name == "a.npz:a" and data.split.tolist() == [True, False, False, False]
    assert load(f"{path}:b", test_fraction=0.5).split.sum() == 1
    with pytest.raises(DataError, match=r"no array 'bb_X'; did you mean 'b'\? \(names found: a, b\)"):
        load(f"{path}:bb")
    with pytest.raises(DataError, match=r"expected arrays 'images'.*'a\.npz:a'; found: a_X, a_y"):
        load(path)


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"ratings": X}, r"expected arrays 'images'.*found: ratings"),
        ({}, "found: none"),
        ({"X": X, "y": X, "Y": X}, "both 'y' and 'Y'"),
        ({"X": X, "y": np.ones(3)}, "Y has 3 rows, but X has 4"),
        ({"images": X, "labels": np.arange(9)}, "labels has 9 rows, but X has 4"),
        ({"X": X, "split": np.zeros(9, bool)}, "split has 9 rows"),
        ({"X": np.array([[1.0, 2.0], [np.nan, 1.0]])}, r"array 'X' is nan at index \[1, 0\]"),
        ({"X": X, "y": np.array([0, 0, np.inf, 0])}, r"array 'y' is inf at index \[2\]"),
        ({"images": np.full((2, 2, 2), np.nan)}, r"nan at index \[0, 0, 0\]"),
        ({"X": X * 1j}, "dtype complex128; expected real"),
        ({"X": np.array([["a"]])}, "dtype <U1; expected real"),
        ({"X": np.array([[{}]], dtype=object)}, "array 'X' holds Python objects, which are never unpickled"),
        ({"X": np.zeros((0, 3))}, r"shape \(0, 3\), so it holds no rows"),
        ({"images": np.zeros(3)}, "expected one image per entry"),
        ({"X": X, "y": np.zeros((4, 1, 1))}, r"expected \(N, n\) or \(N,\)"),
        ({"images": X, "labels": np.array([0, 1, 0.5, 1])}, r"array 'labels' is 0.5 at index 2"),
        ({"images": X, "labels": np.zeros((4, 1), int)}, r"labels of shape \(N,\)"),
        ({"images": X, "labels": np.full(4, 2**64 - 1, np.uint64)}, "beyond the range of int64"),
        ({"X": X, "split": np.array([0, 1, 2, 0])}, "array 'split' is 2 at index 2"),
        ({"X": X, "split": np.zeros(4)}, "expected bool, or 0 and 1"),
    ],
)
def test_npz_errors(npz, arrays, message):
    with pytest.raises(DataError, match=message):
        load(npz(**arrays))


def test_npz_float_labels_that_are_whole(npz):
    assert load(npz(images=X, labels=np.array([0.0, 1, 2, 1]))).labels.tolist() == [0, 1, 2, 1]


def test_npz_long_double_beyond_float64(npz):
    if np.finfo(np.longdouble).max <= np.finfo(np.float64).max:
        pytest.skip("long double is float64 here")
    with pytest.raises(DataError, match=r"index \[1, 0\] \(0-based\) is beyond the range of float64"):
        load(npz(X=np.array([[1], [1e300]], np.longdouble) ** 2))


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(50)])
def test_npz_not_an_archive(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"not an \.npz archive"):
        load(tmp_path / "a.npz")


def test_npz_truncated_and_damaged(npz):
    path = npz(X=np.random.default_rng(0).standard_normal((50, 20)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"not an \.npz archive"):
        load(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(DataError, match="array 'X' cannot be read"):  # the checksum of the archive
        load(path)


# --- .npy ---


def test_npy_stays_on_disk(tmp_path):
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    data = load(tmp_path / "X.npy")
    assert isinstance(data.X, np.memmap) and data.X.dtype == np.float32 and not data.X.flags.writeable
    assert data.Y is None and data.split is None and data.train() is data
    inner = data.in_memory()
    assert torch.equal(inner.X, torch.from_numpy(X)) and inner.in_memory() is inner


def test_npy_pairs(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", X[:, :2])
    np.save(tmp_path / "labels.npy", np.array([0, 2, 0, 2], np.uint8))
    data = load(f"{tmp_path}/X.npy, {tmp_path}/Y.npy")
    assert torch.equal(data.Y, torch.from_numpy(X[:, :2].copy())) and data.name == "X.npy,Y.npy"
    assert data.centre_targets().Y.mean() == 0  # targets need no X in memory
    data = load(f"{tmp_path}/X.npy,{tmp_path}/labels.npy")
    assert data.labels.tolist() == [0, 2, 0, 2] and data.one_hot().Y.shape == (4, 2)
    assert data.in_memory().classes(2).X.tolist() == X[[1, 3]].tolist()


@pytest.mark.parametrize(
    "call",
    [lambda d: d.standardise(), lambda d: d.whiten(), lambda d: d.classes(0)],
    ids=["standardise", "whiten", "classes"],
)
def test_npy_is_not_read_into_memory_unasked(tmp_path, call):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.zeros(4, int))
    with pytest.raises(DataError, match=r"would read the whole memory-mapped X \(4, 3\); call in_memory\(\)"):
        call(load(f"{tmp_path}/X.npy,{tmp_path}/y.npy"))


def test_npy_is_scanned_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot._data.arrays._SCAN_ELEMENTS", 6)
    values = X.copy()
    np.save(tmp_path / "X.npy", values)
    load(tmp_path / "X.npy")
    values[3, 1] = -np.inf
    np.save(tmp_path / "X.npy", values)
    with pytest.raises(DataError, match=r"X.npy is -inf at index \[3, 1\]"):
        load(tmp_path / "X.npy")


def test_npy_errors(tmp_path):
    path = tmp_path / "X.npy"
    for content in (b"", b"hello"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"not an \.npy file"):
            load(path)
    np.save(path, X)
    whole = path.read_bytes()
    for size in (40, len(whole) - 8):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"cannot be memory-mapped .*truncated"):
            load(path)
    np.save(path, np.array([{}], dtype=object))
    with pytest.raises(DataError, match="Python objects, which are never unpickled"):
        load(path)
    for array, message in (
        (np.zeros(3), r"shape \(3,\); expected a matrix"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\); expected a matrix"),
        (np.zeros((0, 2)), "holds no rows"),
        (X * 1j, "expected real numbers"),
    ):
        np.save(path, array)
        with pytest.raises(DataError, match=message):
            load(path)
    np.save(path, X)
    np.save(tmp_path / "Y.npy", np.zeros(3))
    with pytest.raises(DataError, match="Y has 3 rows, but X has 4"):
        load(f"{path},{tmp_path}/Y.npy")


# --- IDX ---


def idx(code, *shape, body):
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


IMAGES = idx(8, 3, 2, 2, body=bytes([0, 51, 102, 255] * 3))
LABELS = idx(8, 3, body=bytes([5, 0, 5]))


@pytest.fixture
def idx_pair(tmp_path):
    def write(images=IMAGES, labels=LABELS):
        (tmp_path / "images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (tmp_path / "labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
        return f"{tmp_path}/images-idx3-ubyte.gz,{tmp_path}/labels-idx1-ubyte.gz"

    return write


def test_idx_pair(idx_pair):
    data = load(idx_pair())
    assert torch.equal(data.X, torch.tensor([[0, 0.2, 0.4, 1]] * 3, dtype=torch.float64))
    assert data.labels.tolist() == [5, 0, 5] and data.Y is None
    assert data.name == "images-idx3-ubyte.gz,labels-idx1-ubyte.gz"


def test_idx_images_alone_and_plain(tmp_path, idx_pair):
    data = load(idx_pair().split(",")[0])
    assert data.labels is None and data.split is None and data.X.shape == (3, 4)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(IMAGES)
    assert torch.equal(load(tmp_path / "t10k-images-idx3-ubyte").X, data.X)


@pytest.mark.parametrize("code, kind", [(9, "b"), (0x0B, "h"), (0x0C, "i"), (0x0D, "f"), (0x0E, "d")])
def test_idx_types_are_big_endian(idx_pair, code, kind):
    body = struct.pack(f">6{kind}", -1, 2, 3, 4, 5, 6)
    data = load(idx_pair(idx(code, 3, 2, body=body)))
    assert data.X.tolist() == [[-1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (b"", LABELS, r"starts with nothing \(empty file\)"),
        (b"hello", LABELS, "not an IDX file: it starts with 68 65 6c 6c"),
        (idx(7, 3, 2, body=bytes(6)), LABELS, "not an IDX file"),
        (b"\0\0\x08\0", LABELS, "not an IDX file"),
        (IMAGES[:10], LABELS, "ends inside its header"),
        (IMAGES[:-1], LABELS, r"shape \(3, 2, 2\) of 1-byte entries needs 12 bytes, but 11 follow"),
        (IMAGES + b"\0", LABELS, "needs 12 bytes, but more than 12 follow"),
        (idx(8, 2**32 - 1, 2**20, 2**20, body=b"1"), LABELS, "but 1 follow"),
        (idx(8, 0, 2, 2, body=b""), LABELS, r"shape \(0, 2, 2\), so it holds no rows"),
        (LABELS, IMAGES, "give 'images.gz,labels.gz' in this order"),
        (IMAGES, IMAGES, r"labels of shape \(N,\)"),
        (IMAGES, idx(8, 2, body=b"12"), "has 2 labels, but .* has 3 images"),
        (idx(0x0E, 1, 2, body=struct.pack(">2d", 1, float("nan"))), LABELS, r"nan at index \[0, 1\]"),
    ],
)
def test_idx_errors(idx_pair, images, labels, message):
    with pytest.raises(DataError, match=message):
        load(idx_pair(images, labels))


def test_idx_damaged_gzip(tmp_path):
    path = tmp_path / "a.gz"
    whole = gzip.compress(IMAGES)
    for content, message in (
        (IMAGES, "not a valid gzip file"),
        (whole[: len(whole) - 12], "compressed file is truncated"),
        (whole[:-8] + bytes(4) + whole[-4:], "not a valid gzip file"),  # wrong checksum
        (whole[:12] + bytes([whole[12] ^ 255]) + whole[13:], "not a valid gzip file|truncated"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            load(path)


# --- Matrix Market ---

HEADER = "%%MatrixMarket matrix {} real general\n"


def test_mtx_sparse_with_right_hand_side(tmp_path):
    (tmp_path / "a.mtx").write_text(HEADER.format("coordinate") + "3 2 2\n1 1 2.5\n3 2 -1\n")
    assert load(tmp_path / "a.mtx").Y is None
    (tmp_path / "a_rhs1.mtx").write_text(HEADER.format("array") + "3 1\n1\n2\n3\n")
    data = load(tmp_path / "a.mtx")
    assert data.X.tolist() == [[2.5, 0], [0, 0], [0, -1]] and data.Y.tolist() == [[1], [2], [3]]
    assert data.split is None and data.X.dtype == torch.float64


def test_mtx_symmetric_and_pattern(tmp_path):
    (tmp_path / "s.mtx").write_text("%%MatrixMarket matrix coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n")
    assert load(tmp_path / "s.mtx").X.tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "not a readable Matrix Market file"),
        ("hello\n", "not a readable Matrix Market file .*banner"),
        (HEADER.format("array") + "2 2\n1\n2\n3\n", "not a readable Matrix Market file"),
        (HEADER.format("array") + "0 2\n", r"shape \(0, 2\)"),
        (HEADER.format("coordinate") + "2 0 0\n", r"shape \(2, 0\)"),
        (HEADER.format("coordinate") + "2 2 1\n3 1 1\n", "not a readable Matrix Market file"),
        (HEADER.format("coordinate") + "2 2 1\n2 1 nan\n", r"nan at index \[1, 0\]"),
        ("%%MatrixMarket matrix array complex general\n1 1\n1 2\n", "is complex"),
    ],
)
def test_mtx_errors(tmp_path, content, message):
    (tmp_path / "a.mtx").write_text(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "a.mtx")


def test_mtx_right_hand_side_of_another_length(tmp_path):
    (tmp_path / "a.mtx").write_text(HEADER.format("array") + "2 1\n1\n2\n")
    (tmp_path / "a_rhs1.mtx").write_text(HEADER.format("array") + "3 1\n1\n2\n3\n")
    with pytest.raises(DataError, match="Y has 3 rows, but X has 2"):
        load(tmp_path / "a.mtx")
