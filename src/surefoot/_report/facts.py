"""What a report says of a run, worked out once for plots and page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from surefoot_check.statement import Theorem

from .._core.advice import in_options
from .._core.audit import Audit, AuditLine
from .._core.certificate import Certificate, CertificateStatus
from .._core.io import RunDirectoryError
from .._core.near_a_fit.history import WATCHED
from .._core.recertification import Recertification
from .._core.registry import system_named
from .._core.run import Run
from .._core.system import AnyCertifiable
from .._core.words import Words


@dataclass(frozen=True)
class Bound:
    """A guaranteed gap by iteration: the theorems that give it, and when it reaches the run's target."""

    theorems: tuple[str, ...]
    certificate: Certificate
    iterations: float


@dataclass(frozen=True)
class Facts:
    """A run with everything that its report derives from it.

    Attributes:
        run: the run as loaded.
        audit: its audit; ``lines`` the same with the phases of the run taken together.
        theorems: every theorem of the system that can be evaluated at the initial weights, that of the run first.
        unevaluated: why the others could not be, by theorem.
        target: the absolute gap that the run stops at, at least the resolution.
        checkpoints: iterations with a stored checkpoint.
    """

    run: Run
    audit: Audit
    lines: tuple[AuditLine, ...]
    theorems: tuple[Certificate, ...]
    unevaluated: dict[str, str]
    target: float
    checkpoints: tuple[int, ...]

    @classmethod
    def of(cls, run: Run) -> Facts:
        """Audit a run and evaluate every theorem of its system at its initial weights.

        Raises:
            RunDirectoryError: a theorem that this version does not know, or settings that are not numbers.
        """
        if run.certificate.theorem not in system_named(run.certificate.system).theorems():
            raise RunDirectoryError(
                f"the certificate speaks of theorem {run.certificate.theorem!r}, "
                "which this version does not know; use the version that wrote it"
            )
        target = run.target
        audit = run.audit()
        theorems, unevaluated = _theorems(run)
        return cls(
            run=run,
            audit=audit,
            lines=audit.lines,
            theorems=theorems,
            unevaluated=unevaluated,
            target=target,
            checkpoints=_checkpoints(run.directory),
        )

    @property
    def initial_gap(self) -> float:
        """Measured at the first iterate; the certificate's (rounded up) where nothing was recorded."""
        return self.run.rows[0]["gap"] if self.run.rows else gap_of(self.run.certificate)

    @property
    def final_gap(self) -> float:
        """The last one recorded."""
        return self.run.rows[-1]["gap"] if self.run.rows else gap_of(self.run.certificate)

    @property
    def stepless(self) -> bool:
        """Whether no number is the step of an iteration: the method has steps of its own."""
        return self.words.own_steps is not None

    @property
    def system(self) -> AnyCertifiable:
        """That of the run."""
        return system_named(self.run.certificate.system)

    @property
    def theorem(self) -> Theorem:
        """That of the run."""
        return self.system.theorem(self.run.certificate.theorem)

    @property
    def words(self) -> Words:
        """Those of the run's system."""
        return self.system.words

    @property
    def gap_named(self) -> tuple[str, str]:
        """What the gap of this run is the name of, and the title of its plot."""
        return self.words.gap_of(self.run.certificate.problem.get("kind"))

    @property
    def trained(self) -> bool:
        """Whether a training that was watched came before the run."""
        return self.run.directory is not None and (self.run.directory / WATCHED).exists()

    @property
    def in_force(self) -> list[Recertification]:
        """The phases of the run whose certificate holds and whose steps the theorem covers."""
        return self.run.in_force

    @property
    def guaranteed_iterations(self) -> float:
        """Fewest total iterations to the target by any certificate in force; ``inf`` if none guarantees it."""
        return self.run.guaranteed_to(self.target)

    def reaches(self, phase: Recertification) -> float:
        """Iteration of the run at which a certificate's bound reaches the target."""
        if not phase.certificate.schedule:
            return math.inf
        return phase.iterations_to(self.target)

    @property
    def contradicted(self) -> bool:
        """Whether the recorded run breaks an inequality that its certificate guarantees."""
        return bool(self.in_force) and self.audit.violations > 0

    @property
    def bounds(self) -> list[Bound]:
        """The bounds that fall, at the initial weights, equal ones together; refuted theorems give none."""
        by_schedule: dict[tuple[object, ...], Bound] = {}
        for certificate in self.theorems:
            if not certificate.claim.bounds:
                continue
            names = by_schedule[certificate.schedule].theorems if certificate.schedule in by_schedule else ()
            reached = self.reaches(Recertification(0, certificate))
            by_schedule[certificate.schedule] = Bound((*names, certificate.theorem), certificate, reached)
        return list(by_schedule.values())

    @property
    def why_not(self) -> tuple[str, str]:
        """Where nothing is guaranteed: the reason, and what would help, in the terms in which the run was started."""
        reason, helps = self._why_not
        return reason, self.advised(helps)

    def advised(self, text: str) -> str:
        """Advice, in terms of options where the command line started the run."""
        return in_options(text, self.words.advised) if "options" in self.run.config else text

    @property
    def _why_not(self) -> tuple[str, str]:
        run, certificate = self.run, self.run.certificate
        failed = [condition for condition in certificate.conditions if not condition.holds]
        if certificate.status is CertificateStatus.REFUTED:
            return f"the theorem {certificate.theorem} as stated is false for these shapes", certificate.suggestion
        if failed or not certificate.holds:
            names = "; ".join(condition.name for condition in failed) or "a hypothesis without finite sides"
            return f"a hypothesis of {certificate.theorem} fails: {names}", certificate.suggestion
        if not certificate.claim.of_iterations:
            return (
                f"the theorem {certificate.theorem} speaks of the gradient flow, of which the steps of a run are no part",
                "certify by a theorem about iterations: pass theorem=None, for the default one",
            )
        return (
            f"every hypothesis of {certificate.theorem} holds, but the steps were chosen by the rule "
            f"{run.rule!r}, of which the theorem does not speak",
            f"use the step rule {certificate.rule!r}: pass steps=None",
        )


def gap_of(certificate: Certificate) -> float:
    """The initial gap that a certificate publishes; NaN where it is unbounded and left out."""
    return certificate.quantities.get("initial_gap", math.nan)


def _theorems(run: Run) -> tuple[tuple[Certificate, ...], dict[str, str]]:
    """Every theorem of the run's system at its initial weights, and why some could not be evaluated.

    Only that of the certificate where the problem's arrays were not loaded.
    """
    if not run.problem:
        return (run.certificate,), {}
    system = system_named(run.certificate.system)
    net, loss = system.rebuild(run.certificate.problem["kind"], run.problem, run.initial)
    certificates, unevaluated = [run.certificate], {}
    for name in system.theorems():
        if name == run.certificate.theorem:
            continue
        try:
            certificate = system.certify(net, loss, name)
        except ValueError as error:  # a quantity that the theorem needs has no finite bound
            unevaluated[name] = str(error)
            continue
        # a theorem on gradient steps may stand for its proximal form
        if certificate.theorem not in {other.theorem for other in certificates}:
            certificates.append(certificate)
    return tuple(certificates), unevaluated


def _checkpoints(directory: Path | None) -> tuple[int, ...]:
    if directory is None:
        return ()
    stems = (file.stem for file in (directory / "checkpoints").glob("*.safetensors"))
    return tuple(sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit()))
