"""The Gram matrix H of the gradients of the outputs: along gradient flow ŷ' = -H(ŷ - y)."""

from __future__ import annotations

import torch
from torch import Tensor


def gram_matrix(X: Tensor, Z: Tensor, K: Tensor, input_active: Tensor, gamma: float) -> Tensor:
    """H = ZZᵀ + γ²(ZZᵀ) ∘ (KKᵀ) + (XXᵀ) ∘ ((E∘K)(E∘K)ᵀ) (N, N) for one output; of p outputs (Np, Np), by rows.

    H_ij = ⟨∂ŷ_i, ∂ŷ_j⟩ over b, A and W: ∂ŷ_i/∂b = z_i, ∂ŷ_i/∂A = γ z_i k_iᵀ and ∂ŷ_i/∂W = x_i (e_i ∘ k_i)ᵀ, which are matrices of
    rank one. It is equation (11) of the paper without matrices of Nm rows. Of two outputs ∂b has nothing in common.

    Args:
        X: (N, d).
        Z: equilibrium (N, m).
        K: adjoint at r = 1, K = D ∘ (1bᵀ + γKAᵀ) (N, m); of p outputs (N, p, m).
        input_active: E = 1[XW > 0] (N, m), bool; (N, 1, m) of p outputs.
        gamma: γ.
    """
    p = 1 if K.ndim == 2 else K.shape[1]
    one, each = torch.eye(p, dtype=K.dtype, device=K.device), torch.ones(p, p, dtype=K.dtype, device=K.device)
    EK, K = (K * input_active).flatten(0, -2), K.flatten(0, -2)
    ZZ = Z @ Z.T
    H = torch.kron(ZZ, each).mul_((K @ K.T).mul_(gamma**2)).add_(torch.kron(ZZ, one))
    return H.add_(torch.kron(X @ X.T, each).mul_(EK @ EK.T))
