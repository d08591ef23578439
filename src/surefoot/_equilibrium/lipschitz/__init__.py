"""Lipschitz constants of users' maps, proved operation by operation. docs/equilibrium.md has the rules and their proofs."""
