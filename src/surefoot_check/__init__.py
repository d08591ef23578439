"""The independent checker of surefoot's certificates: numpy and python-flint only, never torch, never surefoot."""

from .checker import check
from .verdict import Outcome, Report

__all__ = ["Outcome", "Report", "check"]
