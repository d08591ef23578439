"""What reports and screens say of a system: each has its own ``words.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of one system. The defaults are those of gradient descent on the loss of a network.

    Attributes:
        symbols: symbol and one-line meaning of each quantity of its certificates; families such as mass[0] by their name.
        gap: what the gap is the name of.
        title: of its plot.
        method: what exact iterations are, for the claim L1.
        subject: what a certificate is of.
        problems: what a run is about, by the kind of its problem; others are the loss of that name.
        engines: what each engine works on.
        instead: for what the system cannot do ("descend", "trace", "certify_every"): why, and what to do.
        targets: relative gaps for which guaranteed iterations are shown.
    """

    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    gap: str = "loss minus optimal value"
    title: str = "Distance of the loss to its optimum (gap)"
    method: str = "exact gradient descent with any steps that the theorem allows"
    subject: str = "these weights and data"
    problems: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[float, ...] = (1e-2, 1e-6, 1e-10)
