"""Mutations of the bytes of a run's files, each from a seeded generator, the bytes and those of a donor of the same kind."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

HEX_FLOAT = re.compile(rb'"-?0x[01]\.[0-9a-f]+p[+-][0-9]+"')
NUMBER = re.compile(rb"(?<![\"\w.])-?[0-9]+(?![\"\w.])")
KEY = re.compile(rb'"([A-Za-z_0-9\[\]/]+)":')
ODD_NUMBERS = (
    *(
        '"0x1.0000000000000p+1024"',
        '"0x1.fffffffffffffp+1023"',
        '"-0x0.0p+0"',
        '"0x0.0p+0"',
        '"0x0.0000000000001p-1022"',
    ),
    *(
        '"nan"',
        '"inf"',
        '"-inf"',
        '"0x1p+3"',
        '"0x1.8p+99999999999"',
        '"0.5"',
        '"1e-3"',
        '"0X1.8P+0"',
        '""',
        '" 0x1.8p+0"',
    ),
    *("NaN", "Infinity", "-Infinity", "1e999", "-0.0", "0.1", "1e-400", "9" * 25, "-9223372036854775809", "1" * 5000),
    *(
        "0",
        "-1",
        "1",
        "18446744073709551616",
        "true",
        "null",
        '"0x1.8000000000000p+\\u0031"',
        '"\\u0030x1.0000000000000p+0"',
    ),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63 - 1,
    2**63,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 0},
    "0x0.0p+0",
)
TEXTS = (
    b"\xef\xbb\xbf",
    b"\0",
    b"\\ud800",
    b"\\u0000",
    b"\xff\xfe",
    b"//",
    b",",
    b"}",
    b"]",
    b'"',
    b" ",
    b"\n",
    b"\xe2\x80\xa8",
)
DTYPES = ("F64", "F32", "I64", "I32", "U8", "BOOL", "F16", "BF16", "f64", "", "C64")
SIZES = (0, 1, 2, 3, 7, -1, 10**9, 2**31, 2**32, 2**53, 2**60, 2**62, 2**63 - 1, 2**64, True, 1.0, None, "3", [3])
FLOATS = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 5e-324, 1e308, 1e50, 1.1e50, -1e30, 1.0, 2.0)


# -- safetensors, as bytes ---------------------------------------------------------------------------------------------


def parted(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file; ``ValueError`` for what is none."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if not isinstance(header, dict) or len(content) < 8 + length:
        raise ValueError("no header")
    return header, content[8 + length :]


def joined(header: Any, data: bytes, padding: int = 0) -> bytes:
    """A safetensors file."""
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + data


# -- mutations of bytes ------------------------------------------------------------------------------------------------


def bit(random: Random, content: bytes, donor: bytes) -> bytes:
    """One bit the other way."""
    if not content:
        return content
    position = random.randrange(len(content))
    return content[:position] + bytes([content[position] ^ 1 << random.randrange(8)]) + content[position + 1 :]


def chunk(random: Random, content: bytes, donor: bytes) -> bytes:
    """Some bytes left out, written twice, or replaced by random ones."""
    position = random.randrange(len(content) + 1)
    size = random.choice((1, 1, 2, 3, 8, 64, len(content)))
    piece = content[position : position + size]
    put = random.choice((b"", piece + piece, random.randbytes(random.choice((1, 2, 8))), random.choice(TEXTS)))
    return content[:position] + put + content[position + random.choice((0, len(piece))) :]


def splice(random: Random, content: bytes, donor: bytes) -> bytes:
    """The start of one file and the end of another."""
    position, end = random.randrange(len(content) + 1), random.randrange(len(donor) + 1)
    same = random.random() < 0.5 and position <= len(donor)
    return content[:position] + donor[position if same else end :]


def cut(random: Random, content: bytes, donor: bytes) -> bytes:
    """Cut off, or longer than it should be."""
    position = random.randrange(len(content) + 1)
    return random.choice(
        (content[:position], content + content[:position], content + random.choice(TEXTS), content * 2, donor)
    )


# -- mutations of a certificate ----------------------------------------------------------------------------------------


def digit(random: Random, content: bytes, donor: bytes) -> bytes:
    """Another mantissa, exponent or sign of one number."""
    numbers = list(HEX_FLOAT.finditer(content))
    if not numbers:
        return content
    match = random.choice(numbers)
    text = match.group()[1:-1].decode()
    mantissa, _, exponent = text.partition("p")
    choice = random.randrange(5)
    if choice == 0 and len(mantissa) > 5:
        where = random.randrange(mantissa.index(".") + 1, len(mantissa))
        text = f"{mantissa[:where]}{random.choice('0123456789abcdef')}{mantissa[where + 1 :]}p{exponent}"
    elif choice == 1:
        text = f"{mantissa}p{int(exponent) + random.choice((-1000, -9, -1, 1, 2, 9, 1000)):+d}"
    elif choice == 2:
        text = text[1:] if text.startswith("-") else "-" + text
    elif choice == 3:
        change = 1.0 + random.choice((-1, 1)) * 2.0 ** -random.randrange(52)
        try:
            text = (float.fromhex(text) * change).hex()
        except OverflowError:
            return content
    else:
        text = random.choice((b"0x1.0000000000000p+0", *(m.group()[1:-1] for m in numbers))).decode()
    return content[: match.start()] + f'"{text}"'.encode() + content[match.end() :]


def odd_number(random: Random, content: bytes, donor: bytes) -> bytes:
    """A number replaced by what is none, or by one out of range."""
    numbers = [*HEX_FLOAT.finditer(content), *NUMBER.finditer(content)]
    if not numbers:
        return content
    match = random.choice(numbers)
    return content[: match.start()] + random.choice(ODD_NUMBERS).encode() + content[match.end() :]


def integer(random: Random, content: bytes, donor: bytes) -> bytes:
    """An integer close to what it was, or far from it."""
    numbers = list(NUMBER.finditer(content))
    if not numbers:
        return content
    match = random.choice(numbers)
    value = int(match.group()[:30]) + random.choice((-1, 1, 2, 10, 10**6, 2**62, -(2**63)))
    return content[: match.start()] + str(value).encode() + content[match.end() :]


def key(random: Random, content: bytes, donor: bytes) -> bytes:
    """A key twice, renamed, spelled with an escape, or exchanged with another."""
    keys = list(KEY.finditer(content))
    if not keys:
        return content
    match, other = random.choice(keys), random.choice(keys)
    name = match.group(1)
    escaped = f"\\u{name[0]:04x}".encode() + name[1:]
    value = json.dumps(random.choice(VALUES)).encode()
    put = random.choice(
        (
            *(b'"%s": %s, "%s":' % (name, value, name), b'"%s": %s, "%s":' % (escaped, value, name)),
            *(b'"%s":' % escaped, b'"%s":' % other.group(1), b'"%s ":' % name, b'"\xc3\xa9":', b'"\\ud800":'),
        )
    )
    return content[: match.start()] + put + content[match.end() :]


def tree(random: Random, content: bytes, donor: bytes) -> bytes:
    """The JSON value with one part missing, doubled, moved, exchanged for one of another run, or replaced by another type."""
    try:
        value = json.loads(content)
        other = json.loads(donor)
    except (ValueError, RecursionError):
        return content
    places = list(_places(value))
    if not places:
        return content
    holder, place = random.choice(places)
    choice = random.randrange(6)
    if choice == 0:
        del holder[place]
    elif choice == 1:
        holder[place] = random.choice(VALUES)
    elif choice == 2:
        from_holder, from_place = random.choice(list(_places(other)) or [(holder, place)])
        holder[place] = from_holder[from_place]
    elif choice == 3 and isinstance(holder, list):
        holder.insert(random.randrange(len(holder) + 1), holder[place])
    elif choice == 4 and isinstance(holder[place], list):
        random.shuffle(holder[place])
    else:
        second, second_place = random.choice(places)
        holder[place], second[second_place] = second[second_place], holder[place]
    try:
        return json.dumps(value, indent=random.choice((None, 1))).encode()
    except (ValueError, RecursionError):  # a part inside itself
        return content


def bomb(random: Random, content: bytes, donor: bytes) -> bytes:
    """A value that is very deep, very long, or both."""
    numbers = [*HEX_FLOAT.finditer(content), *NUMBER.finditer(content)]
    if not numbers:
        return content
    match = random.choice(numbers)
    deep = random.choice((10, 63, 64, 65, 1000, 100_000))
    long = random.choice((100, 10_001, 100_000))
    put = random.choice(
        (
            *(
                b"[" * deep + b"]" * deep,
                b'{"a":' * deep + b"0" + b"}" * deep,
                b"[" * deep,
                b"[" + b"0," * long + b"0]",
            ),
            *(b"[" + b'"0x1.0000000000000p+0",' * long + b"0]", b'"' + b"\\u00e9" * long + b'"', b"9" * long),
        )
    )
    return content[: match.start()] + put + content[match.end() :]


def spelling(random: Random, content: bytes, donor: bytes) -> bytes:
    """The same value in another text: order of keys, blanks, escapes."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        value = {name: value[name] for name in keys}
    text = json.dumps(value, indent=random.choice((None, 0, 3)), ensure_ascii=random.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (object or list, key or index) below a JSON value."""
    for place, below in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, place
        if isinstance(below, dict | list):
            yield from _places(below)


# -- mutations of arrays -----------------------------------------------------------------------------------------------


def header(random: Random, content: bytes, donor: bytes) -> bytes:
    """Another shape, dtype, span or name of one array, or another length of the header."""
    try:
        entries, data = parted(content)
        others = parted(donor)[0]
    except (ValueError, RecursionError):
        return content
    if not entries or not all(
        isinstance(entry, dict) and {"shape", "data_offsets"} <= entry.keys() for entry in entries.values()
    ):
        return content
    name = random.choice(list(entries))
    entry = entries[name]
    choice = random.randrange(11)
    if choice == 0:
        entry["dtype"] = random.choice(DTYPES)
    elif choice == 1 and entry["shape"]:
        entry["shape"][random.randrange(len(entry["shape"]))] = random.choice(SIZES)
    elif choice == 2:
        entry["shape"] = random.choice(
            ([], [0], [1] * 33, entry["shape"][::-1], [*entry["shape"], 1], [2**31, 2**31, 0])
        )
    elif choice == 3:
        entry["data_offsets"][random.randrange(2)] += random.choice((-8, -1, 1, 8, 10**9, 2**63))
    elif choice == 4:
        entry["data_offsets"] = entries[random.choice(list(entries))]["data_offsets"]
    elif choice == 5:
        del entries[name]
    elif choice == 6:
        entries[random.choice(("A", "W", "X", "../x", "", "é", "__metadata__", *others))] = entries.pop(name)
    elif choice == 7:
        second = random.choice(list(entries))
        entries[name], entries[second] = entries[second], entry
    elif choice == 8:
        entries["extra"] = {"dtype": "F64", "shape": [0], "data_offsets": [len(data)] * 2}
    elif choice == 9:
        entries["__metadata__"] = random.choice(({}, {"a": "b"}, {"a": 1}, [], {"a": "é" * 1000}))
    else:
        keys = list(entries)
        random.shuffle(keys)
        entries = {entry_name: entries[entry_name] for entry_name in keys}
    padding = random.choice((0, 0, 0, 1, 100))
    made = joined(entries, data, padding)
    if random.random() < 0.1:
        length = int.from_bytes(made[:8], "little") + random.choice((-1, 1, 8, 2**20, 2**60))
        made = min(length, 2**64 - 1).to_bytes(8, "little") + made[8:]
    return made


def entry(random: Random, content: bytes, donor: bytes) -> bytes:
    """One number of an array replaced by a special one, or moved by a power of two of its size."""
    try:
        entries, data = parted(content)
        spans = [e["data_offsets"] for e in entries.values() if e["dtype"] == "F64" and e["shape"] != [0]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content
    if not spans or not data:
        return content
    begin, end = random.choice(spans)
    start = len(content) - len(data) + begin + 8 * random.randrange(max(1, (end - begin) // 8))
    old = content[start : start + 8]
    if len(old) < 8:
        return content
    value = random.choice(FLOATS)
    if random.random() < 0.7:
        value = struct.unpack("<d", old)[0] * (1.0 + random.choice((-1, 1)) * 2.0 ** -random.randrange(53))
    return content[:start] + struct.pack("<d", value) + content[start + 8 :]


Mutation = Callable[[Random, bytes, bytes], bytes]
OF_BYTES: tuple[Mutation, ...] = (bit, bit, chunk, splice, cut)
OF_JSON: tuple[Mutation, ...] = (
    (digit,) * 8 + (odd_number,) * 4 + (integer,) * 3 + (key,) * 3 + (tree,) * 5 + (spelling,)
)
OF_ARRAYS: tuple[Mutation, ...] = (header,) * 4 + (entry,) * 4
BOMBS = 0.002
"""Share of the inputs with a bomb, which are slower than a thousand others."""
