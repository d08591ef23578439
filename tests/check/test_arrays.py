"""The strict readers: round trips, every kind of malformed file, and random mutations."""

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from surefoot_check.arrays import FormatError, digest, map_safetensors, parse_hex, read_json, read_safetensors

ARRAYS = {
    "W1": np.arange(6.0).reshape(2, 3) / 7,
    "single": np.array([1.5, -2.0], dtype=np.float32),
    "count": np.array([[1], [-(2**62)]], dtype=np.int64),
    "index": np.array([3, -4], dtype=np.int32),
    "bytes": np.array([0, 255, 7], dtype=np.uint8),
    "mask": np.array([True, False, True]),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 4)),
    "special": np.array([np.nan, np.inf, -0.0, 5e-324]),
}


def raw(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(shape: object, begin: object, end: object, dtype: object = "F64") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_round_trip_against_the_safetensors_package(tmp_path: Path) -> None:
    path = tmp_path / "problem.safetensors"
    save_file(ARRAYS, path, metadata={"format": "numpy"})
    read = read_safetensors(path)
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()
        assert read[name].flags.c_contiguous and read[name].flags.writeable and read[name].flags.aligned


def test_file_without_arrays(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    path.write_bytes(raw({}))
    assert read_safetensors(path) == {}


BAD_SAFETENSORS = {
    "empty file": b"",
    "short length": b"\x02\x00\x00",
    "length past the end": raw({}, length=3),
    "huge length": raw({}, length=2**64 - 1),
    "length above 1 MiB": raw(b"{}" + b" " * (1 << 20)),
    "not JSON": raw(b"{]"),
    "not an object": raw([1]),
    "not UTF-8": raw(b'{"\xff": 1}'),
    "duplicate name": raw(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}'),
    "duplicate field": raw(b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "entry not an object": raw({"a": 3}),
    "missing field": raw({"a": {"dtype": "F64", "shape": [0]}}),
    "extra field": raw({"a": {**entry([0], 0, 0), "extra": 1}}),
    "unknown dtype": raw({"a": entry([1], 0, 2, "F16")}, bytes(2)),
    "dtype not a string": raw({"a": entry([1], 0, 8, ["F64"])}, bytes(8)),
    "negative dimension": raw({"a": entry([-1, -1], 0, 8)}, bytes(8)),
    "dimension a float": raw({"a": entry([1.0], 0, 8)}, bytes(8)),
    "dimension a bool": raw({"a": entry([True], 0, 8)}, bytes(8)),
    "shape not a list": raw({"a": entry(1, 0, 8)}, bytes(8)),
    "too many dimensions": raw({"a": entry([1] * 33, 0, 8)}, bytes(8)),
    "dimension beyond 64 bits": raw(b'{"a":{"dtype":"F64","shape":[99999999999999999999],"data_offsets":[0,8]}}'),
    "empty but enormous": raw({"a": entry([0, 2**62, 2**62], 0, 0)}),
    "product wraps to 64 bits": raw({"a": entry([2**32, 2**32], 0, 0)}),
    "span too long": raw({"a": entry([1], 0, 16)}, bytes(16)),
    "span reversed": raw({"a": entry([1], 8, 0)}, bytes(8)),
    "three offsets": raw({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8, 8]}}, bytes(8)),
    "past the end": raw({"a": entry([2], 0, 16)}, bytes(8)),
    "overlap": raw({"a": entry([2], 0, 16), "b": entry([1], 8, 16)}, bytes(16)),
    "same span twice": raw({"a": entry([1], 0, 8), "b": entry([1], 0, 8)}, bytes(8)),
    "gap": raw({"a": entry([1], 0, 8), "b": entry([1], 16, 24)}, bytes(24)),
    "not from the start": raw({"a": entry([1], 8, 16)}, bytes(16)),
    "trailing data": raw({"a": entry([1], 0, 8)}, bytes(9)),
    "data without arrays": raw({}, b"\x00"),
    "boolean 2": raw({"a": entry([1], 0, 1, "BOOL")}, b"\x02"),
    "metadata not strings": raw({"__metadata__": {"a": 1}}),
    "metadata a list": raw({"__metadata__": []}),
    "NaN in the header": raw(b'{"a":{"dtype":"F64","shape":[NaN],"data_offsets":[0,8]}}', bytes(8)),
}


@pytest.mark.parametrize("read", [read_safetensors, map_safetensors])
@pytest.mark.parametrize("content", BAD_SAFETENSORS.values(), ids=BAD_SAFETENSORS.keys())
def test_malformed_safetensors_are_refused(tmp_path: Path, content: bytes, read) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.safetensors"):
        read(path)


@pytest.mark.parametrize("padding", range(8))
def test_mapped_arrays_are_those_that_are_read(tmp_path: Path, padding: int) -> None:
    """The header's length decides whether the entries lie aligned in the file."""
    content = save(ARRAYS)
    size = int.from_bytes(content[:8], "little")
    path = tmp_path / "mapped.safetensors"
    path.write_bytes(raw(content[8 : 8 + size] + b" " * padding, content[8 + size :]))
    read, mapped = read_safetensors(path), map_safetensors(path)
    assert read.keys() == mapped.keys() == ARRAYS.keys()
    for name, array in mapped.items():
        assert array.dtype == read[name].dtype and array.shape == read[name].shape and array.flags.aligned
        assert array.tobytes() == read[name].tobytes()
    assert mapped["W1"].flags.writeable == bool(padding)  # a copy, where it was not aligned


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_safetensors_give_arrays_or_a_format_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(save(ARRAYS))
    header_end = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, header_end if data.draw(st.booleans()) else len(content)))
        stop = min(start + data.draw(st.integers(0, 3)), len(content))
        content[start:stop] = data.draw(
            st.binary(max_size=3) | st.text('0123456789,[]{}":e-NaF', max_size=3).map(str.encode)
        )
    path = tmp_path / "mutated.safetensors"
    path.write_bytes(content)
    try:
        arrays = read_safetensors(path)
    except FormatError:
        return
    header_bytes = int.from_bytes(content[:8], "little")
    assert sum(array.nbytes for array in arrays.values()) == len(content) - 8 - header_bytes


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=80) | st.text('[]{}",:0123456789.eE+-truefalsNI \\u', max_size=40).map(str.encode))
def test_random_json_gives_a_value_or_a_format_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "random.json"
    path.write_bytes(content)
    try:
        value = read_json(path)
    except FormatError:
        return
    assert json.loads(content) == value


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, -(2**63), None, True], "σ": {"b": "é😀"}, "": []}
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    assert read_json(path) == value
    path.write_text(json.dumps(value), encoding="ascii")
    assert read_json(path) == value


BAD_JSON = {
    "empty": b"",
    "duplicate key": b'{"a": 1, "a": 1}',
    "nested duplicate key": b'[{"b": {"a": 1, "\\u0061": 2}}]',
    "NaN": b'{"a": NaN}',
    "infinity": b"[Infinity]",
    "negative infinity": b"[-Infinity]",
    "overflow": b"[1e999]",
    "huge integer": b"[" + b"9" * 5000 + b"]",
    "65-bit integer": b"[9223372036854775808]",
    "trailing garbage": b"{} x",
    "two values": b"{}{}",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "not UTF-8": b'["\xff"]',
    "unpaired surrogate": b'["\\ud800"]',
    "surrogate in a key": b'{"\\udfff": 1}',
    "control character": b'["\x00"]',
    "single quotes": b"{'a': 1}",
    "comment": b"{} // end",
    "trailing comma": b"[1,]",
    "leading zero": b"[01]",
    "too deep": b"[" * 70 + b"]" * 70,
    "far too deep": b"[" * 200_000,
}


@pytest.mark.parametrize("content", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_malformed_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.json"):
        read_json(path)


def test_depth_limit_is_64(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 64 + "]" * 64)
    read_json(path)
    path.write_text("[" * 66 + "]" * 66)
    with pytest.raises(FormatError, match="deeper"):
        read_json(path)


@pytest.mark.parametrize("read", [read_json, read_safetensors, map_safetensors])
def test_only_regular_files_within_the_size_limit_are_read(tmp_path: Path, read) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"{}" if read is read_json else raw({}))
    assert read(path) == {}
    with pytest.raises(FormatError, match="limit"):
        read(path, max_bytes=1)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(FormatError, match="symbolic link"):
        read(link)
    with pytest.raises(FormatError, match="absent: there is no such file"):
        read(tmp_path / "absent")
    with pytest.raises(FormatError):
        read(tmp_path)
    with pytest.raises(FormatError):
        read("null\0character")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FormatError, match="regular"):
            read(tmp_path / "pipe")


def test_digest_covers_dtype_shape_and_bytes() -> None:
    A = np.arange(6.0).reshape(2, 3)
    expected = hashlib.sha256(b"<f8(2, 3)" + A.tobytes()).hexdigest()
    assert digest(A) == expected
    assert digest(np.asfortranarray(A)) == expected
    assert digest(A.astype(">f8")) == expected
    assert digest(np.hstack([A, A])[:, :3]) == expected
    others = [
        A.T,
        A.ravel(),
        A.astype(np.float32),
        A.astype(np.int64),
        np.nextafter(A, 9),
        np.zeros((2, 0)),
        np.array(0.0),
    ]
    assert len({expected, *map(digest, others)}) == len(others) + 1
    assert digest(np.array([0.0])) != digest(np.array([-0.0]))
    assert digest(np.array(True)) == hashlib.sha256(b"|b1()\x01").hexdigest()
    with pytest.raises(ValueError, match="object"):
        digest(np.array([None]))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_hexadecimal_floats_round_trip(value: float) -> None:
    read = parse_hex(value.hex(), "rate")
    assert read == value and math.copysign(1, read) == math.copysign(1, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.1",
        "1",
        "nan",
        "inf",
        "-inf",
        "0x1p0",
        "0x1.8p+0",
        "0X1.8000000000000P+1",
        " 0x1.8000000000000p+1",
        "0x1.8000000000000p+1\n",
        "0x1.8000000000000p+9999",
        "0x1.0000000000000p+1024",
        "0x1.0000000000000p-1075",
        "0x1.00000000000001p+0",
        "0x1.8000000000000p+٣",
        "0x0.0000000000000p+0",
        1.5,
        1,
        None,
        True,
        ["0x1.8000000000000p+1"],
        b"0x1.8000000000000p+1",
    ],
)
def test_anything_but_a_canonical_hexadecimal_float_is_refused(text: object) -> None:
    with pytest.raises(FormatError, match=r"^rate: "):
        parse_hex(text, "rate")
