"""Problem: losses whose gradients are lost with torch.linalg, and values, most of them reported to PyTorch by its users.

Method: the same by torch.linalg and by the operator of sf.linalg that is meant for it.
Metric: a gradient is right if it agrees with central differences of the loss to 1e-6 of its largest entry.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import surefoot as sf

torch.manual_seed(0)
WEIGHT = torch.randn(15, 15, dtype=torch.float64)
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One loss of A, by torch and by the operator for it."""

    name: str
    issue: str
    """of pytorch/pytorch"""
    A: Tensor
    torch: Loss
    ours: Loss
    operator: str
    symmetric: bool = False
    """whether the loss is one of symmetric matrices: then of (A + Aᵀ)/2, as torch.linalg.eigh differentiates"""

    def of(self, loss: Loss) -> Loss:
        """The loss as a function of any A."""
        return (lambda A: loss((A + A.mT) / 2)) if self.symmetric else loss


@dataclass(frozen=True)
class Value:
    """One value, by torch and by the operator for it."""

    name: str
    issue: str
    torch: Callable[[], Tensor]
    ours: Callable[[], Tensor]
    truth: Tensor
    operator: str


def weighted(X: Tensor) -> Tensor:
    """⟨X, W⟩ for a fixed W of the shape of X."""
    return (X * WEIGHT[: X.shape[-2], : X.shape[-1]].to(X.dtype)).sum()


def of_values(A: Tensor, f: Loss, *, hermitian: bool) -> Tensor:
    """f of the eigenvalues or of the singular values, composed with torch.linalg."""
    if hermitian:
        values, Q = torch.linalg.eigh(A)
        return (Q * f(values)) @ Q.mT
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    return (U * f(S)) @ Vh


def projector(Q: Tensor, first: int, last: int) -> Tensor:
    """QQᵀ of some of the columns."""
    return Q[:, first:last] @ Q[:, first:last].mT


def leading(U: Tensor, S: Tensor, Vh: Tensor) -> Tensor:
    """The product of the first singular vectors."""
    return U[:, :1] @ Vh[:1]


def unshifted(L: Tensor, shift: Tensor) -> Tensor:
    """A of A + shift·I = LLᵀ."""
    return L @ L.mT - shift * torch.eye(len(L))


def diagonal(*values: float) -> Tensor:
    """The matrix with these values, so that ties are exact on every machine."""
    return torch.diag(torch.tensor(values, dtype=torch.float64))


RANK_THREE = torch.zeros(15, 15, dtype=torch.float64)
for k in range(3):
    RANK_THREE[k, 5 * k : 5 * k + 5] = k + 1.0
TRIPLE = diagonal(-1.0, -1.0, -1.0, 3.0)
PAIRS = diagonal(1.0, 1.0, 2.0, 2.0)
TWO = diagonal(2.0, 2.0, 2.0)
TINY = 1e-25 * torch.tensor([[3.0, 1.0], [0.0, 2.0]])

CASES = (
    Case(
        "projector on the two largest of the eigenvalues 1, 1, 2, 2",
        "47599, 23133",
        PAIRS,
        lambda A: weighted(projector(torch.linalg.eigh(A).eigenvectors, 2, 4)),
        lambda A: weighted(projector(sf.linalg.eigh(A).eigenvectors, 2, 4)),
        "eigh",
        symmetric=True,
    ),
    Case(
        "projector on the single eigenvalue beside a triple one",
        "76531",
        TRIPLE,
        lambda A: weighted(projector(torch.linalg.eigh(A).eigenvectors, 3, 4)),
        lambda A: weighted(projector(sf.linalg.eigh(A).eigenvectors, 3, 4)),
        "eigh",
        symmetric=True,
    ),
    Case(
        "square root of 2I",
        "25481",
        TWO,
        lambda A: weighted(of_values(A, torch.sqrt, hermitian=True)),
        lambda A: weighted(sf.linalg.sqrtm(A)),
        "sqrtm",
        symmetric=True,
    ),
    Case(
        "logarithm of a matrix with eigenvalues 1, 1, 2, 2",
        "9983",
        PAIRS,
        lambda A: weighted(of_values(A, torch.log, hermitian=True)),
        lambda A: weighted(sf.linalg.logm(A)),
        "logm",
        symmetric=True,
    ),
    Case(
        "nearest orthogonal matrix to 2I",
        "",
        TWO,
        lambda A: weighted(of_values(A, torch.ones_like, hermitian=False)),
        lambda A: weighted(sf.linalg.polar(A).U),
        "polar",
    ),
    Case(
        "singular values of a 15×15 matrix of rank 3, soft-thresholded",
        "49886",
        RANK_THREE,
        lambda A: weighted(of_values(A, lambda S: (S - 0.5).clamp(min=0.0), hermitian=False)),
        lambda A: weighted(sf.linalg.svt(A, 0.5)),
        "svt",
    ),
    Case(
        "leading singular vectors of a float32 matrix of size 1e-25",
        "194705",
        TINY,
        lambda A: weighted(leading(*torch.linalg.svd(A))),
        lambda A: weighted(leading(*sf.linalg.svd(A))),
        "svd",
    ),
    Case(
        "U·S²·Vh and log det at 2I, in one loss",
        "",
        TWO,
        lambda A: weighted(of_values(A, torch.square, hermitian=False)) + torch.linalg.svd(A).S.log().sum(),
        lambda A: weighted(sf.linalg.singular_value_function(A, torch.square)) + sf.linalg.svdvals(A).log().sum(),
        "singular_value_function, svdvals",
    ),
    Case(
        "pseudoinverse of a matrix of rank 1 (torch is right)",
        "65911",
        WEIGHT[:2, :5],
        lambda x: weighted(torch.linalg.pinv(torch.outer(x[0], x[1]))),
        lambda x: weighted(sf.linalg.pinv(torch.outer(x[0], x[1]))),
        "pinv",
    ),
)


NINE = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)
LEAST = torch.tensor([[5.0, 2.0, -1.0], [2.0, 2.0, 2.0], [-1.0, 2.0, 5.0]], dtype=torch.float64) / 6.0
"""The least X with NINE·X = NINE: the projector on its rows, of rank 2."""
BATCH = torch.stack([torch.eye(2), torch.ones(2, 2)]).double()
GRAM = torch.ones(4, 4, dtype=torch.float64)

VALUES = (
    Value(
        "least squares of rank 2, by gels, torch's driver on a GPU",
        "117122, 180157",
        lambda: torch.linalg.lstsq(NINE, NINE, driver="gels").solution,
        lambda: sf.linalg.lstsq(NINE, NINE).solution,
        LEAST,
        "lstsq",
    ),
    Value(
        "inverse of I, in a batch with a singular matrix",
        "",
        lambda: torch.linalg.inv(BATCH)[0],
        lambda: sf.linalg.inv_ex(BATCH)[0][0],
        BATCH[0],
        "inv_ex",
    ),
    Value(
        "L·Lᵀ of a Gram matrix of rank 1, but for the shift that is told",
        "61581",
        lambda: unshifted(torch.linalg.cholesky(GRAM), torch.zeros(())),
        lambda: unshifted(*sf.linalg.cholesky_ex(GRAM)[0]),
        GRAM,
        "cholesky_ex",
    ),
)


def differences(loss: Loss, A: Tensor) -> Tensor:
    """The gradient by central differences, in double precision."""
    A = A.double()
    step = 1e-5 * float(A.abs().max())
    gradient = torch.zeros_like(A)
    for index in range(A.numel()):
        E = torch.zeros_like(A)
        E.view(-1)[index] = step
        gradient.view(-1)[index] = (loss(A + E) - loss(A - E)) / (2.0 * step)
    return gradient


def verdict(computed: Callable[[], Tensor], truth: Tensor) -> str:
    """What a value is worth."""
    try:
        value = computed().double()
    except RuntimeError:
        return "error"
    if not value.isfinite().all():
        return "NaN"
    return "right" if float((value - truth).abs().max()) <= 1e-6 * float(truth.abs().max()) else "wrong"


def gradient(loss: Loss, A: Tensor) -> Callable[[], Tensor]:
    """The gradient of the loss by autograd, to be computed."""
    A = A.clone().requires_grad_()
    return lambda: torch.autograd.grad(loss(A), A)[0]


# Problem, method and metric
print("| gradient of | torch | torch.linalg | sf.linalg | operator |")
print("| --- | --- | --- | --- | --- |")
for case in CASES:
    truth = differences(case.of(case.torch), case.A)
    theirs, ours = (verdict(gradient(case.of(loss), case.A), truth) for loss in (case.torch, case.ours))
    print(f"| {case.name} | {case.issue} | {theirs} | {ours} | `{case.operator}` |")
    assert ours == "right", case.name
print()
print("| value of | torch | torch.linalg | sf.linalg | operator |")
print("| --- | --- | --- | --- | --- |")
for case in VALUES:
    theirs, ours = (verdict(value, case.truth) for value in (case.torch, case.ours))
    print(f"| {case.name} | {case.issue} | {theirs} | {ours} | `{case.operator}` |")
    assert ours == "right", case.name
