"""DataFrames and Parquet files. All that needs pandas is here, so that one process of a parallel run imports it."""

from __future__ import annotations

import datetime
import random
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import surefoot as sf
from surefoot.data import DataError, MissingLibraryError, from_frame, load

FLATS = pd.DataFrame(
    {
        "rooms": pd.array([1, 3, None, 2], dtype="Int64"),
        "area": np.array([20.5, 70.0, 55.0, 40.0], np.float32),
        "lift": [True, False, True, True],
        "town": pd.Categorical(["Ulm", "Bonn", "Ulm", "Ulm"], categories=["Ulm", "Bonn", "Köln"]),
        "price": [200, 500, 400, 300],
    },
    index=["d", "c", "b", "a"],
)


def test_a_frame() -> None:
    data = from_frame(FLATS, target="price", categories="one-hot", missing="mean", test_fraction=0, name="flats")
    assert data.feature_names == ("rooms", "area", "lift", "town=Bonn", "town=Ulm")
    assert data.X.tolist() == [[1, 20.5, 1, 0, 1], [3, 70, 0, 1, 0], [2, 55, 1, 0, 1], [2, 40, 1, 0, 1]]
    assert data.Y.tolist() == [[200], [500], [400], [300]] and data.labels.tolist() == [200, 500, 400, 300]
    assert data.name == "flats" and data.X.dtype == torch.float64 and data.X.is_contiguous()
    assert data.notes == (
        "the target is column 5 ('price')",
        "categories became columns of 0 and 1 ('town': 'Bonn', 'Ulm')",
        "1 missing value filled in with means of the train rows, in 'rooms' (1)",
    )


def test_what_a_frame_and_its_csv_file_give_is_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((50, 3)), columns=list("abc")).assign(
        d=rng.integers(0, 3, 50), e=["x", "y"] * 25
    )
    frame.loc[::9, "b"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    options: dict[str, Any] = {"target": "d", "categories": "one-hot", "missing": "mean", "split_seed": 3}
    given = from_frame(frame, **options)
    for other in (load(tmp_path / "t.csv", **options), load(tmp_path / "t.parquet", **options)):
        assert (
            torch.equal(other.X, given.X)
            and torch.equal(other.labels, given.labels)
            and torch.equal(other.split, given.split)
        )
        assert other.feature_names == given.feature_names and other.notes == given.notes


COLUMNS: dict[str, tuple[Any, list[float]]] = {
    "small integers": (np.array([1, 2], np.int8), [1, 2]),
    "large integers": (np.array([1, 2**63], np.uint64), [1, 2.0**63]),
    "truth values with a gap": (pd.array([True, None], dtype="boolean"), [1, -1]),
    "floats with a gap": (pd.array([1.5, None], dtype="Float32"), [1.5, -1]),
    "of pyarrow": (pd.array([1, None], dtype=pd.ArrowDtype(pa.int64())), [1, -1]),
    "decimals of pyarrow": (pd.array([Decimal("1.5"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 2))), [1.5, -1]),
    "sparse": (pd.arrays.SparseArray([0.0, 2.0]), [0, 2]),
    "objects": (np.array([Decimal("1.5"), None], object), [1.5, -1]),
    "truth values as objects": (np.array([True, np.nan], object), [1, -1]),
    "half": (np.array([1, 2], np.float16), [1, 2]),
    "long double": (np.array([1, 2], np.longdouble), [1, 2]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_numbers(name: str) -> None:
    column, expected = COLUMNS[name]
    frame = pd.DataFrame({"a": column, "y": [1.0, 2.0]})
    gaps = -1 in expected
    if gaps:
        with pytest.raises(
            DataError, match=r"frame, row 1 \(0-based\), column 1 \('a'\): missing value; 1 of 2 rows has one"
        ):
            from_frame(frame, test_fraction=0)
    data = from_frame(frame, test_fraction=0, missing="mean" if gaps else "error")
    assert data.X[:, 0].tolist() == [expected[0] if value == -1 else value for value in expected]


TEXTS: dict[str, Any] = {
    "strings": pd.array(["b", "a", None], dtype="string"),
    "strings of pyarrow": pd.array(["b", "a", None], dtype=pd.ArrowDtype(pa.string())),
    "objects": np.array(["b", "a", None], object),
    "categories": pd.Categorical(["b", "a", None], categories=["c", "b", "a"], ordered=True),
    "categories of pyarrow": pd.array(["b", "a", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
}


@pytest.mark.parametrize("name", TEXTS)
def test_columns_of_text(name: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "t": TEXTS[name]})
    data = from_frame(frame, target="x", categories="one-hot", missing="mean", test_fraction=0)
    assert data.feature_names == ("t=a", "t=b") and data.X.tolist() == [[0, 1], [1, 0], [0.5, 0.5]]
    labelled = from_frame(frame, categories="one-hot", missing="drop", test_fraction=0)
    assert labelled.labels.tolist() == [1, 0] and labelled.class_names == ("a", "b")
    with pytest.raises(
        DataError, match=r"column 2 \('t'\): 'b' is not a number.*kept as text are converted with astype\(float\)"
    ):
        from_frame(frame)


def test_categories_that_are_numbers() -> None:
    frame = pd.DataFrame({"storey": pd.Categorical([3, 0, 3]), "y": [1.0, 2.0, 4.0]})
    assert from_frame(frame, categories="one-hot", test_fraction=0).feature_names == ("storey=0", "storey=3")


WRONG: dict[str, tuple[Any, str]] = {
    "dates": (
        pd.DataFrame({"a": pd.to_datetime(["2026-01-31"]), "y": [1]}),
        r"column 1 \('a'\): has dtype datetime64.*days since",
    ),
    "spans": (
        pd.DataFrame({"a": pd.to_timedelta([1], "s"), "y": [1]}),
        "has dtype timedelta64.*neither numbers nor text",
    ),
    "dates as objects": (
        pd.DataFrame({"a": [datetime.date(2026, 1, 31)], "y": [1]}),
        "objects that are not all.*: date in row 0",
    ),
    "complex": (pd.DataFrame({"a": [1j], "y": [1]}), "has dtype complex128"),
    "mixed": (
        pd.DataFrame({"a": [1, "x"], "y": [1, 2]}, dtype=object),
        r"not all numbers or all text: str in row 1 \(0-based\)",
    ),
    "lists": (pd.DataFrame({"a": [[1]], "y": [1]}), "list in row 0"),
    "infinite": (
        pd.DataFrame({"a": [1, -np.inf], "y": [1, 2]}),
        r"row 1 \(0-based\), column 1 \('a'\): -inf is not finite",
    ),
    "huge": (pd.DataFrame({"a": [10**400], "y": [1]}), "inf is not finite, or beyond the range of float64"),
    "empty": (pd.DataFrame({"a": [], "y": []}), "has 0 rows and 2 columns"),
    "one column": (pd.DataFrame({"a": [1]}), "has 1 rows and 1 columns"),
    "same names": (pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]), "columns 1 and 3 are both called 'a'"),
    "same names as text": (pd.DataFrame([[1, 2]], columns=[1, "1"]), "both called '1'"),
    "categories that read the same": (
        pd.DataFrame({"a": pd.Categorical([1, "1"]), "y": [1, 2]}),
        r"column 1 \('a'\): has two categories that are both written '1'; rename one",
    ),
    "all missing": (pd.DataFrame({"a": [None, None], "y": [1, 2]}), "missing value; 2 of 2 rows have one"),
}


@pytest.mark.parametrize("name", WRONG)
def test_frames_that_are_refused(name: str) -> None:
    frame, message = WRONG[name]
    with pytest.raises(DataError, match=message):
        from_frame(frame)


def test_columns_that_are_numbers_and_several_levels() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=[2, 0, 1])
    assert from_frame(frame, target=2).Y.tolist() == [[1]]  # the label, not the second column
    frame.columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    assert from_frame(frame).feature_names == ("('a', 1)", "('a', 2)")
    assert from_frame(frame, target=("a", 1)).Y.tolist() == [[1]]
    assert from_frame(frame, target=[("b", 1), ("a", 1)]).Y.tolist() == [[3, 1]]


def test_what_converts_to_a_frame_and_what_does_not() -> None:
    assert from_frame(pa.table({"a": [1, 2], "y": [3, 4]})).X.tolist() == [[1], [2]]
    for wrong in (FLATS["area"], {"a": [1], "y": [2]}, np.ones((2, 2))):
        with pytest.raises(TypeError, match="pass a DataFrame of pandas, or what to_pandas"):
            from_frame(wrong)
    with pytest.raises(DataError, match="test_fraction is 2"):
        from_frame(FLATS, test_fraction=2)


def test_a_frame_is_left_as_it_was() -> None:
    before = FLATS.copy()
    data = from_frame(FLATS, target="price", categories="one-hot", missing="mean")
    data.X.zero_()
    pd.testing.assert_frame_equal(FLATS, before)


# -- Parquet ---------------------------------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "flats.parquet"
    FLATS.to_parquet(path)  # the index is no column
    data = load(path, target="price", categories="one-hot", missing="drop", test_fraction=0)
    assert data.X.tolist() == [[1, 20.5, 1, 0, 1], [3, 70, 0, 1, 0], [2, 40, 1, 0, 1]] and data.name == "flats.parquet"
    with pytest.raises(
        DataError, match=r"flats.parquet, row 0 \(0-based\), column 4 \('town'\): 'Ulm' is not a number"
    ):
        load(path)
    with pytest.raises(DataError, match="separator=';' is for text"):
        load(path, separator=";")


def test_parquet_files_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"

    def refuses(message: str) -> None:
        with pytest.raises(DataError, match=message):
            load(path)

    path.write_bytes(b"PAR1PAR1")
    refuses("t.parquet: not a readable Parquet file")
    pq.write_table(pa.table({"a": [[1]], "y": [1]}), path)
    refuses("column 'a' holds list<element: int64>; expected numbers or text")
    pq.write_table(pa.table({"a": [b"x"], "y": [1]}), path)
    refuses("column 'a' holds binary; expected")
    pq.write_table(pa.table({"a": np.random.default_rng(0).random(1000), "y": np.arange(1000.0)}), path)
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)  # the header of the first page
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load(path)
    pq.write_table(pa.table({"a": np.zeros(1 << 20), "y": np.zeros(1 << 20)}), path)  # some kilobytes
    monkeypatch.setattr("surefoot._data.sizes.ALWAYS", 1 << 20)
    refuses("would take 16777216 bytes in memory, more than 100 times the")


def test_damaged_parquet_files_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    FLATS.to_parquet(path)
    good, draw = path.read_bytes(), random.Random(0)
    read = 0
    for _ in range(100):
        content = bytearray(good[: draw.choice([len(good), draw.randrange(len(good))])])
        for place in draw.choices(range(len(content)), k=draw.choice([1, 4])):
            content[place] = draw.randrange(256)
        path.write_bytes(content)
        try:
            read += bool(load(path, categories="one-hot", missing="mean").X.isfinite().all())
        except DataError:
            continue
    assert read


def test_a_long_text_that_occurs_often_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000), ["x" * 1_000_000])  # 100 GB, written out
    pq.write_table(pa.table({"a": text, "y": np.zeros(100_000)}), path)
    with pytest.raises(DataError, match=r"'x{39}…' is not a number"):
        load(path)


def test_without_the_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'surefoot\[tables\]'"):
        load(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TypeError, match="frame is pandas"):
        sf.data.from_frame(FLATS)
