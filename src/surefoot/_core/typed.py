"""What type checkers know of the arguments of ``certify`` and ``descend``, whose systems are found as the program runs."""

from __future__ import annotations

from typing import Protocol


class Problem(Protocol):
    """What a network is certified on: a loss of ``sf``, a batch of problems of ``sf.learned``, a problem of
    ``sf.deconvolution``, or what a system of one's own takes in their place.

    Attributes:
        kind: its name in files.
    """

    @property
    def kind(self) -> str: ...


class OfInterval(Protocol):
    """A network whose certificates speak of an interval, in place of a problem.

    Attributes:
        interval: its own, if it has one.
    """

    @property
    def interval(self) -> tuple[float, float] | None: ...
