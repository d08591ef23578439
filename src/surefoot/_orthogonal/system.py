"""The learned SVD as the core sees it: no theorem speaks of it, so that it has words and a command alone."""

from __future__ import annotations

from .._core.system import System
from .._learning.directory import LOSSES_ONLY
from .words import WORDS


class SVDSystem(System):
    """The paper's differentiable SVD with trained steps."""

    name = "svd"
    network_name = "sf.nn.LearnedSVD"
    words = WORDS
    no_trajectory = LOSSES_ONLY
    command = "surefoot._orthogonal.command"
    tour = "surefoot._orthogonal.command_tour"
