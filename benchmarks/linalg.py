"""Inverse, pseudoinverse and SVD, forward and forward with backward: ours, the printed iteration, and the peers.

Times are processor seconds on one thread, the methods in turn in every round, per matrix; *ratio* is the peer's time over ours.
`linear_operator` is left out, with a line, where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from report import one_thread, table
from torch import Tensor

import surefoot as sf

# rows, columns, matrices in a batch: the sizes of the paper's table 1, with batches that fit a desk's memory
SIZES = ((10, 15, 100), (50, 75, 100), (100, 150, 100), (200, 300, 100), (500, 750, 10), (1000, 1500, 2))
SMALL = ((4, 100_000), (8, 100_000))
PRINTED = (4, 12)
"""Degree and layers of the printed iteration: the deepest of the paper's table with that degree."""

Function = Callable[[Tensor], Tensor]


def printed(A: Tensor) -> Tensor:
    """D-Minv as printed (equation (3)) with X_0 = Aᵀ/‖A‖_F² and differentiation through all steps."""
    terms, layers = PRINTED
    X = A.mT / A.square().sum((-2, -1), keepdim=True)
    identity = torch.eye(A.shape[-2], dtype=A.dtype)
    for _ in range(layers):
        E = identity - A @ X
        total = identity + E
        for _ in range(terms - 2):
            total = identity + E @ total
        X = X @ total
    return X


def cholesky(A: Tensor) -> Tensor:
    """Aᵀ(AAᵀ)⁻¹ without a check."""
    return torch.cholesky_solve(A, torch.linalg.cholesky(A @ A.mT)).mT


def qr(A: Tensor) -> Tensor:
    """QR⁻ᵀ with Aᵀ = QR."""
    Q, R = torch.linalg.qr(A.mT)
    return torch.linalg.solve_triangular(R.mT, Q, upper=False, left=False)


def linear_operator() -> Function | None:
    """The pseudoinverse of linear_operator, or ``None``."""
    try:
        from linear_operator.utils.pinverse import stable_pinverse  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    # for one matrix at a time
    return lambda A: torch.stack([stable_pinverse(matrix) for matrix in A])


def chebyshev(A: Tensor) -> Function:
    """Ours with the interval of the singular values of A, which it is given."""
    sigma = torch.linalg.svdvals(A.double())
    interval = (float(sigma.min()) * 0.999, float(sigma.max()) * 1.001)
    return lambda M: sf.linalg.pinv(M, method="chebyshev", interval=interval)


def measure(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each, all of them once in every round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for k in range(rounds + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            if k:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def forward(function: Function, A: Tensor) -> Callable[[], object]:
    """The values only."""

    def work() -> object:
        with torch.no_grad():
            return function(A)

    return work


def both(function: Function, A: Tensor, g: Tensor) -> Callable[[], object]:
    """The values and the gradient of ⟨g, X⟩."""
    A = A.clone().requires_grad_()
    return lambda: torch.autograd.grad((function(A) * g).sum(), A)


def compare(A: Tensor, functions: Mapping[str, Function], rounds: int, exact: Tensor) -> list[list[object]]:
    """Rows of the table for one batch; the first function is ours."""
    g = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1), dtype=A.dtype)
    values = measure({name: forward(f, A) for name, f in functions.items()}, rounds)
    gradients = measure({name: both(f, A, g) for name, f in functions.items()}, rounds)
    size = exact.norm(dim=(-2, -1))
    first = next(iter(functions))
    name = str(A.dtype).removeprefix("torch.")
    rows: list[list[object]] = []
    for label, f in functions.items():
        error = float(((f(A).double() - exact).norm(dim=(-2, -1)) / size).max())
        rows.append(
            [
                f"{A.shape[0]}x({A.shape[1]}x{A.shape[2]})",
                name,
                label,
                1e3 * values[label] / A.shape[0],
                values[label] / values[first],
                1e3 * gradients[label] / A.shape[0],
                gradients[label] / gradients[first],
                f"{error:.1e}",
            ]
        )
    return rows


COLUMNS = ("matrices", "dtype", "method", "forward ms", "ratio", "+ backward ms", "ratio", "error")


def pseudoinverses(dtype: torch.dtype, rounds: int, largest: int) -> None:
    """Full-rank wide matrices of the sizes of the paper's table 1."""
    g = torch.Generator().manual_seed(0)
    rows: list[list[object]] = []
    for m, n, batch in SIZES:
        if m > largest:
            continue
        A = (torch.randn(batch, m, n, generator=g, dtype=torch.float64) / n**0.5).to(dtype)
        peer = linear_operator()
        functions: dict[str, Function] = {
            "ours, auto": sf.linalg.pinv,
            "torch.linalg.pinv": torch.linalg.pinv,
            f"printed, L={PRINTED[0]} K={PRINTED[1]}": printed,
            "ours, chebyshev": chebyshev(A),
            "Cholesky, no check": cholesky,
            "QR": qr,
        }
        if peer is not None:
            functions["linear_operator"] = peer
        rows += compare(A, functions, rounds if m <= 200 else max(1, rounds // 2), torch.linalg.pinv(A.double()))
    table("Pseudoinverse, full rank; time of one matrix", COLUMNS, rows)


def inverses(dtype: torch.dtype, rounds: int) -> None:
    """Many small square matrices."""
    g = torch.Generator().manual_seed(0)
    rows: list[list[object]] = []
    for m, batch in SMALL:
        A = torch.randn(batch, m, m, generator=g, dtype=torch.float64)
        A = (A / m**0.5 + 2.0 * torch.eye(m, dtype=torch.float64)).to(dtype)
        functions: dict[str, Function] = {
            "sf.linalg.inv": sf.linalg.inv,
            "sf.linalg.pinv": sf.linalg.pinv,
            "torch.linalg.inv": torch.linalg.inv,
            "torch.linalg.pinv": torch.linalg.pinv,
        }
        rows += compare(A, functions, rounds, torch.linalg.inv(A.double()))
    table("Inverse of many small matrices", COLUMNS, rows)


def decompositions(dtype: torch.dtype, rounds: int) -> None:
    """100 x (50x100): U, S and Vh, with a loss of all three that has a gradient."""
    g = torch.Generator().manual_seed(0)
    A = torch.randn(100, 50, 100, generator=g, dtype=torch.float64).to(dtype)
    low = torch.randn(100, 50, 100, generator=g, dtype=torch.float64).to(dtype)

    def rank_ten(svd: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> Function:
        def value(M: Tensor) -> Tensor:
            U, S, Vh = svd(M, full_matrices=False)
            return (U[..., :10] * S[..., None, :10]) @ Vh[..., :10, :]

        return value

    methods = {"ours": sf.linalg.svd, "torch": torch.linalg.svd}
    values = measure(
        {name: forward(lambda M, svd=svd: svd(M, full_matrices=False), A) for name, svd in methods.items()}, rounds
    )
    gradients = measure({name: both(rank_ten(svd), A, low) for name, svd in methods.items()}, rounds)
    exact = torch.linalg.svdvals(A.double())
    rows: list[list[object]] = []
    for name, svd in methods.items():
        U, S, Vh = svd(A, full_matrices=False)
        identity = torch.eye(50, dtype=dtype)
        residual = ((U * S[:, None, :]) @ Vh - A).norm(dim=(-2, -1)) / A.norm(dim=(-2, -1))
        turned = torch.maximum((U.mT @ U - identity).norm(dim=(-2, -1)), (Vh @ Vh.mT - identity).norm(dim=(-2, -1)))
        sigma = (S.double() - exact).abs().amax(-1) / exact[:, 0]
        rows.append(
            [
                str(dtype).removeprefix("torch."),
                name,
                1e3 * values[name],
                values[name] / values["ours"],
                1e3 * gradients[name],
                gradients[name] / gradients["ours"],
                *(f"{float(x.max()):.1e}" for x in (residual, turned, sigma)),
            ]
        )
    columns = ("dtype", "svd", "forward ms", "ratio", "+ backward ms", "ratio", "residual", "orthogonality", "sigma")
    table("SVD, 100 x (50x100); the gradient is that of ⟨G, rank-10 part⟩", columns, rows)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=1000, help="most rows of a matrix")
    parser.add_argument("--dtype", choices=("float32", "float64"), help="only this one")
    arguments = parser.parse_args()
    one_thread()
    try:
        print(f"linear_operator {importlib.metadata.version('linear_operator')}")
    except importlib.metadata.PackageNotFoundError:
        print("linear_operator is not installed: left out")
    for dtype in (torch.float32, torch.float64):
        if arguments.dtype not in (None, str(dtype).removeprefix("torch.")):
            continue
        pseudoinverses(dtype, arguments.rounds, arguments.largest)
        inverses(dtype, arguments.rounds)
        decompositions(dtype, arguments.rounds)


if __name__ == "__main__":
    main()
