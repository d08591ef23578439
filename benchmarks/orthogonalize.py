"""The polar factor by products beside those of optimisers and the exact ones, and orthonormal weights beside torch's.

Times are processor milliseconds on one thread, the methods in turn in every round. The peers are written here from their
published formulas: the Newton-Schulz iteration of Muon (Jordan et al., 2024) and the Polar Express (arXiv 2505.16932), which
are not packages. Both scale by ‖A‖_F. All are in the precision of the matrix; on a processor without products of half precision
ours takes float32 for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from linalg import measure
from report import Report, Shown, parser
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import surefoot as sf

Function = Callable[[Tensor], Tensor]
MUON = ((3.4445, -4.7750, 2.0315),)
"""Its one polynomial, coefficients of x, x³ and x⁵."""
EXPRESS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
)
"""As published, for singular values from 1e-3 on; the last is repeated."""
SAFETY = 1.01
FACTOR = ((512, 512), (256, 1024))
SMOKE_FACTOR = ((12, 12), (8, 24))


@dataclass(frozen=True)
class Layer:
    """Shape of a weight, and which of torch's maps to orthonormal matrices."""

    shape: tuple[int, ...]
    maps: tuple[str, ...] = ("matrix_exp", "cayley", "householder")


def by_polynomials(A: Tensor, rows: Sequence[tuple[float, float, float]], norm: float = 1.0) -> Tensor:
    """X ← aX + (bG + cG²)X, G = XXᵀ, from A over its Frobenius norm."""
    tall = A.shape[-2] > A.shape[-1]
    X = A.mT if tall else A
    X = X / (X.norm(dim=(-2, -1), keepdim=True) * norm + 1e-7)
    for a, b, c in rows:
        G = X @ X.mT
        X = a * X + (b * G + c * G @ G) @ X
    return X.mT if tall else X


def muon(A: Tensor, steps: int = 5) -> Tensor:
    """The Newton-Schulz iteration of Muon, which aims at values between .7 and 1.2."""
    return by_polynomials(A, MUON * steps)


def express(A: Tensor, steps: int) -> Tensor:
    """The Polar Express, every polynomial but the last of its list with the safety factor."""
    safe = [(a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in EXPRESS[:-1]]
    return by_polynomials(A, (safe + [EXPRESS[-1]] * steps)[:steps], SAFETY)


def svd_factor(A: Tensor) -> Tensor:
    """UVᵀ of torch's singular value decomposition, which has no half precision."""
    U, _, Vh = torch.linalg.svd(A.to(torch.promote_types(A.dtype, torch.float32)), full_matrices=False)
    return (U @ Vh).to(A.dtype)


def orthogonalizers() -> dict[str, Function]:
    """Every method, by name."""
    ours: dict[str, Function] = {
        f"sf.linalg.orthogonalize, {steps} steps": lambda A, steps=steps: sf.linalg.orthogonalize(A, steps=steps)
        for steps in (5, 6, 7, 8)
    }
    peers: dict[str, Function] = {"Muon's Newton-Schulz, 5 steps": muon}
    peers |= {f"Polar Express, {steps} steps": lambda A, steps=steps: express(A, steps) for steps in (5, 8, 10)}
    exact: dict[str, Function] = {"sf.linalg.polar": lambda A: sf.linalg.polar(A).U, "torch SVD": svd_factor}
    return ours | peers | exact


def error(U: Tensor) -> float:
    """max |σ − 1|."""
    return float((torch.linalg.svdvals(U.double()) - 1.0).abs().max())


def factors(report: Report, shapes: Sequence[tuple[int, int]], dtype: torch.dtype, rounds: int) -> None:
    """Gaussian matrices."""
    rows: list[list[object]] = []
    for m, n in shapes:
        A = torch.randn(m, n, generator=torch.Generator().manual_seed(0)).to(dtype)
        functions = orthogonalizers()
        true = svd_factor(A.double())
        times = measure({name: lambda f=f, A=A: f(A) for name, f in functions.items()}, rounds)
        for name, function in functions.items():
            U = function(A)
            off = float((U.double() - true).norm() / min(m, n) ** 0.5)
            rows.append([f"{m}x{n}", name, 1e3 * times[name], Shown(error(U), "{:.1e}"), Shown(off, "{:.1e}")])
    columns = ("matrix", "method", "ms", "max |σ − 1|", "‖U − exact‖_F/√k")
    report.table(f"Orthogonalising one Gaussian matrix, {str(dtype).removeprefix('torch.')}", columns, rows)


def parametrized(name: str, shape: tuple[int, ...]) -> nn.Module:
    """A linear layer (out, in) with an orthonormal weight."""
    layer = nn.Linear(shape[1], shape[0], bias=False)
    if name.startswith("torch"):
        return parametrizations.orthogonal(layer, orthogonal_map=name.rsplit(" ", 1)[-1])
    parametrize.register_parametrization(
        layer, "weight", sf.nn.Orthogonal("products" if "products" in name else "exact")
    )
    return layer


def layers(report: Report, sizes: Sequence[Layer], rounds: int) -> None:
    """The weight and the gradient of a loss in it."""
    rows: list[list[object]] = []
    for size in sizes:
        names = ["sf.nn.Orthogonal, exact", "sf.nn.Orthogonal, products"]
        names += [f"torch orthogonal, {kind}" for kind in size.maps]
        modules = {name: parametrized(name, size.shape) for name in names}
        g = torch.randn(size.shape, generator=torch.Generator().manual_seed(0))

        def work(module: nn.Module, g: Tensor = g) -> None:
            weight = module.weight
            assert isinstance(weight, Tensor)
            torch.autograd.grad((weight * g).sum(), list(module.parameters()))

        times = measure({name: lambda module=module: work(module) for name, module in modules.items()}, rounds)
        for name, module in modules.items():
            weight = module.weight
            assert isinstance(weight, Tensor)
            ratio = times[name] / times[names[0]]
            shape = "x".join(map(str, size.shape))
            rows.append(
                [shape, name, 1e3 * times[name], Shown(ratio, "{:.2f}"), Shown(error(weight.detach()), "{:.1e}")]
            )
    columns = ("weight", "parametrization", "+ backward ms", "ratio", "max |σ − 1|")
    report.table("Orthonormal weights of a linear layer, float32", columns, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    report = Report(options, arguments)
    rounds = 1 if report.smoke else report.options.rounds
    for dtype in (torch.bfloat16, torch.float32):
        factors(report, SMOKE_FACTOR if report.smoke else FACTOR, dtype, rounds)
    full = [Layer((64, 64)), Layer((256, 256)), Layer((512, 128))]
    layers(report, [Layer((6, 4))] if report.smoke else full, rounds)


if __name__ == "__main__":
    main()
