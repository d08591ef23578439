"""Data reduced block by block: the same statistics from any source, clear errors, bounded memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import surefoot as sf
from surefoot._core import statistics as statistics_module

F64 = torch.float64
LIMIT = 300 << 20
"""Anonymous memory that reducing a file of any length may take on top of the imports, in bytes."""


def data(rows: int, n: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, n, generator=g, dtype=F64), torch.randn(rows, m, generator=g, dtype=F64)


def blocks(X: Tensor, Y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(X), size):
        yield X[start : start + size], Y[start : start + size]


def saved(folder: Path, name: str, array: np.ndarray) -> np.ndarray:
    np.save(folder / f"{name}.npy", array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


def assert_same(a: sf.SquaredLoss, b: sf.SquaredLoss, tolerance: float = 1e-12) -> None:
    assert a.shape == b.shape
    assert (a.basis is None) == (b.basis is None)
    assert a.smoothness == pytest.approx(b.smoothness, rel=tolerance)
    assert a.strong_convexity == pytest.approx(b.strong_convexity, rel=tolerance)
    assert a.optimal_value == pytest.approx(b.optimal_value, rel=tolerance, abs=1e-25)
    torch.testing.assert_close(a.optimum, b.optimum, rtol=tolerance, atol=tolerance)
    W = torch.linspace(-1, 1, a.shape[0] * a.shape[1], dtype=F64).reshape(a.shape)
    assert a.value(W) == pytest.approx(b.value(W), rel=tolerance)
    torch.testing.assert_close(a.gradient(W), b.gradient(W), rtol=tolerance, atol=tolerance * a.smoothness)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "BLOCK_BYTES", 8 * 9 * 7)  # 7 rows of 9 columns


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4"])
@pytest.mark.parametrize("deficient", [False, True])
def test_arrays_files_and_blocks_give_the_same_loss(tmp_path: Path, dtype: str, deficient: bool) -> None:
    X, Y = data(100, 6, 3)
    if deficient:
        X[:, 4:] = 0.0
        X[:, 5] = X[:, 0]
    x, y = X.numpy().astype(dtype), Y.numpy().astype(dtype)
    X, Y = torch.from_numpy(x.astype("<f8")), torch.from_numpy(y.astype("<f8"))
    expected = sf.SquaredLoss.from_statistics(statistics_module.reduce_blocks([(X, Y)]))
    for loss in (
        sf.SquaredLoss(X, Y),
        sf.SquaredLoss(x, y),
        sf.SquaredLoss(saved(tmp_path, "X", x), saved(tmp_path, "Y", y)),
        sf.SquaredLoss(saved(tmp_path, "X", x), Y),
        sf.SquaredLoss(X, saved(tmp_path, "Y", y)),
        sf.SquaredLoss(saved(tmp_path, "F", np.asfortranarray(x)), saved(tmp_path, "Y", y)),
        *(sf.SquaredLoss.from_blocks(blocks(X, Y, size)) for size in (1, 5, 13, 99, 100, 1000)),
    ):
        assert_same(loss, expected)
        assert loss.statistics.rows == 100


@pytest.mark.usefixtures("small_blocks")
def test_a_single_target_column_from_a_file(tmp_path: Path) -> None:
    X, Y = data(100, 6, 1)
    loss = sf.SquaredLoss(saved(tmp_path, "X", X.numpy()), saved(tmp_path, "y", Y[:, 0].numpy()))
    assert_same(loss, sf.SquaredLoss(X, Y))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_few_rows_in_several_blocks(size: int) -> None:
    X, Y = data(5, 8, 2)
    assert_same(sf.SquaredLoss.from_blocks(blocks(X, Y, size)), sf.SquaredLoss(X, Y), 1e-11)


def test_blocks_are_read_once_and_one_at_a_time() -> None:
    X, Y = data(60, 4, 2)
    given: list[int] = []

    def once() -> Iterator[tuple[Tensor, Tensor]]:
        for number, block in enumerate(blocks(X, Y, 10)):
            given.append(number)
            yield block

    sf.SquaredLoss.from_blocks(once())
    assert given == [0, 1, 2, 3, 4, 5]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", ["tensor", "file", "blocks"])
@pytest.mark.parametrize(("which", "bad"), [("X", float("nan")), ("X", float("inf")), ("Y", float("-inf"))])
def test_a_bad_entry_in_a_late_block_is_named_by_its_row(tmp_path: Path, source: str, which: str, bad: float) -> None:
    X, Y = data(100, 6, 3)
    (X if which == "X" else Y)[73, 2] = bad
    with pytest.raises(ValueError, match=rf"{which} has {bad} at index \(73, 2\)"):
        if source == "tensor":
            sf.SquaredLoss(X, Y)
        elif source == "file":
            sf.SquaredLoss(saved(tmp_path, "X", X.numpy()), saved(tmp_path, "Y", Y.numpy()))
        else:
            sf.SquaredLoss.from_blocks(blocks(X, Y, 9))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16])
def test_a_file_of_any_real_dtype_is_converted_block_by_block(tmp_path: Path, dtype: type) -> None:
    X, Y = data(40, 3, 1)
    whole = (10.0 * X.abs()).numpy().astype(dtype)
    assert_same(sf.SquaredLoss(saved(tmp_path, "X", whole), Y), sf.SquaredLoss(whole.astype(np.float64), Y))


@pytest.mark.parametrize("dtype", [np.complex128, np.bool_, "U8"])
def test_a_file_of_anything_but_real_numbers_is_refused(tmp_path: Path, dtype: type) -> None:
    X, Y = data(20, 3, 1)
    with pytest.raises(TypeError, match=r"X is a memory map of dtype .*; it must hold real numbers"):
        sf.SquaredLoss(saved(tmp_path, "X", X.numpy().astype(dtype)), Y)
    with pytest.raises(TypeError, match=r"Y is a memory map of dtype .*; it must hold real numbers"):
        sf.SquaredLoss(X, saved(tmp_path, "Y", Y.numpy().astype(dtype)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "X is empty"),
        ([data(0, 3, 1)], "X is empty"),
        ([data(5, 3, 1), data(5, 4, 1)], r"a block has 4 \+ 1 columns; the first had 3 \+ 1"),
        ([data(5, 3, 1), data(5, 3, 2)], r"a block has 3 \+ 2 columns; the first had 3 \+ 1"),
        ([data(5, 3, 2), data(5, 4, 1)], r"a block has 4 \+ 1 columns; the first had 3 \+ 2"),
        ([(data(5, 3, 1)[0], data(4, 3, 1)[1])], "same N"),
        ([(torch.zeros(5, 3, dtype=F64), data(5, 3, 1)[1])], "X is zero"),
    ],
)
def test_bad_blocks(parts: list[tuple[Tensor, Tensor]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sf.SquaredLoss.from_blocks(parts)


def test_empty_blocks_between_others_change_nothing() -> None:
    X, Y = data(40, 3, 2)
    parts = [data(0, 3, 2), (X[:15], Y[:15]), data(0, 3, 2), (X[15:], Y[15:]), data(0, 3, 2)]
    assert_same(sf.SquaredLoss.from_blocks(parts), sf.SquaredLoss(X, Y))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("condition", [1e4, 1e8, 1e11])
def test_ill_conditioned_data_keeps_its_small_singular_values(condition: float) -> None:
    """Normal equations would lose them all above a condition of 1e8; the triangle keeps them to eps · condition."""
    n = 5
    U, V = torch.linalg.qr(data(200, n, 1)[0])[0], torch.linalg.qr(data(n, n, 1, seed=1)[0])[0]
    singular = torch.logspace(0, -np.log10(condition), n, dtype=F64)
    X, Y = U @ torch.diag(singular) @ V, data(200, n, 2, seed=2)[1]
    with mpmath.workdps(60):
        x = mpmath.matrix(X.tolist())
        least = float(mpmath.eigsy(x.T * x, eigvals_only=True)[0])
        W = mpmath.inverse(x.T * x) * (x.T * mpmath.matrix(Y.tolist()))
        residual = x * W - mpmath.matrix(Y.tolist())
        best = float(mpmath.fsum(v * v for v in residual) / 2)
    loss = sf.SquaredLoss(X, Y)
    assert loss.basis is None
    assert loss.strong_convexity == pytest.approx(least, rel=1e-14 * condition)
    # the column space itself moves by eps · condition under rounding of X
    assert loss.optimal_value == pytest.approx(best, rel=max(1e-13, 1e-16 * condition))
    assert loss.gap(torch.tensor(W.tolist(), dtype=F64).reshape(n, 2)) < loss.gap_resolution


def test_dependence_beyond_rounding_is_a_deficient_rank() -> None:
    X, Y = data(50, 4, 2)
    X[:, 3] = X[:, 0] + 1e-15 * X[:, 1]
    loss = sf.SquaredLoss(X, Y)
    assert loss.basis is not None
    assert loss.basis.shape == (4, 3)


# -- memory ------------------------------------------------------------------------------------------------------------

MEASURE = """
import threading, time
import numpy as np, torch
import surefoot as sf
torch.set_num_threads(1)
torch.linalg.qr(torch.eye(3, dtype=torch.float64))
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))
rows, path = {rows}, {path!r}
X = np.lib.format.open_memmap(path + "/X.npy", mode="w+", dtype=np.float32, shape=(rows, 10))
Y = np.lib.format.open_memmap(path + "/Y.npy", mode="w+", dtype=np.float32, shape=(rows,))
part = np.random.default_rng(0).standard_normal((1 << 16, 11), dtype=np.float32)
for start in range(0, rows, len(part)):
    X[start : start + len(part)], Y[start : start + len(part)] = part[: rows - start, :10], part[: rows - start, 10]
del X, Y, part
x, y = np.load(path + "/X.npy", mmap_mode="r"), np.load(path + "/Y.npy", mmap_mode="r")
before = peak = anonymous()
done = threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
start = time.perf_counter()
loss = sf.SquaredLoss(x, y)
seconds = time.perf_counter() - start
done.set()
watcher.join()
print(loss.statistics.rows, peak - before, seconds, loss.smoothness, loss.optimal_value)
"""


def measured(folder: Path, rows: int) -> tuple[int, int, float, float, float]:
    """Rows, peak anonymous memory over the imports, seconds, smoothness and optimal value for standard normals."""
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc/self/status to read RssAnon from")
    script = textwrap.dedent(MEASURE).format(rows=rows, path=str(folder))
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return int(out[0]), int(out[1]), float(out[2]), float(out[3]), float(out[4])


def check_memory(folder: Path, rows: int) -> None:
    count, peak, seconds, smoothness, best = measured(folder, rows)
    print(f"{rows} rows: {seconds:.1f} s, {peak / 2**20:.0f} MiB of anonymous memory")
    assert count == rows
    assert smoothness == pytest.approx(rows, rel=0.02)
    assert best == pytest.approx(rows / 2, rel=0.02)
    assert peak < LIMIT


@pytest.mark.slow
def test_a_file_of_four_million_rows_is_never_loaded_whole(tmp_path: Path) -> None:
    check_memory(tmp_path, 4_000_000)


@pytest.mark.slow
def test_a_file_of_ten_million_rows_is_never_loaded_whole(tmp_path: Path) -> None:
    check_memory(tmp_path, 10_000_000)
