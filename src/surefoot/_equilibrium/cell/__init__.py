"""A user's map as a function of explicit tensors: its state, its arguments, and what else its value depends on."""
