"""What cannot be certified, whatever the theorem, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from surefoot_check.arrays import FormatError, TooLargeError
from surefoot_check.rigor.bounds import NotFiniteError

EXTREME = "the data or the weights are too large or too small"
SCALE = "scale the data and the weights to order 1"
SMALLER = "use fewer rows, or fewer and smaller layers"


class NotCertifiable(ValueError):
    """No scale of the weights makes the theorem hold; the message says why."""


@contextmanager
def checkable(what: str, advice: str) -> Iterator[None]:
    """What is beyond the checker's limits, or overflows on the way to a bound, is a ``ValueError`` that says what to do.

    Args:
        what: of what, with its verb: "the network is".
        advice: what to do; of what is too large for the checker it says so itself.

    Raises:
        ValueError: where the block raises ``FormatError``, ``NotFiniteError`` or ``ArithmeticError``.

    Example:
        >>> with sf.extending.checkable("the network is", "scale it"):
        ...     bound = 1e300**2
        Traceback (most recent call last):
        ValueError: the network is out of the range of certificates: ...; scale it
    """
    try:
        yield
    except (FormatError, NotFiniteError, ArithmeticError) as error:
        advice = SMALLER if isinstance(error, TooLargeError) else advice
        raise ValueError(f"{what} out of the range of certificates: {error}; {advice}") from error
