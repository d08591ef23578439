"""The Jacobian of all outputs in all weights, which is not formed: each of its rows is made of matrices of rank one."""

from __future__ import annotations

import torch
from torch import Tensor

from .._core.near_a_fit.pseudo_inverse import PseudoInverse, flat
from .adjoint import active_units, solve_linear
from .gram import gram_matrix
from .share import TOLERANCE, Share


class Jacobian:
    """J (Np, P) of Zb in W, A and b, in that order, at one share of rows: row (i, o) is x_i(e_i ∘ k_io)ᵀ, γz_ik_ioᵀ and z_ie_oᵀ,
    with K_o = D ∘ (1b_oᵀ + γK_oAᵀ), D = 1[γZA + Φ > 0] and E = 1[XW > 0]; relu'(0) = 0.

    Args:
        at: rows and weights.
    """

    def __init__(self, at: Share) -> None:
        self._X, self._Z, self._gamma, self._active = at.rows.X, at.Z, at.gamma, at.XW > 0
        A, b = at.at.A, at.at.b
        self._weights = {"W": at.at.W, "A": A, "b": b}
        active = active_units(A, at.Phi, at.Z, at.gamma)
        solved = (
            solve_linear(A.T, active, column.expand_as(at.Z), at.gamma, norm_B=at.norm_A, tolerance=TOLERANCE).V
            for column in b.T
        )
        self._K = torch.stack(list(solved), dim=1)

    def inverse(self) -> PseudoInverse:
        """J⁺, by JJᵀ."""
        gram = gram_matrix(self._X, self._Z, self._K, self._active[:, None], self._gamma)
        return PseudoInverse(gram, self.image, self.pulled, self.matrix)

    def image(self, d: Tensor) -> Tensor:
        """Jd (Np,) of d (P,)."""
        sizes = [weight.numel() for weight in self._weights.values()]
        W, A, b = (
            part.reshape(weight.shape) for part, weight in zip(d.split(sizes), self._weights.values(), strict=True)
        )
        change = torch.where(self._active, self._X @ W, 0.0).add_(self._Z @ A, alpha=self._gamma)
        return (self._Z @ b + torch.einsum("im,iom->io", change, self._K)).reshape(-1)

    def pulled(self, x: Tensor) -> Tensor:
        """Jᵀx (P,) of x (Np,)."""
        x = x.reshape(len(self._X), -1)
        V = torch.einsum("io,iom->im", x, self._K)
        W = self._X.T @ torch.where(self._active, V, 0.0)
        return flat({"W": W, "A": self._gamma * (self._Z.T @ V), "b": self._Z.T @ x})

    def matrix(self) -> Tensor:
        """J itself."""
        count = self._K.shape[0] * self._K.shape[1]
        return torch.stack([self.pulled(row) for row in torch.eye(count, dtype=self._K.dtype, device=self._K.device)])
