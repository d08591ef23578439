"""Values of arguments that help texts name too: this loads nothing."""

DELTA = 0.01
"""Probability with which a statement may fail, where none is given."""
