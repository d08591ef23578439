"""Hostile files: nothing is unpickled, nothing outside a run directory is read, and small files take little memory."""

from __future__ import annotations

import ast
import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from changes import GoodRun, once
from every_system import copied, thin
from good_runs import SYSTEMS
from tamper import DTYPE_NAMES, StoredRun, safetensors

import surefoot as sf
from surefoot._core.io import read_json, read_tensors
from surefoot_check import Outcome, check
from surefoot_check import run_files as limits
from surefoot_check.run_files import files_named

SOURCE = Path(sf.__file__).parents[1]
LIMIT = 1 << 30
"""Bytes of address space beyond what the imports take: far below what the files claim."""
GIGABYTES = 10 << 30


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``good_run(system)``: a directory of a run of the system."""
    return once(tmp_path_factory, lambda name, path: SYSTEMS[name](path))


# -- nothing is unpickled ----------------------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "h5py"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {("torch", "load"), ("torch", "save"), ("np", "fromfile"), ("np", "loadtxt"), ("np", "genfromtxt")}


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_no_source_reads_pickles_or_runs_what_it_reads() -> None:
    files = [*SOURCE.glob("surefoot/**/*.py"), *SOURCE.glob("surefoot_check/**/*.py")]
    assert len(files) > 150
    loads = 0
    for file in files:
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                assert not FORBIDDEN_MODULES & {name.split(".")[0] for name in names}, f"{file}: {names}"
        for call in _calls(tree):
            function = call.func
            if isinstance(function, ast.Name):
                assert function.id not in FORBIDDEN_CALLS, f"{file}:{call.lineno}"
            elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                method = function.value.id, function.attr
                assert method not in FORBIDDEN_METHODS, f"{file}:{call.lineno}"
                if method == ("np", "load"):
                    loads += 1
                    allowed = {key.arg: ast.unparse(key.value) for key in call.keywords}.get("allow_pickle")
                    assert allowed == "False", f"{file}:{call.lineno}"
    assert loads >= 4  # else this test has lost its object


# -- nothing but regular files inside the directory --------------------------------------------------------------------

FILES = ("certificate.json", "problem.safetensors", "initial.safetensors", "final.safetensors")


def _device(file: Path) -> None:
    try:
        os.mknod(file, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except (PermissionError, OSError):
        pytest.skip("devices cannot be made here")


def _socket(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(file.parent)  # the length of such a name is limited
        try:
            made.bind(file.name)
        finally:
            os.chdir(here)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a link out of the directory": lambda file: file.symlink_to(file.parents[1] / "outside" / file.name),
    "a relative link out of it": lambda file: file.symlink_to(Path("..", "outside", file.name)),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a directory": lambda file: file.mkdir(),
    "a named pipe": lambda file: os.mkfifo(file),
    "a socket": _socket,
    "a device": _device,
}


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_regular_file_is_refused_without_waiting(
    name: str, special: str, good_run: GoodRun, tmp_path: Path
) -> None:
    shutil.copytree(good_run("two-layer"), tmp_path / "outside")
    shutil.copytree(good_run("two-layer"), tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    SPECIAL[special](tmp_path / "run" / name)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert name in str(report.lines[-1])


def test_a_linked_folder_of_checkpoints_is_refused_and_hard_links_are_not(good_run: GoodRun, tmp_path: Path) -> None:
    shutil.copytree(good_run("two-layer"), tmp_path / "run", copy_function=os.link)
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    assert check(tmp_path / "run").outcome is Outcome.REJECT


def test_names_in_files_lead_nowhere(good_run: GoodRun, tmp_path: Path) -> None:
    """Names of arrays, hashes and files with paths in them are refused as what they are: unknown names."""
    for index, name in enumerate(("../../problem/X", "/etc/passwd", "..", "X\0", "C:\\X", "X/../X")):
        run = copied(thin(StoredRun.read(good_run("two-layer"))))
        run.problem[name] = run.problem["X"]
        run.seal()
        run.write(tmp_path / f"{index}")
        assert check(tmp_path / f"{index}").outcome is Outcome.REJECT
        run = copied(thin(StoredRun.read(good_run("two-layer"))))
        run.certificate["arrays"][name] = run.certificate["arrays"].pop("problem/X")
        run.write(tmp_path / f"{index} hash")
        assert check(tmp_path / f"{index} hash").outcome is Outcome.REJECT
    shutil.copytree(good_run("two-layer"), tmp_path / "phase")
    shutil.copy(tmp_path / "phase" / "certificate.json", tmp_path / "phase" / "certificate-..json")
    assert check(tmp_path / "phase").outcome is Outcome.REJECT


# -- memory ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import resource, sys
import {imports}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {limit}, used + {limit}))
{action}
"""
CHECK = """
for directory in sys.argv[1:]:
    report = surefoot_check.check(directory)
    print(report.outcome, *report.lines)
"""
LOAD = """
for file in sys.argv[1:]:
    try:
        print("loaded", sf.data.load(file))
    except sf.data.DataError as error:
        print("refused", error)
"""


def limited(action: str, imports: str, arguments: Iterable[Path]) -> list[str]:
    """The lines of the output of a process that may take ``LIMIT`` bytes besides what it imports."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("limits of memory are set as Linux has them")
    program = PROGRAM.format(imports=imports, limit=LIMIT, action=action)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def refused(*directories: Path) -> list[str]:
    """The reports of checks in little memory, which must not accept, and must not fail for lack of it."""
    texts = limited(CHECK, "surefoot_check, flint, surefoot_check.rigor.exact", directories)
    assert len(texts) == len(directories)
    assert all(text.startswith("reject") for text in texts), texts
    return texts


def sparse(file: Path, size: int, start: bytes = b"") -> None:
    """A file of zeros that takes no room on the disk."""
    with file.open("wb") as made:
        made.write(start)
        made.truncate(size)


def header_of(shape: list[int], dtype: str = "F64") -> bytes:
    """The start of a safetensors file with one array X of this shape."""
    size = 8 * int(np.prod(shape, dtype=object))
    text = json.dumps({"X": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    return len(text).to_bytes(8, "little") + text


def test_huge_files_are_refused_before_they_are_read(good_run: GoodRun, tmp_path: Path) -> None:
    names = [*FILES, "checkpoints/000000005.safetensors"]
    for index, name in enumerate(names):
        shutil.copytree(good_run("two-layer"), tmp_path / f"{index}")
        sparse(tmp_path / f"{index}" / name, GIGABYTES)
    texts = refused(*(tmp_path / f"{index}" for index in range(len(names))))
    assert all(name in text and "limit" in text for name, text in zip(names, texts, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        *(header_of(shape) for shape in ([10**9], [2**31, 2], [2**60], [10**9, 10**9], [1 << 40, 0], [2**62, 2**62])),
        (2**60).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        (1 << 20).to_bytes(8, "little") + b"[" * (1 << 20),
        (1 << 20).to_bytes(8, "little") + b'{"a":' * (1 << 18),
    ],
)
def test_claims_of_a_header_take_no_memory(content: bytes, good_run: GoodRun, tmp_path: Path) -> None:
    shutil.copytree(good_run("two-layer"), tmp_path / "run")
    (tmp_path / "run" / "problem.safetensors").write_bytes(content)
    assert check(tmp_path / "run").outcome is Outcome.REJECT
    try:
        assert read_tensors(tmp_path / "run" / "problem.safetensors")["X"].numel() == 0
    except sf.RunDirectoryError as error:
        assert "problem.safetensors" in str(error)


LARGEST_TEXTS = {
    "lists": b"[" + b"[]," * ((8 << 20) // 3 - 2) + b"0]",
    "objects": b"[" + b'{"":0},' * ((8 << 20) // 7 - 2) + b"0]",
    "nested": b"[" * (8 << 20),
    "a huge integer": b"9" * (8 << 20),
    "a huge float": b"0." + b"9" * ((8 << 20) - 2),
    "a huge exponent": b"1e" + b"9" * ((8 << 20) - 2),
    "a long text": b'"' + b"\\u00e9" * ((8 << 20) // 6 - 2) + b'"',
    "integers": b"[" + b"1," * ((8 << 20) // 2 - 2) + b"0]",
}


def test_the_largest_certificates_take_bounded_memory(good_run: GoodRun, tmp_path: Path) -> None:
    for name, text in LARGEST_TEXTS.items():
        shutil.copytree(good_run("inverse"), tmp_path / name)
        (tmp_path / name / "certificate.json").write_bytes(text)
    texts = refused(*(tmp_path / name for name in LARGEST_TEXTS))
    assert all(
        f"{name}/certificate" in text or "certificate:" in text for name, text in zip(LARGEST_TEXTS, texts, strict=True)
    )


def test_the_number_of_files_is_limited(good_run: GoodRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MAX_CHECKPOINTS", "MAX_LATER_CERTIFICATES"):
        monkeypatch.setattr(limits, name, 50)
    shutil.copytree(good_run("two-layer"), tmp_path / "run")
    for number in range(60):
        (tmp_path / "run" / "checkpoints" / f"{number:09d}.unrelated").touch()
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT  # what is not named like a checkpoint is none
    for number in range(60):
        (tmp_path / "run" / "checkpoints" / f"{10**6 + number:09d}.safetensors").touch()
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT and "more than 50 files" in str(report.lines[-1])
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(good_run("two-layer"), tmp_path / "run")
    for number in range(60):
        (tmp_path / "run" / f"certificate-{number:09d}.json").touch()
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT and "more than 50 files" in str(report.lines[-1])


def test_the_bytes_of_later_certificates_are_limited(good_run: GoodRun, tmp_path: Path) -> None:
    shutil.copytree(good_run("two-layer"), tmp_path / "run")
    for number in range(40):
        sparse(tmp_path / "run" / f"certificate-{number:09d}.json", 8 << 20)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT and "certify less often" in str(report.lines[-1])


def test_directories_are_listed_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").symlink_to("nowhere")
    (tmp_path / "b.safetensors").write_bytes(b"abc")
    assert files_named(tmp_path, "", ".safetensors", 2)["b.safetensors"] == 3


def test_arrays_that_a_small_file_would_make_large_are_refused(good_run: GoodRun, tmp_path: Path) -> None:
    """The logits of many rows and many classes; a few hundred kilobytes are stored."""
    run = copied(thin(StoredRun.read(good_run("two-layer"))))
    n = 30_000
    run.arrays = {path: run.arrays[path] for path in ("problem.safetensors", "initial.safetensors")}
    run.arrays["problem.safetensors"] = {
        "X": np.ones((n, 1)),
        "labels": np.zeros(n, dtype=np.int64),
        "l2": np.array(0.1),
        "optimum": np.zeros((1, n)),
    }
    run.arrays["initial.safetensors"] = {"W1": np.ones((1, 1)), "W2": np.ones((n, 1))}
    run.certificate["problem"] |= {"kind": "softmax", "n": 1, "m": n, "h": 1, "quadratic": False}
    run.seal()
    run.write(tmp_path / "run")
    assert "logits" in refused(tmp_path / "run")[0]


def test_memory_that_runs_out_is_no_verdict(good_run: GoodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*arguments: object) -> None:
        raise MemoryError("1 TiB")

    monkeypatch.setattr("surefoot_check.checker.read_problem", exhausted)
    report = check(good_run("inverse"))
    assert report.outcome is Outcome.UNDECIDED and "more memory" in str(report.lines[-1])


# -- files that the library reads --------------------------------------------------------------------------------------


def test_what_is_no_regular_file_is_not_read_by_the_library(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (read_tensors, read_json):
        with pytest.raises(sf.RunDirectoryError, match="regular"):
            read(tmp_path / "pipe")
        with pytest.raises(sf.RunDirectoryError, match="regular"):
            read(tmp_path)
        with pytest.raises(sf.RunDirectoryError, match="missing"):
            read(tmp_path / "absent")
    (tmp_path / "digits.json").write_text("9" * 5000)
    with pytest.raises(sf.RunDirectoryError, match="digits"):
        read_json(tmp_path / "digits.json")


NETWORKS = {
    "inverse": sf.nn.LearnedInverse,
    "svd": sf.nn.LearnedSVD,
    "step sizes": sf.nn.StepSizeNet,
    "deconvolution": sf.nn.LearnedDeconvolution,
}
MANY = 1 << 40
CLAIMS: dict[str, dict[str, np.ndarray]] = {
    "inverse": {"coefficients": np.zeros((0, 4)), "c0": np.array(1.0)},
    "svd": {
        "sizes": np.array([MANY, MANY, MANY, 1, 1, 0]),
        "tolerance": np.array(-1.0),
        "start_U": np.zeros((2, 2)),
        "start_V": np.zeros((2, 2)),
        "steps": np.zeros((1, 2)),
        "coefficients": np.ones((1, 2, 0, 0)),
    },
    "step sizes": {"range": np.array([0.0, 2.0])},
    "deconvolution": {
        "settings.shape": np.array([MANY, MANY, MANY, MANY]),
        "settings.wavelet": np.frombuffer(b"haar", dtype=np.uint8),
        "log_gradient": np.zeros(()),
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_saved_networks_take_no_memory_for_what_they_claim(name: str, tmp_path: Path) -> None:
    """They are safetensors, and sizes are compared with the arrays that are there before anything is made of these sizes."""
    load = NETWORKS[name].load
    with pytest.raises(sf.RunDirectoryError, match="missing"):
        load(tmp_path / "absent")
    for index, content in enumerate(
        (b"", b"\x80\x04K\x01.", header_of([10**9]), header_of([2**60]), (2**60).to_bytes(8, "little"), b"PK\3\4" * 99)
    ):
        (tmp_path / f"{index}").write_bytes(content)
        with pytest.raises(sf.RunDirectoryError, match=str(index)):
            load(tmp_path / f"{index}")
    sparse(tmp_path / "sparse", GIGABYTES, header_of([10**6]))
    with pytest.raises(sf.RunDirectoryError, match="sparse"):
        load(tmp_path / "sparse")
    assert {array.dtype.str for array in CLAIMS[name].values()} <= DTYPE_NAMES.keys()
    (tmp_path / "claims").write_bytes(safetensors(CLAIMS[name]))
    with pytest.raises(sf.RunDirectoryError, match="claims"):
        load(tmp_path / "claims")
    pickled = tmp_path / "pickled"
    torch.save({"W1": torch.ones(2)}, pickled)
    with pytest.raises(sf.RunDirectoryError, match="pickled"):
        load(pickled)


def _npy(shape: tuple[int, ...], dtype: str = "<f8", data: bytes = bytes(64)) -> bytes:
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": dtype, "fortran_order": False, "shape": shape})
    return made.getvalue() + data


def _npz(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def _gzip_bomb(path: Path, header: bytes) -> None:
    """The header, and three gigabytes of zeros: one member 192 times."""
    path.write_bytes(gzip.compress(header) + gzip.compress(bytes(1 << 24)) * (3 << 6))


def _idx(shape: tuple[int, ...]) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)


def _png(path: Path, side: int) -> None:
    """A white picture of this many pixels a side, compressed well."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    rows = zlib.compress((b"\0" + bytes(side // 8)) * side, 9)
    size = side.to_bytes(4, "big")
    head = chunk(b"IHDR", size + size + bytes([1, 0, 0, 0, 0]))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


MTX = "%%MatrixMarket matrix coordinate real general\n"
BOMBS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "npz header of 10^9 entries": ("b.npz", lambda path: _npz(path, {"X": _npy((10**9, 1))})),
    "npz header of 2^62 entries": ("c.npz", lambda path: _npz(path, {"X": _npy((2**62, 1))})),
    "npz header of 10^400 entries": ("d.npz", lambda path: _npz(path, {"X": _npy((10**400, 1))})),
    "npz of objects": ("e.npz", lambda path: _npz(path, {"X": _npy((10**9, 1), "|O")})),
    "npy header of 10^9 entries": ("a.npy", lambda path: path.write_bytes(_npy((10**9, 1)))),
    "npy header of 2^62 entries": ("b.npy", lambda path: path.write_bytes(_npy((2**62, 1)))),
    "npy of objects": ("c.npy", lambda path: path.write_bytes(_npy((10**9, 1), "|O"))),
    "npy of huge items": ("d.npy", lambda path: path.write_bytes(_npy((1, 1), "|V2000000000"))),
    "IDX bomb beyond its header": ("a.gz", lambda path: _gzip_bomb(path, _idx((2, 2, 2)))),
    "IDX bomb as its header says": ("b.gz", lambda path: _gzip_bomb(path, _idx((1 << 14, 1 << 10, 1 << 10)))),
    "IDX header of 2^96 entries": ("c-ubyte", lambda path: path.write_bytes(_idx((2**32 - 1,) * 3) + bytes(99))),
    "CSV number of 10^9 digits": ("a.csv", lambda path: sparse(path, GIGABYTES, b"1,2\n3,4" + b"4" * (1 << 26))),
    "CSV of one long line": ("b.csv", lambda path: path.write_bytes(b"1,2\n" + b"1," * (1 << 25) + b"1\n")),
    "MTX of 10^5 x 10^5": ("a.mtx", lambda path: path.write_text(MTX + "100000 100000 1\n1 1 1\n")),
    "MTX of 10^9 x 10^9": ("b.mtx", lambda path: path.write_text(MTX + "1000000000 1000000000 1\n1 1 1\n")),
    "MTX of 10^12 entries": ("c.mtx", lambda path: path.write_text(MTX + "2 2 1000000000000\n1 1 1\n")),
    "dense MTX of 10^10": (
        "d.mtx",
        lambda path: path.write_text("%%MatrixMarket matrix array real general\n100000 100000\n1\n"),
    ),
    "PNG of 121 million pixels": ("photos", lambda path: _png(path / "a.png", 11_000)),
    "PNG of 400 million pixels": ("scans", lambda path: _png(path / "a.png", 20_000)),
}


def test_data_files_take_memory_in_proportion(tmp_path: Path) -> None:
    for file, make in BOMBS.values():
        make(tmp_path / file)
    files = [tmp_path / file for file, _ in BOMBS.values()]
    texts = limited(LOAD, "surefoot as sf, scipy.io, PIL.Image", files)
    assert len(texts) == len(files)
    for text, name, file in zip(texts, BOMBS, files, strict=True):
        assert text.startswith("refused") and (str(file) in text), f"{name}: {text}"
        assert "Unable to allocate" not in text, f"{name}: {text}"  # a refusal, not a failure for lack of memory


def test_an_archive_that_expands_beyond_proportion_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("surefoot._data.sizes.ALWAYS", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1 << 18, 1)))
    with pytest.raises(sf.data.DataError, match="more than 100 times"):
        sf.data.load(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "b.npz", X=np.random.default_rng(0).standard_normal((1 << 18, 1)))
    assert len(sf.data.load(tmp_path / "b.npz").X) == 1 << 18
