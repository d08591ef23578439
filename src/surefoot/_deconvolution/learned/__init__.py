"""The unrolled network: its training, its weights and its safeguard."""
