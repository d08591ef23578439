"""Theorems A and B of docs/theorems/feed-forward.md for any network with bounds of its Jacobian and of how much that changes."""
