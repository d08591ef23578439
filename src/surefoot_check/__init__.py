"""The independent checker of surefoot's certificates: numpy and python-flint only, never torch, never surefoot."""

from .checker import Outcome, Report, check

__all__ = ["Outcome", "Report", "check"]
