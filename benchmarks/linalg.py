"""``sf.linalg`` beside ``torch.linalg``, and inverse, pseudoinverse and SVD beside the printed iteration and other peers.

Times are processor seconds on one thread, the methods in turn in every round, per matrix; *ratio* is the peer's time over ours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from report import Report, Shown, parser
from torch import Tensor

import surefoot as sf

PEERS = ("linear_operator",)


@dataclass(frozen=True)
class Sizes:
    """Rows, columns and matrices in a batch: of all functions, wide, many small square (rows and number), and of the SVD."""

    all: tuple[tuple[int, int, int], ...]
    wide: tuple[tuple[int, int, int], ...]
    small: tuple[tuple[int, int], ...]
    decomposed: tuple[int, int, int]


# the sizes of the paper's table 1, with batches that fit a desk's memory
WIDE = ((10, 15, 100), (50, 75, 100), (100, 150, 100), (200, 300, 100), (500, 750, 10), (1000, 1500, 2))
ALL = (
    *((rows, rows, 1) for rows in (4, 16, 50, 100, 200, 500)),
    *((rows, 3 * rows // 2, 1) for rows in (4, 16, 50, 100, 200, 500)),
    *((4, 4, 10_000), (8, 8, 10_000), (4, 8, 10_000)),
)
FULL = Sizes(ALL, WIDE, ((4, 100_000), (8, 100_000)), (50, 100, 100))
SMOKE = Sizes(((4, 4, 1), (3, 5, 2)), ((10, 15, 2),), ((4, 3),), (12, 20, 2))
PRINTED = (4, 12)
"""Degree and layers of the printed iteration: the deepest of the paper's table with that degree."""

Function = Callable[[Tensor], Any]


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
    """Median processor seconds of each, all of them once in every round, after one round that is not counted.

    The order is turned from round to round, for what comes after a large work finds its memory cold.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for k in range(rounds + 1):
        for name, work in list(works.items())[:: 1 if k % 2 else -1]:
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


@dataclass(frozen=True)
class Pair:
    """A function of ours and torch's, a loss of their values (and of a matrix G) that has a gradient, and our ``*_ex`` form."""

    ours: Callable[[Tensor], object]
    torchs: Callable[[Tensor], object]
    loss: Callable[[Any, Tensor], Tensor]
    ex: Callable[[Tensor], object] | None = None
    square: bool = False


def low_rank(factors: Any, G: Tensor) -> Tensor:
    """⟨G, the half of U·diag(S)·Vh with the largest values⟩."""
    U, S, Vh = factors
    k = (S.shape[-1] + 1) // 2
    return (((U[..., :k] * S[..., None, :k]) @ Vh[..., :k, :]) * G).sum()


def low_rank_hermitian(factors: Any, G: Tensor) -> Tensor:
    """The same of Q·diag(l)·Qᴴ, with the least eigenvalues."""
    values, Q = factors
    return low_rank((Q, values, Q.mH), G)


def against(X: Any, G: Tensor) -> Tensor:
    """⟨G, X⟩, of a named tuple its first."""
    X = X if isinstance(X, Tensor) else X[0]
    return (X * G[..., : X.shape[-2], : X.shape[-1]]).sum()


def torch_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """UH from torch's singular value decomposition."""
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    return U @ Vh, (Vh.mH * S.unsqueeze(-2)) @ Vh


def thin(svd: Callable[..., Any]) -> Callable[[Tensor], Any]:
    """``svd`` without null vectors."""
    return lambda A: svd(A, full_matrices=False)


def on_vector(solve: Callable[..., Any]) -> Callable[[Tensor], Any]:
    """``solve`` with the first column of A for a right side."""
    return lambda A: solve(A, A.detach()[..., :1])


def pairs() -> dict[str, Pair]:
    """Ours and torch's."""
    ours, torchs = sf.linalg, torch.linalg
    return {
        "inv": Pair(ours.inv, torchs.inv, against, ours.inv_ex, square=True),
        "solve": Pair(on_vector(ours.solve), on_vector(torchs.solve), against, on_vector(ours.solve_ex), square=True),
        "pinv": Pair(ours.pinv, torchs.pinv, against, ours.pinv_ex),
        "svd": Pair(thin(ours.svd), thin(torchs.svd), low_rank, thin(ours.svd_ex)),
        "svdvals": Pair(ours.svdvals, torchs.svdvals, lambda S, G: (S * G[..., : S.shape[-1], 0]).sum()),
        "eigh": Pair(ours.eigh, torchs.eigh, low_rank_hermitian, ours.eigh_ex, square=True),
        "polar": Pair(ours.polar, torch_polar, against, ours.polar_ex),
    }


def lossy(function: Function, loss: Callable[[Any, Tensor], Tensor], G: Tensor) -> Function:
    """The loss of the values."""
    return lambda A: loss(function(A), G)


def repeated(work: Callable[[], object], times: int) -> Callable[[], object]:
    """``work`` so often that its time is far above the resolution of the clock."""

    def several() -> None:
        for _ in range(times):
            work()

    return several


def beside_torch(report: Report, sizes: Sizes, dtype: torch.dtype) -> None:
    """Every function of ours that has a counterpart, and its ``*_ex`` form."""
    g = torch.Generator().manual_seed(0)
    rounds: int = report.options.rounds
    rows: list[list[object]] = []
    for m, n, batch in sizes.all:
        if m > report.options.largest:
            continue
        A = torch.randn(*([batch] if batch > 1 else []), m, n, generator=g, dtype=torch.float64).to(dtype)
        G = torch.randn(*A.shape[:-2], max(m, n), max(m, n), generator=g, dtype=torch.float64).to(dtype)
        times = 1 if report.smoke else max(1, 20_000_000 // (A.numel() * min(m, n) + 200_000))
        for name, pair in pairs().items():
            if pair.square and m != n:
                continue
            loss_G = G[..., :n, :m] if name == "pinv" else G[..., :m, :n]
            plain = {"ours": pair.ours, "torch": pair.torchs, "ex": pair.ex or pair.ours}
            values = measure({key: repeated(forward(f, A), times) for key, f in plain.items()}, rounds)
            one = torch.ones((), dtype=dtype)
            losses = {key: lossy(plain[key], pair.loss, loss_G) for key in ("ours", "torch")}
            gradients = measure({key: repeated(both(f, A, one), times) for key, f in losses.items()}, rounds)
            rows.append(
                [
                    f"{batch}x({m}x{n})",
                    str(dtype).removeprefix("torch."),
                    name,
                    1e3 * values["ours"] / times,
                    values["torch"] / values["ours"],
                    1e3 * gradients["ours"] / times,
                    gradients["torch"] / gradients["ours"],
                    values["ex"] / values["ours"] if pair.ex else "",
                ]
            )
    report.table(
        "sf.linalg beside torch.linalg; time of a call, ratio of torch's time to ours, and of the *_ex form to the plain one",
        ("matrices", "dtype", "function", "forward ms", "ratio", "+ backward ms", "ratio", "*_ex"),
        rows,
    )


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
    options.add_argument("--torch-only", action="store_true", help="only the table of all functions beside torch's")
    report = Report(options, arguments, PEERS)
    sizes = SMOKE if report.smoke else FULL
    for dtype in (torch.float32, torch.float64):
        if report.options.dtype in (None, str(dtype).removeprefix("torch.")):
            beside_torch(report, sizes, dtype)
            if report.options.torch_only:
                continue
            pseudoinverses(report, sizes, dtype)
            inverses(report, sizes, dtype)
            decompositions(report, sizes, dtype)


if __name__ == "__main__":
    main()
