"""Arrays in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from surefoot.data import Data, DataError, from_arrays, load


def test_what_arrays_and_their_file_give_is_the_same(tmp_path) -> None:
    rng = np.random.default_rng(0)
    for X, y in (
        (rng.standard_normal((30, 4)), rng.integers(0, 3, 30)),
        (rng.standard_normal((30, 4)).astype(np.float32), rng.standard_normal((30, 2))),
        (rng.integers(0, 256, (30, 5, 5, 3), np.uint8), rng.integers(0, 3, 30)),
        (rng.standard_normal((30, 4)), None),
    ):
        np.savez(tmp_path / "a.npz", X=X, **({} if y is None else {"y": y}))
        given, read = from_arrays(X, y, split_seed=2), load(tmp_path / "a.npz", split_seed=2)
        for field in ("X", "Y", "labels", "split"):
            a, b = getattr(given, field), getattr(read, field)
            assert (a is None and b is None) or torch.equal(a, b), field


def test_tensors_lists_and_names() -> None:
    data = from_arrays(
        torch.ones(2, 2, requires_grad=True), [0.0, 1.0], feature_names=["a", "b"], test_fraction=0, name="own"
    )
    assert (
        data.feature_names == ("a", "b")
        and data.labels.tolist() == [0, 1]
        and data.name == "own"
        and data.split is None
    )
    assert from_arrays([1, 2, 3]).X.tolist() == [[1], [2], [3]]


def test_the_arrays_are_copied() -> None:
    X = np.ones((2, 2))
    from_arrays(X).X.zero_()
    assert X.all()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((2, 2)), np.ones(3), "Y has 3 rows, but X has 2"),
        (np.array([["a"]]), None, "arrays: X has dtype <U1; expected real numbers"),
        (np.array([[1.0, np.nan]]), None, r"arrays: X is nan at index \[0, 1\]"),
        ([[1], [1, 2]], None, "arrays: X is list, not an array"),
        (np.ma.masked_array([[1.0]], [[True]]), None, "arrays: X is a masked array"),
        (np.ones((2, 2)), np.array([1.0, np.inf]), r"arrays: y is inf at index \[1"),
        (torch.eye(2).to_sparse(), None, r"arrays: X is a sparse tensor; pass its to_dense\(\)"),
        (csr_array(np.eye(2)), None, r"arrays: X is csr_array, not an array; pass its toarray\(\)"),
        ({"x": [1.0]}, None, "arrays: X is dict, not an array; pass an array, a tensor or nested lists"),
        (torch.ones(2, 2, dtype=torch.complex64).conj(), None, "arrays: X has dtype complex64"),
        (np.ones((2, 0)), None, r"shape \(2, 0\), so it holds no columns"),
    ],
)
def test_arrays_that_are_refused(X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(X, y)


def test_one_text_is_no_list_of_names() -> None:
    with pytest.raises(DataError, match="feature_names is 'xy'; pass a list"):
        from_arrays(np.ones((2, 2)), feature_names="xy")


def test_a_tensor_of_any_precision_is_taken_exactly() -> None:
    values = torch.tensor([[1.5], [-3.0]], dtype=torch.bfloat16)
    assert from_arrays(values).X.tolist() == from_arrays(-values._neg_view()).X.tolist() == [[1.5], [-3.0]]


def test_a_data_set_of_arrays_says_what_takes_them() -> None:
    X: Any = torch.zeros(2, 1, dtype=torch.float64)
    with pytest.raises(DataError, match=r"Y is ndarray, no tensor; sf.data.from_arrays\(X, y\) takes arrays"):
        Data(X, np.zeros((2, 1)))  # type: ignore[arg-type]
    for wrong in (np.zeros((2, 1)), [[0.0], [1.0]]):
        with pytest.raises(DataError, match=r"X is (ndarray|list), no tensor; sf.data.from_arrays"):
            Data(wrong)  # type: ignore[arg-type]
