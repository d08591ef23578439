"""Outcomes of a command: exit codes, and errors that end it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from .._core.advice import in_options


class Exit(IntEnum):
    """Exit codes of the command line."""

    YES = 0
    NO = 1
    USAGE = 2
    UNDECIDED = 3
    FAILED = 4
    HANGUP = 129
    CTRL_C = 130
    BROKEN_PIPE = 141
    TERMINATED = 143

    @classmethod
    def of_signal(cls, number: int | None) -> Exit:
        """After the signal that interrupted a run; Ctrl-C where it is not known."""
        return cls(128 + (number or signal.SIGINT))


class UsageError(ValueError):
    """A command line that is no command; the message is one line, with what was typed in quotation marks."""


class NoCertificate(Exception):
    """Weights that are certified from the start were asked for, and there are none; the message says why.

    Attributes:
        facts: of the problem, as far as they are known.
    """

    def __init__(self, message: str, facts: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.facts = facts


def message_of(error: BaseException) -> str:
    """One line that says what went wrong, printable whatever names it holds."""
    from surefoot_check.text import visible  # which loads the checker: not for a mistyped command

    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = in_options(str(error)) or type(error).__name__
    return visible(" ".join(text.split()), limit=10_000)
