"""The matrices of the implicit ReLU paper written out, with a row for every entry of Z: for small networks only.

vec stacks columns, as in the paper, so that vec(ZA) = (Aᵀ ⊗ I_N) vec(Z).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from surefoot._implicit.network import ImplicitReLU


def norm(A: Tensor) -> float:
    """‖A‖, the largest singular value."""
    return float(torch.linalg.matrix_norm(A, 2))


def least(A: Tensor) -> float:
    """The smallest singular value, of min(A.shape)."""
    return float(torch.linalg.svdvals(A)[-1])


def stacked(A: Tensor) -> Tensor:
    """vec(A)."""
    return A.mT.reshape(-1)


@dataclass(frozen=True)
class Written:
    """A network of one output, b (m,), at X (N, d), all in float64."""

    X: Tensor
    W: Tensor
    A: Tensor
    b: Tensor
    gamma: float

    @cached_property
    def net(self) -> ImplicitReLU:
        """The network."""
        return ImplicitReLU(self.W, self.A, self.b, self.gamma)

    @cached_property
    def contraction(self) -> float:
        """γ0 = γ‖A‖."""
        return self.gamma * norm(self.A)

    @cached_property
    def Phi(self) -> Tensor:
        """Φ (N, m), (3)."""
        return (self.X @ self.W).relu()

    @cached_property
    def Z(self) -> Tensor:
        """The equilibrium (N, m), (2)."""
        return self.net.equilibrium(self.X).Z

    @cached_property
    def D(self) -> Tensor:
        """The diagonal (Nm,) of D in Lemma 3.2."""
        return stacked((self.gamma * self.Z @ self.A + self.Phi > 0.0).to(self.Z))

    @cached_property
    def E(self) -> Tensor:
        """The diagonal (Nm,) of E in Lemma 3.2."""
        return stacked((self.X @ self.W > 0.0).to(self.Z))

    @cached_property
    def active(self) -> bool:
        """min D_ii = min E_ii = 1."""
        return bool(self.D.all()) and bool(self.E.all())

    @cached_property
    def Q(self) -> Tensor:
        """Q (Nm, Nm) of Lemma 3.2."""
        N = len(self.X)
        product = torch.kron(self.A.mT.contiguous(), torch.eye(N, dtype=self.A.dtype))
        return torch.eye(len(product), dtype=self.A.dtype) - self.gamma * self.D[:, None] * product

    @cached_property
    def outputs(self) -> Tensor:
        """(bᵀ ⊗ I_N) Q⁻¹ D (N, Nm)."""
        readout = torch.kron(self.b[None], torch.eye(len(self.X), dtype=self.b.dtype))
        return torch.linalg.solve(self.Q, readout, left=False) * self.D

    @cached_property
    def M(self) -> Tensor:
        """(12), (N, m²)."""
        return self.gamma * self.outputs @ torch.kron(torch.eye(len(self.A), dtype=self.Z.dtype), self.Z)

    @cached_property
    def Pi(self) -> Tensor:
        """(13), (N, md)."""
        return (self.outputs * self.E) @ torch.kron(torch.eye(len(self.A), dtype=self.X.dtype), self.X)

    @cached_property
    def H(self) -> Tensor:
        """(11), (N, N)."""
        return self.Z @ self.Z.mT + self.M @ self.M.mT + self.Pi @ self.Pi.mT

    def moved(self, y: Tensor, time: float) -> Written:
        """A straight step of that length along the negative gradients (7) to (9) of the loss with labels y (N,)."""
        r = self.Z @ self.b - y
        gradient_W, gradient_A = (
            part.reshape(weight.mT.shape).mT for part, weight in ((self.Pi.mT @ r, self.W), (self.M.mT @ r, self.A))
        )
        W, A, b = self.W - time * gradient_W, self.A - time * gradient_A, self.b - time * self.Z.mT @ r
        return Written(self.X, W, A, b, self.gamma)
