"""Inverse, pseudoinverse and SVD, forward and forward with backward: ours, the printed iteration, and the peers.

Times are processor seconds on one thread, the methods in turn in every round, per matrix; *ratio* is the peer's time over ours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from report import Report, Shown, parser
from torch import Tensor

import surefoot as sf

PEERS = ("linear_operator",)


@dataclass(frozen=True)
class Sizes:
    """Rows, columns and matrices in a batch: wide, many small square ones (their rows and number), and of the SVD."""

    wide: tuple[tuple[int, int, int], ...]
    small: tuple[tuple[int, int], ...]
    decomposed: tuple[int, int, int]


# the sizes of the paper's table 1, with batches that fit a desk's memory
WIDE = ((10, 15, 100), (50, 75, 100), (100, 150, 100), (200, 300, 100), (500, 750, 10), (1000, 1500, 2))
FULL = Sizes(WIDE, ((4, 100_000), (8, 100_000)), (50, 100, 100))
SMOKE = Sizes(((10, 15, 2),), ((4, 3),), (12, 20, 2))
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


def linear_operator() -> Function:
    """The pseudoinverse of linear_operator, which is for one matrix at a time."""
    from linear_operator.utils.pinverse import stable_pinverse  # pyright: ignore[reportMissingImports]

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
    return {name: statistics.median(spent) for name, spent in times.items()}


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
                Shown(error, "{:.1e}"),
            ]
        )
    return rows


COLUMNS = ("matrices", "dtype", "method", "forward ms", "ratio", "+ backward ms", "ratio", "error")


def pseudoinverses(report: Report, sizes: Sizes, dtype: torch.dtype) -> None:
    """Full-rank wide matrices of the sizes of the paper's table 1."""
    g = torch.Generator().manual_seed(0)
    rounds: int = report.options.rounds
    rows: list[list[object]] = []
    for m, n, batch in sizes.wide:
        if m > report.options.largest:
            continue
        A = (torch.randn(batch, m, n, generator=g, dtype=torch.float64) / n**0.5).to(dtype)
        functions: dict[str, Function] = {
            "ours, auto": sf.linalg.pinv,
            "torch.linalg.pinv": torch.linalg.pinv,
            f"printed, L={PRINTED[0]} K={PRINTED[1]}": printed,
            "ours, chebyshev": chebyshev(A),
            "Cholesky, no check": cholesky,
            "QR": qr,
        }
        if report.has("linear_operator"):
            functions["linear_operator"] = linear_operator()
        rows += compare(A, functions, rounds if m <= 200 else max(1, rounds // 2), torch.linalg.pinv(A.double()))
    report.table("Pseudoinverse, full rank; time of one matrix", COLUMNS, rows)


def inverses(report: Report, sizes: Sizes, dtype: torch.dtype) -> None:
    """Many small square matrices."""
    g = torch.Generator().manual_seed(0)
    rows: list[list[object]] = []
    for m, batch in sizes.small:
        A = torch.randn(batch, m, m, generator=g, dtype=torch.float64)
        A = (A / m**0.5 + 2.0 * torch.eye(m, dtype=torch.float64)).to(dtype)
        functions: dict[str, Function] = {
            "sf.linalg.inv": sf.linalg.inv,
            "sf.linalg.pinv": sf.linalg.pinv,
            "torch.linalg.inv": torch.linalg.inv,
            "torch.linalg.pinv": torch.linalg.pinv,
        }
        rows += compare(A, functions, report.options.rounds, torch.linalg.inv(A.double()))
    report.table("Inverse of many small matrices", COLUMNS, rows)


def decompositions(report: Report, sizes: Sizes, dtype: torch.dtype) -> None:
    """U, S and Vh, with a loss of all three that has a gradient."""
    rounds: int = report.options.rounds
    m, n, batch = sizes.decomposed
    g = torch.Generator().manual_seed(0)
    A = torch.randn(batch, m, n, generator=g, dtype=torch.float64).to(dtype)
    low = torch.randn(batch, m, n, generator=g, dtype=torch.float64).to(dtype)

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
        identity = torch.eye(m, dtype=dtype)
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
                *(Shown(float(x.max()), "{:.1e}") for x in (residual, turned, sigma)),
            ]
        )
    columns = ("dtype", "svd", "forward ms", "ratio", "+ backward ms", "ratio", "residual", "orthogonality", "sigma")
    title = f"SVD, {batch} x ({m}x{n}); the gradient is that of ⟨G, rank-10 part⟩"
    report.table(title, columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print every table."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--largest", type=int, default=1000, help="most rows of a matrix")
    options.add_argument("--dtype", choices=("float32", "float64"), help="only this one")
    report = Report(options, arguments, PEERS)
    sizes = SMOKE if report.smoke else FULL
    for dtype in (torch.float32, torch.float64):
        if report.options.dtype in (None, str(dtype).removeprefix("torch.")):
            pseudoinverses(report, sizes, dtype)
            inverses(report, sizes, dtype)
            decompositions(report, sizes, dtype)


if __name__ == "__main__":
    main()
