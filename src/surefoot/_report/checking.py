"""The section of a report on the independent check."""

from __future__ import annotations

from collections.abc import Sequence

from .markup import Cell, Label, Markup, command, section, table

Claim = tuple[str, str, str]
"""A level such as L1, what an accepted check of it means, and what it does not."""


def checking(arguments: str, claims: Sequence[Claim], before: str = "", after: str = "") -> Markup:
    """The commands with these arguments, and the claims, if any, between two parts of markup."""
    rows = [[Label(name), Cell(meaning, "text"), Cell(limits, "text")] for name, meaning, limits in claims]
    return section(
        "Check it independently",
        command(f"surefoot check {arguments}", f"surefoot-check {arguments}"),
        before,
        table(["claim", "what an accepted check means", "limits"], rows, "Claims") if rows else "",
        after,
    )
