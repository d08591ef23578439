"""Strict readers of the files of a run directory: safetensors arrays, JSON and hexadecimal floats.

Everything that is read is untrusted. A reader either returns a fully validated value or raises `FormatError`;
sizes are checked before memory is allocated, and symbolic links and special files are refused.
"""

import hashlib
import json
import math
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

MAX_HEADER_BYTES = 1 << 20
MAX_MAPPED_BYTES = 64 << 30
MAX_JSON_DEPTH = 64
MAX_LINE_BYTES = 1 << 16
MAX_DIMENSIONS = 32

# safetensors name -> little-endian numpy dtype
DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}

_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}", re.ASCII)


class FormatError(ValueError):
    """A file or field is malformed; the message names it and says what was wrong."""


class TooLargeError(FormatError):
    """What is described is well-formed, and beyond a limit of size."""


def within(name: str, array: np.ndarray, largest: float) -> None:
    """``FormatError`` that names the limit unless every entry of ``array`` is a number of at most that magnitude."""
    if not (np.abs(array) <= largest).all():
        # of a NaN the largest is NaN
        raise FormatError(
            f"{name} has entries that are not finite or exceed {largest:.0e}: the largest is {np.abs(array).max():.3g}"
        )


def numbers(
    array: np.ndarray | None, name: str, largest: float, dimensions: int | None = None, dtype: type = np.float64
) -> np.ndarray:
    """The array itself; ``FormatError`` unless it is there, of this dtype and, if given, number of dimensions, not empty, and its
    entries are numbers of at most that magnitude."""
    if array is None:
        raise FormatError(f"{name} is missing")
    if array.dtype != dtype or array.size == 0 or dimensions not in (None, array.ndim):
        wanted = "" if dimensions is None else f" with {dimensions} dimensions"
        raise FormatError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; it must be {dtype.__name__}{wanted}, and not empty"
        )
    within(name, array, largest)
    return array


def digest(array: np.ndarray) -> str:
    """SHA-256 of dtype, shape and bytes, as 64 hexadecimal digits: of f"{dtype.str}{shape}" in ASCII, for example "<f8(3,
    4)", and then of the entries in C order, little-endian. ``ValueError`` for a dtype that is not boolean, integer or
    floating.
    """
    if array.dtype.kind not in "biuf":
        raise ValueError(f"array has dtype {array.dtype}; only boolean, integer and floating arrays have a digest")
    entries = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    result = hashlib.sha256(f"{entries.dtype.str}{entries.shape}".encode("ascii"))
    result.update(entries.reshape(-1).view(np.uint8).data)
    return result.hexdigest()


@contextmanager
def _opened(path: str | os.PathLike[str], max_bytes: int) -> Iterator[tuple[BinaryIO, int]]:
    """The open file and its size; an `OSError` within the context becomes a `FormatError`."""
    # O_NONBLOCK: opening a named pipe must not wait. The checks are made on the open file, not on its name.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        if Path(path).is_symlink():
            raise FormatError(f"{path}: is a symbolic link; store the file itself")
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FormatError(f"{path}: is not a regular file")
            if status.st_size > max_bytes:
                raise FormatError(f"{path}: has {status.st_size} bytes, more than the limit of {max_bytes}")
            yield file, status.st_size
    except FormatError:
        raise
    except FileNotFoundError as error:
        raise FormatError(f"{path}: there is no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise FormatError(f"{path}: cannot be read ({error})") from error


def read_bytes(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """The content of a regular file, not a symbolic link, of at most so many bytes; else ``FormatError``."""
    with _opened(path, max_bytes) as (file, size):
        content = file.read(size + 1)
    if len(content) != size:
        raise FormatError(f"{path}: changed its length while it was read")
    return content


def parse_json(content: bytes, source: str) -> object:
    """What `read_json` returns and raises, of bytes; messages begin with ``source``."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise FormatError(f"{source}: an object has a duplicate key")
        return result

    def constant(text: str) -> object:
        raise FormatError(f"{source}: {text} is not a JSON number")

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise FormatError(f"{source}: the number {text[:40]} overflows")
        return value

    def integer(text: str) -> int:
        # Counts and offsets only: the length test comes first, as converting long digit strings is slow.
        if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
            raise FormatError(f"{source}: the integer {text[:40]} does not fit 64 bits")
        return int(text)

    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=unique,
            parse_constant=constant,
            parse_float=number,
            parse_int=integer,
        )
    except FormatError:
        raise
    except RecursionError as error:
        raise FormatError(f"{source}: is nested deeper than {MAX_JSON_DEPTH} levels") from error
    except ValueError as error:  # includes UnicodeDecodeError and JSONDecodeError
        raise FormatError(f"{source}: is not valid JSON in UTF-8 ({error})") from error
    _check_tree(value, source)
    return value


def _check_tree(value: object, source: str) -> None:
    # Depth, and unpaired surrogates written as escapes: such a string could not be printed or hashed later.
    level, depth = [value], 0
    while level:
        if depth > MAX_JSON_DEPTH:
            raise FormatError(f"{source}: is nested deeper than {MAX_JSON_DEPTH} levels")
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.keys())
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and not item.isascii():
                try:
                    item.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise FormatError(f"{source}: a string holds an unpaired surrogate") from error
        level, depth = below, depth + 1


def read_json(path: str | os.PathLike[str], max_bytes: int = 64 << 20) -> object:
    """Read one JSON value strictly: dict, list, str, int (64 bits), finite float, bool or None.

    Raises:
        FormatError: the file cannot be read, is no regular file or a link, is too large, is not UTF-8, is not exactly one JSON
            value, repeats a key in an object, holds NaN, infinity or a number that overflows, or is nested deeper than 64 levels.
    """
    return parse_json(read_bytes(path, max_bytes), str(path))


def read_json_lines(path: str | os.PathLike[str], max_bytes: int) -> Iterator[object]:
    """The JSON values of a file that has one in each line, as strict as `read_json`; one line is in memory at a time.

    An unfinished last line, without a line break and not valid by itself, counts as absent: a writer was killed there.

    Raises:
        FormatError: the file cannot be read or is too large, or a line is empty, of more than 64 KiB or no valid value.
    """
    with _opened(path, max_bytes) as (file, _):
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            ended = line.endswith(b"\n")
            if len(line) > MAX_LINE_BYTES:
                raise FormatError(f"{path}: line {number} has more than {MAX_LINE_BYTES} bytes")
            try:
                value = parse_json(line, f"{path}, line {number}")
            except FormatError:
                if ended:
                    raise
                return
            yield value


def parse_hex(text: object, name: str) -> float:
    """The float that `float.hex` wrote as `text`, such as "0x1.8000000000000p+1".

    Raises:
        FormatError: not a string, not in that form (other spellings of a number included), or not finite; ``name`` is the field.
    """
    if not isinstance(text, str) or _HEX_FLOAT.fullmatch(text) is None:
        raise FormatError(f"{name}: {repr(text)[:60]} is not a hexadecimal float; write it with float.hex")
    try:
        value = float.fromhex(text)
    except OverflowError as error:
        raise FormatError(f"{name}: {text} overflows") from error
    if value.hex() != text:
        raise FormatError(f"{name}: {text} is not written as float.hex writes it ({value.hex()})")
    return value


def read_safetensors(path: str | os.PathLike[str], max_bytes: int = 1 << 30) -> dict[str, np.ndarray]:
    """Read every array of a safetensors file: an 8-byte little-endian length, a JSON header, raw arrays.

    They are copies in C order, by name; dtypes F64, F32, I64, I32, U8, BOOL. Entries may be NaN or infinite.

    Raises:
        FormatError: the file cannot be read, is no regular file or a link, or is too large; the header is longer than 1 MiB or
            than the file, or is not a JSON object of valid entries; an array's span does not match its shape; spans overlap,
            leave gaps or do not cover the file exactly; a boolean is neither 0 nor 1.
    """
    views = _views(memoryview(read_bytes(path, max_bytes)), path)
    return {name: view.copy() for name, view in views.items()}


def map_safetensors(path: str | os.PathLike[str], max_bytes: int = MAX_MAPPED_BYTES) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as `read_safetensors` has them, but read-only and mapped: only pages in use are in memory.

    The file must not be changed by others as long as the arrays are used.
    """
    with _opened(path, max_bytes) as (file, size):
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    views = _views(memoryview(content), path)
    # a header of odd length leaves entries unaligned, which LAPACK would copy again and again
    return {name: view if view.flags.aligned else view.copy() for name, view in views.items()}


def _views(content: memoryview, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, without copying an entry."""
    if len(content) < 8:
        raise FormatError(f"{path}: has {len(content)} bytes; a safetensors file has at least 8")
    header_bytes = int.from_bytes(content[:8], "little")
    if header_bytes > min(MAX_HEADER_BYTES, len(content) - 8):
        raise FormatError(f"{path}: the header length {header_bytes} exceeds the file or the limit of 1 MiB")
    header = parse_json(bytes(content[8 : 8 + header_bytes]), f"{path} (header)")
    if not isinstance(header, dict):
        raise FormatError(f"{path}: the header is not a JSON object")
    entries = cast("dict[str, object]", header)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError(f"{path}: __metadata__ must map names to strings")

    data = content[8 + header_bytes :]
    layouts = {name: _layout(entry, f"{path}: array {name!r}") for name, entry in entries.items()}
    position = 0
    for name, (_, _, begin, end) in sorted(layouts.items(), key=lambda item: item[1][2:]):
        if begin != position:
            raise FormatError(f"{path}: array {name!r} starts at {begin} instead of {position} (gap or overlap)")
        position = end
    if position != len(data):
        raise FormatError(f"{path}: the arrays cover {position} of {len(data)} data bytes")

    arrays: dict[str, np.ndarray] = {}
    for name, (dtype, shape, begin, end) in layouts.items():
        raw = np.frombuffer(data[begin:end], dtype=np.uint8)
        if dtype.kind == "b" and bool((raw > 1).any()):
            raise FormatError(f"{path}: array {name!r} has a boolean that is neither 0 nor 1")
        arrays[name] = raw.view(dtype).reshape(shape)
    return arrays


def _layout(entry: object, source: str) -> tuple[np.dtype, tuple[int, ...], int, int]:
    """dtype, shape, begin and end of one header entry; the span matches the shape."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{source}: must have exactly the fields dtype, shape and data_offsets")
    fields = cast("dict[str, object]", entry)
    name = fields["dtype"]
    if not isinstance(name, str) or name not in DTYPES:
        raise FormatError(f"{source}: dtype {repr(name)[:40]} is not one of {', '.join(DTYPES)}")
    dtype = DTYPES[name]
    shape = counts(fields["shape"], f"{source}: shape")
    offsets = counts(fields["data_offsets"], f"{source}: data_offsets")
    if len(shape) > MAX_DIMENSIONS:
        raise FormatError(f"{source}: shape has {len(shape)} dimensions, more than {MAX_DIMENSIONS}")
    # numpy rejects shapes whose nonzero dimensions overflow, even where a zero dimension empties the array.
    if math.prod(max(size, 1) for size in shape) * dtype.itemsize >= 1 << 62:
        raise FormatError(f"{source}: shape {shape} is too large")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        raise FormatError(f"{source}: data_offsets {offsets} do not span shape {shape} of dtype {name}")
    return dtype, shape, offsets[0], offsets[1]


def counts(value: object, source: str) -> tuple[int, ...]:
    """A short list of nonnegative integers; ``FormatError`` that begins with ``source`` for anything else."""
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS + 1:
        raise FormatError(f"{source} is not a short list of integers")
    counts: list[int] = []
    for item in cast("list[object]", value):
        if type(item) is not int or item < 0:  # bool is an int to isinstance
            raise FormatError(f"{source} holds {repr(item)[:40]}; only nonnegative integers are allowed")
        counts.append(item)
    return tuple(counts)
