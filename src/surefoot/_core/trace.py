"""The recorded trajectory: one row of measurements an iterate."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from surefoot_check.text import counted

from .audit import Audit
from .certificate import Certificate, digests, require_arrays
from .io import RunDirectoryError, plain, write_atomic
from .losses import Loss
from .registry import adopted
from .system import AnyRecordable, Recordable
from .validate import kind_of, positive

Row = dict[str, float]
UNFINISHED = "the last step was announced and what it led to was not recorded: call trace.record(net) after it"


def finite_or_nan(row: Row) -> Row:
    """The row as it reads back from its file: what is not finite is NaN."""
    return {name: value if math.isfinite(value) else math.nan for name, value in row.items()}


def encode(rows: Iterable[Row]) -> str:
    """Rows as JSON lines (plain decimals that read back to the same floats; null for what is not finite)."""
    return "".join(json.dumps(plain(row), sort_keys=True, allow_nan=False) + "\n" for row in rows)


def read(path: Path) -> list[Row]:
    """Rows of a ``trace.jsonl``, with NaN for null; an unfinished last line (a killed run) is dropped, any other damage is an
    error."""
    try:
        lines = path.read_text().split("\n")
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing; this is not a complete run directory") from error
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); restore it or run again") from error
    rows: list[Row] = []
    for number, text in enumerate(lines):
        if not text:
            continue
        try:
            row = json.loads(text)
            if not isinstance(row, dict) or row.get("iteration") != len(rows):
                raise ValueError(f"iteration {len(rows)} expected")
        except (ValueError, RecursionError) as error:
            if number == len(lines) - 1:
                break
            raise RunDirectoryError(
                f"{path} is damaged at line {number + 1} ({error}); restore it or run again"
            ) from error
        rows.append({name: math.nan if value is None else value for name, value in row.items()})
    return rows


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows, atomically."""
    write_atomic(path, encode(rows).encode())


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows at the end, and wait until the disk has them; a crash can cut off the last line only, which ``read`` drops."""
    try:
        with path.open("a") as file:
            file.write(encode(rows))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(
            error.errno, f"could not write the trace ({error.strerror}); free space: checkpoints are kept", str(path)
        ) from error


class TraceFile:
    """``trace.jsonl`` of a run that goes on. Rows are saved before the checkpoint that needs them."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "trace.jsonl"
        self._written = 0

    def resume(self, iteration: int) -> list[Row]:
        """The rows before the step at ``iteration``; later ones are removed from the file.

        Raises:
            RunDirectoryError: there are fewer, or the file is missing or damaged.
            OSError: the file cannot be written.
        """
        rows = read(self._path)[:iteration] if iteration else []
        if len(rows) < iteration:
            raise RunDirectoryError(
                f"the trace in {self._path.parent} has {len(rows)} rows for {iteration} iterations; it was cut: start a new run"
            )
        write(self._path, rows)
        self._written = len(rows)
        return rows

    def save(self, rows: list[Row]) -> None:
        """Write the rows that are new; ``OSError`` if that fails."""
        if self._written < len(rows):
            append(self._path, rows[self._written :])
            self._written = len(rows)


class Trace:
    """A recorder for a training loop of one's own.

    Call ``record(net, step_size)`` before each update, and ``record(net)`` after the last; then ``sf.audit(trace, certificate)``.
    The recorder also checks that each iterate is a gradient step of that size from the one before, and the audit says so: in all
    of the network's weights, also where the data is rank deficient and the theorems speak of a part of them. Its first row must
    be of the weights that the certificate speaks of.

    Args:
        loss: the loss of ``sf`` that is minimised.

    Attributes:
        rows: the measurements of each recorded iterate by name, float64 numbers: ``iteration``, ``gap``, before an update
            ``step``, and those of the network's system.
        resolution: the gap that rounding alone can cause.

    Example:
        >>> X = torch.randn(20, 3).double()
        >>> loss = sf.SquaredLoss(X, X.sum(1))
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> certificate, trace = sf.certify(net, loss, step=1e-3), sf.Trace(loss)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        >>> for _ in range(20):
        ...     trace.record(net, 1e-3)
        ...     optimizer.zero_grad()
        ...     (0.5 * (net(X)[:, 0] - X.sum(1)).square().sum()).backward()
        ...     optimizer.step()
        >>> trace.record(net)
        >>> sf.audit(trace, certificate).verdict
        'no violation'
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.rows: list[Row] = []
        self._system: AnyRecordable | None = None
        self._digests: dict[str, str] = {}
        self.resolution = 0.0
        self._expected: dict[str, Tensor] | None = None
        self._trained: list[str] = []
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def record(self, net: nn.Module, step_size: float | None = None) -> None:
        """Record the current weights, and the step that will be taken from them.

        Weights that are not finite are refused. No audit of a trace that ends with the step that led to them holds.

        Raises:
            TypeError: a network of an unknown or of another kind than before, or a step that is no number.
            ValueError: a step that is not positive and finite, or weights that do not fit or are not finite.
        """
        if step_size is not None:
            step_size = positive("step_size", step_size, "a positive number, or nothing after the last step")
        if self.rows and "step" not in self.rows[-1]:
            raise ValueError("the trace was closed by record(net) without a step; start a new sf.Trace for another run")
        system, net = adopted(net, self.loss)
        if not isinstance(system, Recordable):
            raise TypeError(system.refusal("trace"))
        if self._system is not None and system is not self._system:
            raise TypeError("net is of another kind than in the rows before; use one trace for one network")
        self._system, loss = system, system.problem(net, self.loss)
        self.resolution = max(self.resolution, system.resolution(net, loss))
        row: Row = {"iteration": len(self.rows), **system.measure(net, loss)}
        if not self.rows:
            self._digests = digests(loss.reduced.arrays(), system.reduced(net, loss))
        weights = system.recorded(net, loss)
        if self._expected is not None:
            moved = sum(float(((weights[k] - v) ** 2).sum()) for k, v in self._expected.items())
            size = sum(float((self._expected[k] ** 2).sum()) for k in self._trained)
            row["defect"] = math.sqrt(moved / size) if size > 0.0 else math.sqrt(moved)
            row |= system.measure_step(net, loss, self._last, self.rows[-1]["step"])
        self._last, self._first = weights, self._first or weights
        row |= system.measure_since(net, loss, self._first)
        if step_size is not None:
            row["step"] = step_size
            gradient = system.gradient(net, loss)
            self._trained = list(gradient)
            self._expected = {k: W - step_size * gradient[k] if k in gradient else W for k, W in weights.items()}
        self.rows.append(finite_or_nan(row))

    def __repr__(self) -> str:
        """How far it goes, in a line."""
        gaps = f", gap {self.gaps[0]:.6g} -> {self.gaps[-1]:.6g}" if self.rows else ""
        return f"<Trace of {self.loss!r}: {counted(len(self.rows), 'row')}{gaps}>"

    @property
    def gaps(self) -> list[float]:
        """Gap of each recorded iterate."""
        return [row["gap"] for row in self.rows]

    @property
    def step_sizes(self) -> list[float]:
        """The steps taken."""
        return [row["step"] for row in self.rows if "step" in row]


def audit(trace: Trace, certificate: Certificate) -> Audit:
    """Check every inequality of the certificate's theorem along a trace recorded by a loop of one's own.

    Args:
        trace: recorded from the weights and on the data that the certificate is of, closed by ``trace.record(net)``.
        certificate: of ``sf.certify``, of a constant step with ``step=``; it need not hold: then only what holds for every run is
            checked.

    Returns:
        The audit: each inequality with its worst ratio and first violation.

    Raises:
        ValueError: an empty trace, or one that starts from other weights or data than those of the certificate.
        TypeError: no trace, or one of another system than the certificate's.

    Example:
        >>> loss = sf.SquaredLoss(torch.eye(2).double(), torch.eye(2).double())
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> certificate, trace = sf.certify(net, loss, step=1e-2), sf.Trace(loss)
        >>> for step in (1e-2, None):  # the loop says that it takes the step, and forgets to
        ...     trace.record(net, step)
        >>> audit = sf.audit(trace, certificate)
        >>> [line.name for line in audit.lines if not line.holds][-1]
        'each iterate is a gradient step from the one before (relative defect)'
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"trace is {kind_of(trace)}; pass an sf.Trace (of a Run of sf.descend: run.audit())")
    system = trace._system
    if not trace.rows or system is None:
        raise ValueError("the trace is empty; call trace.record(net, step_size) before each update")
    if system.name != certificate.system:
        raise TypeError(
            f"the trace is of {system.name!r}, the certificate of {certificate.system!r}; certify the recorded network"
        )
    require_arrays(certificate, trace._digests)
    result = system.audit(trace.rows, certificate, trace.resolution)
    return replace(result, incomplete=UNFINISHED) if "step" in trace.rows[-1] else result
