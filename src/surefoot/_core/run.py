"""A finished (or interrupted) run, in memory and on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from surefoot_check.run_files import ELSEWHERE
from surefoot_check.text import counted

from . import html
from . import trace as traces
from .audit import Audit, AuditLine, line, merged, under_bound
from .certificate import Certificate, digests
from .checkpoints import seal
from .io import (
    DTYPES,
    RunDirectoryError,
    read_json,
    read_tensors,
    run_directory,
    write_atomic,
    write_json,
    write_tensors,
)
from .late import late
from .recertification import Recertification
from .registry import SYSTEMS, descendable_named
from .statistics import Cut
from .status import RunStatus
from .validate import folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUN_FORMAT = "surefoot-run/1"
LARGE = 256 << 20
"""Bytes of a problem's arrays beyond which a run directory has their names, shapes and hashes only."""


@dataclass(repr=False)
class Run:
    """What ``descend`` returns.

    Attributes:
        certificate: the theorem at the initial weights.
        rows: the trace, one row of measurements an iterate.
        status: how it ended.
        rule, engine: names of the step rule and the engine.
        rule_certified: whether the rule's steps satisfy the step conditions of the certificate's theorem.
        problem, initial, final: the arrays the certificate speaks of, the (reduced) weights at start and end. ``problem`` is
            empty for a run that was loaded from a directory which does not hold them (``save_problem``).
        final_iteration: the iteration that ``final`` is of: the last one, but of a run that failed, or was not finished, that of
            the newest weights it kept.
        network: the network's own final weights, where they differ from the reduced ones (rank-deficient data).
        recertified: the theorem again along the run (``certify_every``).
        adopted: the recertifications that the steps then followed; each starts a new phase of the guarantee.
        resolution: the gap that rounding alone can cause.
        stopped_by: the signal that interrupted it in this process, if one did.
        config: settings, for the record.
        directory: where it was written, if anywhere.

    Example:
        >>> loss = sf.SquaredLoss(torch.eye(3).double(), torch.ones(3, 1).double())
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> sf.descend(net, loss, tolerance=1e-8).save("runs/kept").name
        'kept'
        >>> run = sf.Run.load("runs/kept")
        >>> run.status.value, run.gaps[-1] <= 1e-8 * run.gaps[0], run.audit().holds
        ('converged', True, True)
    """

    certificate: Certificate
    rows: list[traces.Row]
    status: RunStatus
    rule: str
    engine: str
    rule_certified: bool
    problem: Mapping[str, Tensor]
    initial: Mapping[str, Tensor]
    final: Mapping[str, Tensor]
    final_iteration: int
    resolution: float
    network: Mapping[str, Tensor] = field(default_factory=dict)
    recertified: list[Recertification] = field(default_factory=list)
    adopted: list[Recertification] = field(default_factory=list)
    stopped_by: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    directory: Path | None = None

    @property
    def gaps(self) -> list[float]:
        """Gap (loss minus optimal value) of each iterate, the initial one first. The last is NaN where a run ended for want of a
        finite one."""
        return [row["gap"] for row in self.rows]

    @property
    def measured_rows(self) -> list[traces.Row]:
        """The rows with all measurements: of an iterate that diverged there is the gap alone."""
        return [row for row in self.rows if row.keys() - {"step"} != {"iteration", "gap"}]

    @property
    def step_sizes(self) -> list[float]:
        """The steps taken."""
        return [row["step"] for row in self.rows if "step" in row]

    @property
    def iterations(self) -> int:
        """Number of steps taken."""
        return len(self.step_sizes)

    @property
    def moved(self) -> float | None:
        """How far the trained weights are from the first ones, relative to those: ‖final − initial‖/‖initial‖, in Frobenius norms
        of all of them together. Little is lazy training, near its linearisation.

        ``None`` where the first ones are 0, and of a system whose iterates are no weights of a network.
        """
        fixed = descendable_named(self.certificate.system).fixed
        if fixed is None:
            return None
        trained = [name for name in self.initial if name not in fixed]
        size = math.hypot(*(float(self.initial[name].norm()) for name in trained))
        moved = math.hypot(*(float((self.final[name] - self.initial[name]).norm()) for name in trained))
        return moved / size if size > 0.0 else None

    @property
    def phases(self) -> list[Recertification]:
        """The certificates in force, each from its iteration on; the first at 0."""
        return [Recertification(0, self.certificate), *self.adopted]

    @property
    def in_force(self) -> list[Recertification]:
        """The phases whose certificate holds, where the theorem covers the steps; none else."""
        return [phase for phase in self.phases if phase.certificate.holds] if self.rule_certified else []

    @property
    def certified(self) -> bool:
        """Whether steps of the run carry a guarantee: the rule is one that the theorem speaks of, and a certificate holds."""
        return bool(self.in_force)

    @property
    def certified_from(self) -> int | None:
        """First iteration from which convergence is guaranteed; ``None`` if never."""
        return self.in_force[0].iteration if self.in_force else None

    @property
    def probability(self) -> float:
        """With which what its certificates guarantee holds: below 1 over the draws of random steps."""
        return min((phase.certificate.probability for phase in self.in_force), default=1.0)

    @property
    def target(self) -> float:
        """The absolute gap that it was to reach, at least ``resolution``.

        Raises:
            RunDirectoryError: the tolerances on record are no numbers.
        """
        try:
            relative, absolute = (float(self.config.get(name, 0.0)) for name in ("tolerance", "absolute_tolerance"))
        except (TypeError, ValueError) as error:
            raise RunDirectoryError(f"config.json has a bad tolerance ({error}); restore it") from error
        first = self.rows[0]["gap"] if self.rows else self.certificate.initial_gap
        return max(relative * first if relative else 0.0, absolute, self.resolution)

    @property
    def outcome(self) -> tuple[str, str]:
        """How it ended, in a word or a few, and what that means.

        A gap that is no distance to the least value is that of a minimum only where the run is certified.
        """
        minimal = (
            self.certified
            or self.certificate.problem.get("kind") not in descendable_named(self.certificate.system).words.apart
        )
        if minimal and self.status is RunStatus.STALLED and self.rows and self.gaps[-1] <= self.resolution:
            start = "began" if self.iterations == 0 else "is now"
            return (
                "at the minimum, to rounding",
                f"the gap {start} at the rounding level of float64, so that nothing is left to lower",
            )
        return self.status.value.replace("_", " "), self.status.text

    def guaranteed_to(self, gap: float) -> float:
        """Fewest total iterations to an absolute gap that any certificate of the run guarantees; ``inf`` where none does."""
        return min((phase.iterations_to(gap) for phase in self.in_force), default=math.inf)

    def guaranteed_iterations(self, relative_gap: float) -> float:
        """Fewest total iterations to relative_gap × initial gap that any certificate of the run guarantees."""
        return self.guaranteed_to(relative_gap * self.rows[0]["gap"]) if self.certified else math.inf

    def audit(self) -> Audit:
        """Check every inequality along the trace: those of steps over the phase that each certificate rules, its bound from its
        start to the end of the run.

        No audit of a run that failed, or that was cut off, holds.
        """
        system = descendable_named(self.certificate.system)
        phases = self.phases
        lines: list[AuditLine] = []
        notes: list[str] = []
        for index, phase in enumerate(phases):
            last = index + 1 == len(phases)
            end = len(self.rows) - 1 if last else phases[index + 1].iteration
            rest = [{**row, "iteration": row["iteration"] - phase.iteration} for row in self.rows[phase.iteration :]]
            rows = rest[: end + 1 - phase.iteration]
            if not last:
                rows[-1] = {k: v for k, v in rows[-1].items() if k != "step"}  # taken under the next certificate
            found = system.audit(rows, phase.certificate, self.resolution)
            notes += found.notes
            part = list(found.lines)
            if not last and phase.certificate.claim.of_iterations:
                part.append(line(*under_bound(rest[len(rows) :], phase.certificate.bound, self.resolution)))
            lines += [_shifted(entry, phase.iteration) for entry in part]
        return Audit(
            phases[-1].certificate.theorem,
            merged(lines),
            self.resolution,
            any(p.certificate.claim.of_iterations for p in phases),
            "" if self.status.complete else self.status.text,
            tuple(notes),
        )

    def __repr__(self) -> str:
        """How it ended, in a line."""
        return f"<Run {self.status.value}: {self._course}, {self._trust}>"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        rows = [("course", self._course), ("guarantee", self._trust)]
        moved = self.moved
        if moved is not None:
            rows.append(("weights moved by", f"{moved:.3g} of their norm"))
        if self.directory is not None:
            rows.append(("directory", str(self.directory)))
        return html.table(": ".join(self.outcome), self.status.complete, (), rows)

    @property
    def _course(self) -> str:
        gaps = f"gap {self.gaps[0]:.6g} -> {self.gaps[-1]:.6g}" if self.rows else "no row recorded"
        return f"{counted(self.iterations, 'iteration')} with {self.rule}, {gaps}"

    @property
    def _trust(self) -> str:
        since = f" from iteration {self.certified_from} on" if self.certified_from else ""
        return f"certified by {self.certificate.theorem}{since}" if self.certified else "uncertified"

    def plot(self, what: str = "gap", path: str | Path | None = None) -> Figure:
        """A plot of its report as a figure of matplotlib, which can be changed further.

        Args:
            what: ``"gap"``, with every guaranteed bound; ``"steps"``; ``"conditions"``, the margins of the hypotheses; or
                ``"training"``, what ``sf.watch`` saw before this run.
            path: write it there, too; its ending says the format: ``.png``, ``.svg`` or ``.pdf``.

        Raises:
            ValueError: another name, a plot that such a run does not have, or a path of another ending.
            OSError: it cannot be written.
        """
        return late("surefoot._report.figures", "of_run")(self, what, path)

    def report(self, directory: str | Path | None = None) -> Path:
        """Write report.html, and its plots, into the run's directory.

        Args:
            directory: of a run in memory: where it is saved first. A run that has a directory already is saved into another one.

        Returns:
            The path of the page, which needs nothing else.

        Raises:
            RunDirectoryError: the run has no directory, and none is given; or the directory is not empty.
            OSError: a failed write.
        """
        path = self.directory if directory is None else folder("directory", directory)
        if path is None:
            raise RunDirectoryError(
                "the run is in memory only, and a report is written into its directory; pass one: run.report(directory)"
            )
        if self.directory is None or path.resolve() != self.directory.resolve():
            self.save(path)
        return late("surefoot._report.write", "write")(path)

    def summary(self) -> dict[str, Any]:
        """The outcome in plain values."""
        initial = self.rows[0]["gap"] if self.rows else float("nan")
        return {
            "status": self.status.value,
            "iterations": self.iterations,
            "initial_gap": initial,
            "final_gap": self.rows[-1]["gap"] if self.rows else initial,
            "rule": self.rule,
            "engine": self.engine,
            "certified": self.certified,
            "theorem": self.certificate.theorem,
            "resolution": self.resolution,
            "moved": self.moved,
        }

    def save(self, directory: str | Path) -> Path:
        """Write a complete run directory, without the problem's arrays where they take more than 256 MiB: ``save_problem``.
        Of a run in memory it is ``directory`` from then on.

        Raises:
            RunDirectoryError: the directory exists and is not empty, or this run was loaded without its problem's arrays.
            OSError: it cannot be written; nothing half-written is left under a final name.
        """
        self._require_problem()
        path = folder("directory", directory)
        with run_directory(path, resume=False):
            write_start(path, self.certificate, self.problem, self.initial, self.config)
            for phase in self.adopted:
                write_atomic(path / f"certificate-{phase.iteration:09d}.json", phase.certificate.to_json().encode())
            traces.write(path / "trace.jsonl", self.rows)
            write_end(path, self)
        self.directory = self.directory or path
        return path

    def save_problem(self, path: str | Path) -> Path:
        """Write the problem's arrays into a safetensors file, for ``surefoot-check DIR --data FILE`` and ``Run.load(data=)``.

        A run directory holds them itself unless they take more than 256 MiB. They are written without a copy in memory.

        Raises:
            RunDirectoryError: this run was loaded without them.
            OSError: the file cannot be written; an old one is untouched.
        """
        self._require_problem()
        file = Path(path)
        write_tensors(file, self.problem)
        return file

    def _require_problem(self) -> None:
        if not self.problem:
            raise RunDirectoryError(
                f"the run in {self.directory} was loaded without its problem's arrays, which it does not hold; "
                "pass their file: Run.load(directory, data=FILE)"
            )

    @classmethod
    def load(cls, directory: str | Path, data: str | Path | None = None) -> Run:
        """Read a run directory.

        Args:
            directory: what ``descend(directory=...)`` or ``save`` wrote.
            data: file of the problem's arrays (``save_problem``), of a run that does not hold them. Without it, ``problem``
                of such a run is empty.

        Raises:
            RunDirectoryError: it is missing, incomplete, damaged, or of another version; ``data`` is of another problem.
        """
        path = folder("directory", directory)
        if not path.is_dir():
            raise RunDirectoryError(f"{path} is not a directory; pass the directory of a run")
        config = read_json(path / "config.json")
        label = config.get("format") if isinstance(config, dict) else None
        others = {name: text for system in SYSTEMS for name, text in system.formats.items()}
        if label in others:
            raise RunDirectoryError(f"{path} {others[label]}")
        if label != RUN_FORMAT:
            raise RunDirectoryError(
                f"{path / 'config.json'} has format {label!r}; this version reads {RUN_FORMAT!r}: use the version that wrote it"
            )
        result = config.pop("result", None) or {}
        try:
            certificate = _noted(read_certificate(path / "certificate.json"), config)
            phases = [
                Recertification(int(file.stem.split("-")[1]), read_certificate(file))
                for file in sorted(path.glob("certificate-*.json"))
            ]
            initial = read_tensors(path / "initial.safetensors")
            ended = (path / "final.safetensors").exists()
            final = read_tensors(path / "final.safetensors") if ended else initial
            recertified = [Recertification(t, Certificate.from_json(text)) for t, text in result.get("recertified", [])]
            return cls(
                certificate=certificate,
                rows=traces.read(path / "trace.jsonl"),
                status=RunStatus(result.get("status", "running")),
                rule=config["rule"],
                engine=config["engine"],
                rule_certified=bool(config["rule_certified"]),
                problem=_read_problem(path, certificate, data),
                initial=initial,
                final={name: final[name] for name in initial},
                final_iteration=int(final["iteration"]) if ended else 0,
                resolution=float(config["resolution"]),
                network={k.removeprefix("net."): v for k, v in final.items() if k.startswith("net.")},
                recertified=recertified,
                adopted=phases,
                config=config,
                directory=path,
            )
        except RunDirectoryError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunDirectoryError(
                f"{path / 'config.json'} is damaged ({error!r}); restore it or run again"
            ) from error


def _shifted(entry: AuditLine, offset: int) -> AuditLine:
    worst_iteration = None if entry.at is None else entry.at + offset
    first = None if entry.first_violation is None else entry.first_violation + offset
    return replace(entry, at=worst_iteration, first_violation=first)


def read_certificate(path: Path) -> Certificate:
    """A certificate file; ``RunDirectoryError`` if it is missing or damaged."""
    try:
        return Certificate.from_json(path.read_text())
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing; this is not a complete run directory") from error
    except ValueError as error:
        raise RunDirectoryError(f"{path}: {error}") from error


def _noted(certificate: Certificate, config: Mapping[str, Any]) -> Certificate:
    """The certificate with what config.json has of it; before a reduction was kept with its numbers, that was text alone."""
    reduced, advice = config.get("reduced"), config.get("advice") or ""
    cut = Cut.from_dict(reduced) if isinstance(reduced, Mapping) else None
    return replace(certificate, advice=str(advice), cut=cut)


def _read_problem(path: Path, certificate: Certificate, data: str | Path | None) -> dict[str, Tensor]:
    """The problem's arrays; none where the directory does not hold them and ``data`` does not say where they are."""
    if not (path / "problem.json").exists():
        if data is not None:
            raise RunDirectoryError(f"{path} holds its problem's arrays itself; leave out data")
        return read_tensors(path / "problem.safetensors")
    if data is None:
        return {}
    arrays = read_tensors(Path(data))
    hashes, known = digests(arrays, {}), certificate.arrays
    published = {name for name in known if name.startswith("problem/")}
    differing = sorted(name for name in hashes.keys() | published if hashes.get(name) != known.get(name))
    if differing:
        raise RunDirectoryError(f"{data} is of another problem than the run in {path}: {', '.join(differing)} differ")
    return arrays


def large(problem: Mapping[str, Tensor]) -> bool:
    """Whether a problem's arrays are kept out of the run directory."""
    return sum(array.numel() * array.element_size() for array in problem.values()) > LARGE


def write_start(
    path: Path,
    certificate: Certificate,
    problem: Mapping[str, Tensor],
    initial: Mapping[str, Tensor],
    config: Mapping[str, Any],
) -> None:
    """The files that are known before the first step; config.json last, so that its presence means a usable directory."""
    write_atomic(path / "certificate.json", certificate.to_json().encode())
    if large(problem):
        arrays = {
            name: {
                "dtype": DTYPES[array.dtype],
                "shape": list(array.shape),
                "sha256": certificate.arrays[f"problem/{name}"],
            }
            for name, array in problem.items()
        }
        write_json(path / "problem.json", {"format": ELSEWHERE, "arrays": arrays})
    else:
        write_tensors(path / "problem.safetensors", problem)
    write_tensors(path / "initial.safetensors", initial)
    write_json(path / "config.json", dict(config))


def write_end(path: Path, run: Run) -> None:
    """The final weights and the outcome; where the data is rank deficient, also the network's own weights as net.*"""
    network = {f"net.{name}": tensor for name, tensor in run.network.items()}
    write_tensors(
        path / "final.safetensors", {**run.final, **network, **seal(run.final_iteration, run.certificate.digest)}
    )
    result = {**run.summary(), "recertified": [[r.iteration, r.certificate.to_json()] for r in run.recertified]}
    write_json(path / "config.json", {**run.config, "result": result})
