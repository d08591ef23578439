"""Training of the coefficients on the loss (4): in the spectral domain, or on the matrices themselves."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from surefoot_check.arrays import digest

from .._core.callbacks import Callback
from .._core.team import Message
from .._core.validate import nonnegative, unknown
from .._learning import fit
from .._learning.fit import Course
from .._learning.optimizers import FIRST_ORDER
from .._learning.run import TrainRun
from .._learning.shared_sum import SharedSum, Terms
from .iteration import unrolled
from .spectra import Spectra, check_matrices
from .starts import initial

FORMAT = "surefoot-inverse-training/1"
RATES = {"adam": 1e-2, "sgd": 1e-4}
"""Learning rates by default; the paper's for sgd hardly moves the coefficients."""

Domain = Literal["spectral", "matrices"]
Objective = Literal["layers", "last"]


class Trainable(Protocol):
    """What training asks of the net: its coefficients C (K, L), the scale c0, and a file of its own kind."""

    coefficients: nn.Parameter
    c0: float | str

    def save(self, path: str | Path) -> None:
        """Write a file."""
        ...


def train(
    net: Trainable,
    matrices: Tensor,
    validation: Tensor | None = None,
    *,
    optimizer: str = "adam",
    learning_rate: float | None = None,
    epochs: int = 1000,
    patience: int | None = None,
    objective: Objective = "layers",
    domain: Domain = "spectral",
    directory: str | Path | None = None,
    resume: bool = False,
    callbacks: Iterable[Callback] = (),
) -> TrainRun:
    """Minimise the loss (4), 1/(2nK) Σ_i Σ_k ‖A_iX_{k,i}A_i - A_i‖_F², over the coefficients, from those that the net
    has (the paper's Algorithm 1 starts near 1). Full batch, one step an epoch, in place. The ranks of a job share the
    matrices, with the same result up to the rounding of sums.

    Args:
        net: at the end it holds the best coefficients, not the last.
        matrices: (N, m, n), float64 or float32.
        validation: matrices (N', m', n') whose test loss decides which coefficients are best; by default the training
        matrices. optimizer: "adam", or "sgd" (the paper's).
        learning_rate: by default 1e-2 for adam and the paper's 1e-4 for sgd.
        epochs: steps, those before a resume included.
        patience: stop after this many epochs without a lower test loss.
        objective: "layers", the loss (4) of the paper, which also counts what the layers before the last leave; "last":
            that of the last layer alone, 1/2n Σ_i ‖A_iX_{K,i}A_i - A_i‖_F², for which Chebyshev coefficients are the
            better start.
        domain: "spectral": on the singular values, with the same gradient up to rounding, after one decomposition; "matrices":
            through the products, at a cost for each epoch that grows with the cube of the size. For comparison.
        directory: write checkpoints and the best net there; must not exist or be empty, unless ``resume``.
        resume: continue from the newest checkpoint, exactly as if the run had not been cut off. The net must hold the
            coefficients that the run started from.
        callbacks: told of every epoch as it comes, and able to stop the training: see ``sf.callbacks``.

    Returns:
        The run; its ``validation`` is 1/n Σ ‖AX_KA - A‖_F² of the validation matrices (of the training matrices where there are
        none). The loss has a positive floor if more than L distinct singular values occur, see ``floor``.

    Raises:
        TypeError, ValueError: bad arguments.
        RunDirectoryError: a directory that exists, that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept and the net is unchanged.
    """
    if optimizer not in FIRST_ORDER:
        raise unknown("optimizer", optimizer, FIRST_ORDER)
    rate = RATES[optimizer] if learning_rate is None else nonnegative("learning_rate", learning_rate)
    method = FIRST_ORDER[optimizer](rate)
    if domain not in ("spectral", "matrices"):
        raise ValueError(f"domain is {domain!r}; it must be 'spectral' or 'matrices'")
    if objective not in ("layers", "last"):
        raise ValueError(f"objective is {objective!r}; it must be 'layers' or 'last'")
    course = Course.of(epochs, patience, directory, resume, callbacks=callbacks)

    def save(path: Path, C: Tensor) -> None:
        best = deepcopy(net)
        with torch.no_grad():
            best.coefficients.copy_(C)
        best.save(path)

    with ExitStack() as held:
        loss = _total(net, matrices, domain, objective == "last", "matrices", held)
        held_out = loss if validation is None else _total(net, validation, domain, False, "validation", held)
        settings = {
            "format": FORMAT,
            "optimizer": optimizer,
            "learning_rate": rate,
            "patience": course.patience,
            "objective": objective,
            "domain": domain,
            "c0": net.c0,
            "coefficients": _digest(net.coefficients),
            "matrices": _digest(matrices),
            "validation": None if validation is None else _digest(validation),
        }
        files = course.files(settings, "training of a learned inverse", held)
        start = net.coefficients.detach().clone()
        best, run = fit.fit(_Losses(loss, held_out), start, method, course, files, save, held)
        with torch.no_grad():
            net.coefficients.copy_(best)
    return run


class _Losses(fit.Objective):
    """The objective on the training matrices, and the test loss of those that decide; w is C (K, L)."""

    def __init__(self, training: SharedSum, validation: SharedSum) -> None:
        self._training, self._validation = training, validation

    def evaluate(self, epoch: int, w: Tensor) -> tuple[Tensor, Tensor]:
        return self._training.value_and_gradient(w)

    def measure(self, w: Tensor) -> float:
        return self._validation.measure(w)


def _total(net: Trainable, value: Any, domain: str, last: bool, name: str, held: ExitStack) -> SharedSum:
    """The loss and the test loss of matrices that the ranks of a job share until ``held`` is closed."""
    A = check_matrices(name, value).double().to(net.coefficients.device)
    common = Message({"c0": net.c0, "last": last, "name": name})
    total = SharedSum(SpectralTerms if domain == "spectral" else MatrixTerms, common, held)
    total.take(len(A), {}, {"A": A})
    return total


class SpectralTerms(Terms):
    """The loss (4) and the test loss by the singular values; w is C (K, L)."""

    def __init__(self, common: Message) -> None:
        self._facts = common.facts

    def take(self, data: Message, part: slice, count: int) -> None:
        A = data.tensors["A"]
        if len(A) < count and not bool(A.any()):  # which is refused of all matrices, but not of a share
            self._spectra = Spectra(A.new_zeros(0), A.new_zeros(0), count)
        else:
            self._spectra = replace(Spectra.of(A, self._facts["c0"], self._facts["name"]), count=count)

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = self._spectra.value_and_gradient(w, self._facts["last"])
        return torch.tensor(value, dtype=torch.float64), gradient

    def measure(self, w: Tensor) -> float:
        return self._spectra.test_loss(w)


class MatrixTerms(Terms):
    """The same by products of the matrices."""

    def __init__(self, common: Message) -> None:
        self._facts = common.facts

    def take(self, data: Message, part: slice, count: int) -> None:
        A = data.tensors["A"]
        self._wide, self._count = A if A.shape[-2] <= A.shape[-1] else A.mT, count
        self._start = initial(self._wide, self._facts["c0"])

    def value_and_gradient(self, w: Tensor) -> tuple[Tensor, Tensor]:
        w = w.detach().requires_grad_()
        terms = self._defects(w)
        total = terms[-1] if self._facts["last"] else torch.stack(terms).sum() / len(terms)
        total = total / (2 * self._count)
        return total.detach(), torch.autograd.grad(total, w)[0]

    @torch.no_grad()
    def measure(self, w: Tensor) -> float:
        return self._defects(w)[-1].item() / self._count

    def _defects(self, C: Tensor) -> list[Tensor]:
        wide = self._wide
        return [((wide @ X) @ wide - wide).square().sum() for X in unrolled(wide, self._start, C)]


def _digest(value: Tensor) -> str:
    """sha256 of an array."""
    return digest(torch.as_tensor(value).detach().cpu().numpy())
