"""The Gram matrix H of the gradients of the outputs: along gradient flow ŷ' = -H(ŷ - y)."""

from __future__ import annotations

from torch import Tensor


def gram_matrix(X: Tensor, Z: Tensor, K: Tensor, input_active: Tensor, gamma: float) -> Tensor:
    """H = ZZᵀ + γ²(ZZᵀ) ∘ (KKᵀ) + (XXᵀ) ∘ ((E∘K)(E∘K)ᵀ) (N, N) for one output.

    H_ij = ⟨∂ŷ_i, ∂ŷ_j⟩ over b, A and W: ∂ŷ_i/∂b = z_i, ∂ŷ_i/∂A = γ z_i k_iᵀ and ∂ŷ_i/∂W = x_i (e_i ∘ k_i)ᵀ, which are matrices of
    rank one. It is equation (11) of the paper without matrices of Nm rows.

    Args:
        X: (N, d).
        Z: equilibrium (N, m).
        K: adjoint at r = 1, K = D ∘ (1bᵀ + γKAᵀ) (N, m).
        input_active: E = 1[XW > 0] (N, m), bool.
        gamma: γ.
    """
    EK = K * input_active
    ZZ = Z @ Z.T
    H = ZZ * (K @ K.T).mul_(gamma**2).add_(1.0)
    return H.add_((X @ X.T).mul_(EK @ EK.T))
