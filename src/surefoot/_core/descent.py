"""Certify, descend, record, checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, overload

from torch import Tensor, nn

from . import checkpoints
from . import trace as traces
from .callbacks import Callback, Listeners, Start
from .certificate import Certificate, digests, require_arrays
from .engine import Anchored, Engine
from .interrupts import StopRequest
from .io import RunDirectoryError, read_json, read_tensors, run_directory, write_atomic, write_json
from .plans import PLANS
from .progress import Update, progress_line
from .recertification import Recertification
from .registry import adopted, descendable
from .run import RUN_FORMAT, Run, read_certificate, write_end, write_start
from .status import RunStatus
from .steps import StepRule, constant_of
from .system import AnyCertifiable, Recordable
from .typed import OfInterval, Problem
from .validate import folder, integer, kind_of, nonnegative, positive, positive_integer, unknown

WORTHWHILE = 0.9
"""A new certificate is followed if it guarantees at most this fraction of the iterations that remain by the ones before."""
DIVERGED = 1e6
"""A gap this many times the initial one counts as diverged."""


@overload
def certify(net: nn.Module, loss: Problem, theorem: str | None = None, *, step: float | None = None) -> Certificate: ...
@overload
def certify(
    net: OfInterval, loss: None = None, theorem: str | None = None, *, interval: tuple[float, float] | None = None
) -> Certificate: ...
def certify(
    net: Any, loss: Any = None, theorem: str | None = None, *, step: float | None = None, **given: Any
) -> Certificate:
    """Evaluate a convergence theorem on a network, loss and initial weights, before training.

    A hypothesis that fails is not an error: the certificate's ``status``, ``conditions`` and ``suggestion`` say so.

    Args:
        net: a network of ``sf.nn``, of float64 weights, or a ``torch.nn.Sequential``: one of two ``Linear`` without bias is
            a two-layer linear network, any other a feed-forward one, unless a theorem is named.
        loss: a loss of ``sf``, or for ``sf.nn.StepSizeNet`` a batch of problems of ``sf.learned``. None for a learned inverse.
        theorem: an id such as ``"two-layer/drift"``; by default that of the network's system.
        step: a constant step of one's own: the certificate is of gradient descent with that step. It holds for every step up to
            the largest that the theorem admits, and names that where it fails. For two-layer networks, linear ResNets, implicit
            and feed-forward networks.
        given: what a system takes by name. ``sf.nn.LearnedInverse``: ``interval=(l, u)``, in place of a loss.

    Returns:
        The certificate: ``holds``, ``conditions`` with both sides, ``bound(t)`` and ``iterations_to(relative_gap)``.

    Raises:
        TypeError: an unknown kind of network, a name that its system does not take, or weights that are not float64.
        ValueError: shapes that do not fit, non-finite weights, frozen ones of a system that trains all, an unknown theorem, or a
            step that is not positive and finite, or of a theorem that speaks of no constant step.

    Example:
        >>> X = torch.randn(20, 3).double()
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> mine = sf.certify(net, loss, step=0.1)  # is my learning rate guaranteed to work?
        >>> mine.holds, mine.suggestion
        (False, 'step=..., and every smaller one, is certified')
        >>> sf.certify(net, loss, step=1e-3).iterations_to(1e-6) < 1e4
        True
    """
    system, net = adopted(net, loss, theorem)
    asked = {} if step is None else {"step": positive("step", step, "a positive and finite number")}
    refused = asked if not system.of_constant_steps() else {}
    for name in {**given, **refused}.keys() - set(system.given):
        taken = f", or {' and '.join(system.given)} by name" if system.given else ""
        raise TypeError(f"{system.network_name} takes no {name}; pass a loss{taken}")
    problem = system.problem(net, loss, **given)
    if theorem is None and step is None:
        certificate, why = system.certify_usual(net, problem)
    else:
        named, why = _asked(system, problem, theorem, step)
        certificate = system.certify(net, problem, named, step)
    certificate = replace(certificate, cut=getattr(problem, "cut", None), why=why)
    if certificate.practical is not False:
        return certificate
    usual = certificate if step is None else system.certify(net, problem, certificate.theorem)
    small = f"the step is small: this theorem guarantees the step {usual.step_size}, too"
    return replace(certificate, advice=small if usual.practical else system.advice(net, problem, certificate))


def _asked(system: AnyCertifiable, problem: Any, theorem: str | None, step: float | None) -> tuple[str, str]:
    """The theorem to evaluate, and why it is that one where none is named."""
    named, why = system.usual(problem) if theorem is None else (system.theorem(theorem), "")
    known = system.of_constant_steps()
    if step is None or named.id in known:
        return named.id, why
    if theorem is not None:
        raise ValueError(
            f"{theorem} does not speak of a constant step of one's own; leave step out, or use {' or '.join(known)}"
        )
    return known[0], "it speaks of a constant step"


def certify_for(net: Any, loss: Any, theorem: str | None, steps: StepRule | str | float | None) -> Certificate:
    """The certificate for a run with these steps: of a constant step of one's own, where the theorem may be asked about one; and
    of the system's default theorem in place of one that prescribes other steps."""
    system = adopted(net, loss, theorem)[0]
    known = system.of_constant_steps()
    step = constant_of(steps) if theorem in known or (theorem is None and known) else None
    certificate = certify(net, loss, theorem, step=step)
    rule = steps.name if isinstance(steps, StepRule) else steps
    prescribes = certificate.theorem in PLANS and bool(PLANS[certificate.theorem].theorem.sequences)
    if theorem is None and prescribes and rule not in (None, certificate.rule):
        return certify(net, loss, system.default_theorem)
    return certificate


def descend(
    net: nn.Module,
    loss: Problem,
    steps: StepRule | str | float | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-12,
    *,
    absolute_tolerance: float = 0.0,
    certificate: Certificate | None = None,
    certify_every: int | None = None,
    engine: str = "auto",
    directory: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    callbacks: Iterable[Callback] = (),
    config: Mapping[str, Any] | None = None,
) -> Run:
    """Gradient descent on the network's weights, in place, with a recorded trace.

    Args:
        net, loss: what to train, on what.
        steps: a rule of ``sf.steps`` (object or name), a number (constant step), or ``None``: the certificate's rule.
        max_iterations: limit on the iterations in total, those before a resume included.
        tolerance: stop at this gap relative to the initial gap.
        absolute_tolerance: stop at this gap, whichever comes first.
        certificate: of these very weights and data; by default ``certify(net, loss)``, of a constant step
            ``certify(net, loss, step=steps)``.
        certify_every: evaluate the theorem again every so many iterations; where that guarantees convergence in at most nine
            tenths of the iterations that remain, the steps follow the new certificate from there on (``run.adopted``).
        engine: ``"auto"``, or by name, where the system has several; an unknown name lists them.
        directory: write the run there as it goes; must not exist or be empty, unless ``resume``.
        resume: continue the run in ``directory`` from its newest checkpoint, with the same result as an uninterrupted run.
            ``net`` must hold the initial weights again.
        progress: a progress line on a terminal or in a notebook.
        callbacks: told of every iterate as it comes, and able to stop the run: see ``sf.callbacks``.
        config: settings to keep in config.json.

    Returns:
        The run; its status says how it ended. Ctrl-C, SIGTERM and SIGHUP end it after the current iteration, with a checkpoint.

    Raises:
        TypeError, ValueError: bad arguments; a certificate of other arrays.
        RunDirectoryError: a directory that exists (without ``resume``), that cannot be resumed, or in use by another run.
        OSError: a failed write; checkpoints written before are kept.

    Example:
        >>> X = torch.randn(20, 3).double()
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> run = sf.descend(net, loss, tolerance=1e-8, directory="runs/first")
        >>> run.status.value, run.certified, run.audit().holds
        ('converged', True, True)
        >>> run.iterations < run.guaranteed_iterations(1e-8)  # known before the first step
        True
    """
    listeners = Listeners(callbacks)
    with ExitStack() as held:
        run = _Descent(
            net,
            loss,
            steps,
            max_iterations,
            tolerance,
            absolute_tolerance,
            certificate,
            certify_every,
            engine,
            directory,
            resume,
            config,
            held,
        ).run(progress, listeners)
    listeners.end(run, run.rows[-1], run.directory)
    return run


class _Descent:
    """The state of one call of ``descend``."""

    def __init__(
        self,
        net: Any,
        loss: Any,
        steps: StepRule | str | float | None,
        max_iterations: int,
        tolerance: float,
        absolute_tolerance: float,
        certificate: Certificate | None,
        certify_every: int | None,
        engine: str,
        directory: str | Path | None,
        resume: bool,
        config: Mapping[str, Any] | None,
        held: ExitStack,
    ) -> None:
        max_iterations = integer("max_iterations", max_iterations, 0)
        tolerance = nonnegative("tolerance", tolerance)
        absolute_tolerance = nonnegative("absolute_tolerance", absolute_tolerance)
        if certify_every is not None:
            certify_every = positive_integer("certify_every", certify_every)
        if not isinstance(steps, StepRule | str | Real | None) or isinstance(steps, bool):
            raise TypeError(f"steps is {kind_of(steps)}; pass a rule of sf.steps, its name, or a positive number")
        if not isinstance(certificate, Certificate | None):
            raise TypeError(f"certificate is {kind_of(certificate)}; pass the result of certify(net, loss)")
        if resume and directory is None:
            raise ValueError("resume=True needs the directory of the run to resume")
        system, net = adopted(net, loss, None if certificate is None else certificate.theorem)
        self.net, self.system = net, descendable(system)
        self.loss = loss = self.system.problem(net, loss)
        self.max_iterations, self.tolerance, self.absolute_tolerance = max_iterations, tolerance, absolute_tolerance
        self.certify_every, self.resumed = certify_every, resume
        self.certificate = certificate if certificate is not None else certify_for(net, loss, None, steps)
        self.initial = {name: tensor.clone() for name, tensor in self.system.reduced(net, loss).items()}
        if certificate is not None:
            self._check_certificate(certificate)
        if certify_every is not None and not isinstance(self.system, Recordable):
            raise ValueError(self.system.refusal("certify_every"))
        self.rule = self.system.rule(float(steps) if isinstance(steps, Real) else steps, self.certificate)
        followed = self.certificate.theorem in self.system.of_constant_steps() and self.rule.certifies(self.certificate)
        self.own_step = constant_of(steps) if followed else None
        if engine not in ("auto", *self.system.engines):
            raise unknown("engine", engine, ["auto", *self.system.engines])
        self.engine: Engine = self.system.engine(net, loss, engine)
        if isinstance(self.engine, AbstractContextManager):  # it holds something on other ranks
            held.enter_context(self.engine)
        self.rule.require(self.engine, self.system.name, self.system.rules)
        for name, value in self.engine.iterate.measurements.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value} at the initial weights; scale the data or the weights down")
        self.resolution = self.system.resolution(net, loss)
        self.directory = None if directory is None else folder("directory", directory)
        self.rows: list[dict[str, float]] = []
        self.recertified: list[Recertification] = []
        self.adopted: list[Recertification] = []
        self.iteration = 0
        self._noted = 0
        self.settings: dict[str, Any] = {
            **(config or {}),
            "format": RUN_FORMAT,
            "system": self.system.name,
            "rule": self.rule.name,
            "engine": self.engine.name,
            "rule_certified": self.rule.certifies(self.certificate),
            "resolution": self.resolution,
            "tolerance": tolerance,
            "absolute_tolerance": absolute_tolerance,
            "certify_every": certify_every,
            "max_iterations": max_iterations,
            "advice": self.certificate.advice,
            "reduced": None if loss.cut is None else loss.cut.to_dict(),
        }
        self.rule.start(loss.reduced, self.certificate)
        if self.directory is not None:
            held.enter_context(run_directory(self.directory, resume))
            self._trace = traces.TraceFile(self.directory)
            if resume:
                self._resume()
            else:
                write_start(self.directory, self.certificate, loss.reduced.arrays(), self.initial, self.settings)

    def _check_certificate(self, certificate: Certificate) -> None:
        if certificate.system != self.system.name:
            raise ValueError(
                f"the certificate is of {certificate.system!r}, the network of {self.system.name!r}; "
                "call certify(net, loss) with this network"
            )
        require_arrays(certificate, digests(self.loss.reduced.arrays(), self.initial))

    # -- files ---------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        assert self.directory is not None
        stored = read_json(self.directory / "config.json")
        for name in ("format", "system", "rule", "engine", "certify_every"):
            if stored.get(name) != self.settings[name]:
                raise RunDirectoryError(
                    f"the run in {self.directory} has {name} {stored.get(name)!r}, this call {self.settings[name]!r}; "
                    "resume with the same settings, or start a run in another directory"
                )
        if read_certificate(self.directory / "certificate.json").digest != self.certificate.digest:
            raise RunDirectoryError(
                f"the run in {self.directory} has a certificate of other data, weights or theorem; "
                "resume with the same data and the initial weights"
            )
        # not needed to go on, but without them the finished run could neither be loaded nor checked
        start = read_tensors(self.directory / "initial.safetensors")
        if set(start) != set(self.initial):
            raise RunDirectoryError(f"{self.directory / 'initial.safetensors'} has other arrays; start a new run")
        checkpoint = checkpoints.latest(self.directory, self.initial, self.certificate.digest)
        self.iteration = 0 if checkpoint is None else checkpoint.iteration
        self.rows = self._trace.resume(self.iteration)
        self._resume_phases(0 if checkpoint is None else checkpoint.phases, stored.get("result") or {})
        if checkpoint is not None:
            self.engine.restore(checkpoint.weights, checkpoint.engine)
            self.rule.restore(checkpoint.rule)
        self._note()  # the limits of this call too: a later one without limits of its own goes by them

    def _resume_phases(self, count: int, result: Mapping[str, Any]) -> None:
        """Adopt the recertifications that the checkpoint knows of; later ones, if any, are found again."""
        assert self.directory is not None
        files = sorted(self.directory.glob("certificate-*.json"))
        if len(files) < count:
            raise RunDirectoryError(
                f"{self.directory} has {len(files)} recertifications (certificate-*.json) for {count} that its checkpoint "
                "knows of; restore them, or start a new run"
            )
        for file in files[:count]:
            phase = Recertification(int(file.stem.split("-")[1]), read_certificate(file))
            self.adopted.append(phase)
            self.rule.adopt(self.loss.reduced, phase.certificate)
        for file in files[count:]:
            file.unlink()
        known = {t: Certificate.from_json(text) for t, text in result.get("recertified", []) if t <= self.iteration}
        known |= {phase.iteration: phase.certificate for phase in self.adopted}
        self.recertified = [Recertification(t, known[t]) for t in sorted(known)]

    def _note(self) -> None:
        """Write config.json of a run that goes on, with the recertifications that the steps do not follow: no other file has
        them."""
        assert self.directory is not None
        followed = {phase.iteration for phase in self.adopted}
        noted = [[r.iteration, r.certificate.to_json()] for r in self.recertified if r.iteration not in followed]
        write_json(self.directory / "config.json", {**self.settings, "result": {"recertified": noted}})
        self._noted = len(self.recertified)

    def _checkpoint(self) -> None:
        if self.directory is None:
            return
        self._trace.save(self.rows)
        if self._noted < len(self.recertified):
            self._note()
        checkpoints.save(
            self.directory,
            checkpoints.Checkpoint(
                self.iteration, dict(self._weights()), self.engine.state(), self.rule.state(), len(self.adopted)
            ),
            self.certificate.digest,
        )

    def _weights(self) -> Mapping[str, Tensor]:
        """Those of the engine; before the first step the initial ones to the bit, which an engine may have rotated and back."""
        return self.engine.weights() if self.iteration else self.initial

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, progress: bool, listeners: Listeners) -> Run:
        """Descend until something ends it."""
        listeners.start(Start(self.iteration, self.max_iterations, self.directory, self.certificate, self.resumed))
        first = self.rows[0]["gap"] if self.rows else self.engine.iterate.gap
        target = max(self.tolerance * first, self.absolute_tolerance)
        due = checkpoints.Schedule()
        with StopRequest() as stop, progress_line(progress, self.max_iterations, first, target) as show:
            status = RunStatus.RUNNING
            while status is RunStatus.RUNNING:
                status = self._iterate(first, target, stop, due, show, listeners)
            if len(self.rows) > 1:
                show(self.iteration, self.rows[-1]["gap"], self.rows[-2]["step"])
        return self._finish(
            status, stop.signal_number if status is RunStatus.INTERRUPTED else None, watched=bool(listeners)
        )

    def _iterate(
        self,
        first: float,
        target: float,
        stop: StopRequest,
        due: checkpoints.Schedule,
        show: Update,
        listeners: Listeners,
    ) -> RunStatus:
        iterate = self.engine.iterate
        gap = iterate.gap
        failure = self.engine.failure
        row: dict[str, float] = {"iteration": self.iteration, "gap": gap}
        if failure is None and not gap <= DIVERGED * max(first, self.resolution):
            failure = RunStatus.DIVERGED  # nothing else is measured so far off, where it may overflow
        else:
            row |= iterate.measurements
        if failure is None and not all(math.isfinite(value) for value in row.values()):
            failure = RunStatus.DIVERGED
        if failure is not None:
            self.rows.append(traces.finite_or_nan(row))
            return failure
        status = RunStatus.RUNNING
        if gap <= target:
            status = RunStatus.CONVERGED
        elif gap <= self.resolution:
            status = RunStatus.STALLED
        elif self.iteration >= self.max_iterations:
            status = RunStatus.MAX_ITERATIONS
        elif stop.signal_number is not None or listeners.stopped:
            status = RunStatus.INTERRUPTED
        if status is not RunStatus.RUNNING:
            self.rows.append(row)
            return status
        seen = self.recertified[-1].iteration if self.recertified else 0
        if self.certify_every and self.iteration > seen and self.iteration % self.certify_every == 0:
            self._recertify(first)
            row |= iterate.measurements  # distances are measured from here on, if that is followed
        if due.due(self.iteration):
            self._checkpoint()
        eta = self.rule.step(self.engine)
        if not 0.0 < eta < math.inf:
            self.rows.append(row)
            return RunStatus.STALLED
        row |= iterate.measurements  # a rule may have had exact values computed where bounds stood
        row["step"] = eta
        self.rows.append(row)
        show(self.iteration, gap, eta)
        listeners.iteration(row)
        self.engine.move(eta)
        self.iteration += 1
        return RunStatus.RUNNING

    def _recertify(self, first: float) -> None:
        """Evaluate the theorem at the current weights; follow it where it guarantees fewer iterations in total.

        And no larger gap at any iteration: every certificate stays in force, and its bound is guaranteed by steps that follow
        another one only where that one's lies under it.
        """
        # the reduced weights themselves: by way of the network they would be rounded where the data is rank deficient
        assert isinstance(self.system, Recordable)
        net = self.system.at(self.net, self.engine.weights())
        certificate = self.system.certify(net, self.loss.reduced, self.certificate.theorem, self.own_step)
        offer = Recertification(self.iteration, certificate)
        target = max(self.tolerance * first, self.absolute_tolerance, self.resolution)
        phases = [Recertification(0, self.certificate), *self.adopted]
        remaining = min(p.iterations_to(target) for p in phases) - self.iteration
        needed = offer.iterations_to(target) - self.iteration
        worthwhile = offer.certificate.claim.of_iterations and needed < math.inf and needed <= WORTHWHILE * remaining
        if not worthwhile or not all(offer.promises_at_most(p, self.resolution) for p in phases if p.certificate.holds):
            self.recertified.append(offer)
            return
        if self.directory is not None:
            self._checkpoint()  # the arrays that the new certificate speaks of, before the certificate itself
            write_atomic(
                self.directory / f"certificate-{self.iteration:09d}.json", offer.certificate.to_json().encode()
            )
        self.recertified.append(offer)
        self.adopted.append(offer)
        self.rule.adopt(self.loss.reduced, offer.certificate)
        if isinstance(self.engine, Anchored):
            self.engine.anchor()
        self._checkpoint()  # again, now that the rule follows it

    def _finish(self, status: RunStatus, stopped_by: int | None, watched: bool) -> Run:
        problem = self.loss.reduced.arrays()
        if watched:
            self._require_unchanged(problem)
        weights = {name: tensor.contiguous().clone() for name, tensor in self._weights().items()}
        iteration = self.iteration
        if status.failed:
            iteration, weights = self._last_good()
        self.system.write(self.net, self.loss, weights)
        run = Run(
            certificate=self.certificate,
            rows=self.rows,
            status=status,
            rule=self.rule.name,
            engine=self.engine.name,
            rule_certified=self.settings["rule_certified"],
            problem=problem,
            initial=self.initial,
            final=weights,
            final_iteration=iteration,
            resolution=self.resolution,
            network={} if self.loss.basis is None else {k: v.clone() for k, v in self.net.state_dict().items()},
            recertified=self.recertified,
            adopted=self.adopted,
            stopped_by=stopped_by,
            config=self.settings,
            directory=self.directory,
        )
        if self.directory is not None:
            if not status.failed:
                self._checkpoint()
            self._trace.save(self.rows)
            write_end(self.directory, run)
        return run

    def _require_unchanged(self, problem: Mapping[str, Tensor]) -> None:
        """Callbacks can reach the loss: the steps must be of the data that the certificate speaks of."""
        try:
            require_arrays(self.certificate, digests(problem, self.initial))
        except ValueError as error:
            raise ValueError(
                f"the arrays of the loss changed while the run went on ({error}); a callback must not write into them"
            ) from None

    def _last_good(self) -> tuple[int, dict[str, Tensor]]:
        """After a divergence: the newest checkpoint's iteration and weights, the initial ones without a directory."""
        if self.directory is not None:
            checkpoint = checkpoints.latest(self.directory, self.initial, self.certificate.digest)
            if checkpoint is not None:
                return checkpoint.iteration, checkpoint.weights
        return 0, dict(self.initial)
