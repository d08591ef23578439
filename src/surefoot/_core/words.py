"""What reports and screens say of a system: each has its own ``words.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class StepsTaken(Protocol):
    """Says what steps a run took."""

    def __call__(
        self,
        trace: Sequence[Mapping[str, float]],
        initial: Mapping[str, Any],
        quantities: Mapping[str, float],
        number: Callable[[float], str],
    ) -> tuple[str, str, str]:
        """Name, text and remark; of the run's trace and initial arrays, the certificate's quantities and what writes a number."""
        ...


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of one system. The defaults are those of gradient descent on the loss of a network.

    Attributes:
        symbols: symbol and one-line meaning of each quantity of its certificates; families such as mass[0] by their name.
        gap: what the gap is the name of.
        title: of its plot.
        gaps: gap and title by the kinds of problems that have others.
        apart: kinds of problems of which the gap is no distance of an objective to its least value, so that it is not compared
            with those of others.
        method: what exact iterations are, for the claim L1.
        subject: what a certificate is of.
        problems: what a run is about, by the kind of its problem; others are the loss of that name.
        engines: what each engine works on.
        networks: what they are, where the docstring of their class does not say.
        points: by theorems that say how far from the weights the point lies that descent reaches: what it is.
        instead: for what the system cannot do ("certify", "descend", "trace", "certify_every"): why, and what to do; see
            ``System.refusal``.
        advised: patterns of what its advice says of Python alone, and what that is at the command line.
        targets: relative gaps for which guaranteed iterations are shown.
        iterations: what an iteration is.
        initial: the gap that those are relative to.
        own_steps: of a method that has steps of its own: what is said, under which name, in place of a first step. No number is
            the step of an iteration then.
        steps_taken: of such a run, name, text and remark of what it did take.

    Example:
        >>> symbols = {"smoothness": ("K", "largest eigenvalue of XᵀX")}
        >>> words = sf.extending.Words(symbols=symbols, subject="this matrix")
        >>> words.subject, words.iterations  # what is left out has its default
        ('this matrix', 'iterations')
    """

    symbols: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    gap: str = "loss minus optimal value"
    title: str = "Distance of the loss to its optimum (gap)"
    gaps: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    method: str = "exact gradient descent with any steps that the theorem allows"
    subject: str = "these weights and data"
    problems: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    networks: str = ""
    points: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    advised: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[float, ...] = (1e-2, 1e-6, 1e-10)
    iterations: str = "iterations"
    initial: str = "the initial gap"
    own_steps: tuple[str, str] | None = None
    steps_taken: StepsTaken | None = None

    def gap_of(self, kind: object) -> tuple[str, str]:
        """What the gap of this kind of problem is the name of, and the title of its plot."""
        return self.gaps.get(str(kind), (self.gap, self.title))
