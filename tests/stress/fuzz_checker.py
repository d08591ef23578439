"""Fuzz the checker: mutated files of good runs of five systems, each of which must be refused unless what it claims is true.

    python tests/stress/fuzz_checker.py --inputs 1000000

Prints the number of inputs by outcome, the slowest one, and every violation: an exception or a warning, an accepted untruth
(judged without the checker), or more than two seconds. The exit code is 1 if there is one. The inputs are a function of
``--seed`` and the good runs, not of ``--processes``.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from claims import MEASURE
from fuzz import Files, Fuzzer, Harness, Input, files_of
from good_runs import SYSTEMS

from surefoot_check import checker, systems
from surefoot_check.problems import Problem
from surefoot_check.rigor.bounds import Array, Level
from surefoot_check.system import System

CHUNK = 500
HANG = 60
"""Seconds after which an input is given up."""
MEMORY = 8 << 30
"""Bytes of address space of a process; what asks for more fails."""


class Hang(BaseException):
    """An input takes too long; not an ``Exception``, so that nothing swallows it."""


@dataclass
class Count:
    """What became of some inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    violations: list[str] = field(default_factory=list)
    peak: int = 0
    """Largest resident size of a process, MiB."""

    def add(self, other: Count) -> None:
        """Add the other's inputs."""
        self.outcomes += other.outcomes
        self.slowest = max(self.slowest, other.slowest)
        self.violations += other.violations
        self.peak = max(self.peak, other.peak)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{counts}; slowest {self.slowest[0]:.2f} s ({self.slowest[1]}); {len(self.violations)} violations"


class Remembered:
    """What the checker measures on the arrays of the good runs, computed once: most inputs have other numbers in the
    certificate, and these arrays. Changed arrays are measured in full."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, ...]] = {}
        self.learning = True

    def install(self) -> None:
        """Let the checker use it."""
        systems.SYSTEMS = {name: self._system(name, system) for name, system in systems.SYSTEMS.items()}

    def _system(self, name: str, system: System) -> System:
        of = system.enclosures

        def load_problem(kind: object, arrays: Mapping[str, Array], level: Level) -> Problem:
            key = (name, repr(kind), level.name)
            return self._once(key, arrays, lambda: of.load_problem(kind, dict(arrays), level))

        def base_quantities(problem: Problem, weights: Mapping[str, Array], q: Mapping[str, float]) -> Any:
            key = (name, id(problem), *(q.get(choice) for choice in ("radius", "node_min", "node_max")))
            return self._once(key, weights, lambda: of.base_quantities(problem, weights, q), problem)

        def gap_upper(problem: Problem, weights: Mapping[str, Array]) -> Any:
            return self._once((name, id(problem)), weights, lambda: of.gap_upper(problem, weights), problem)

        known = {"load_problem": load_problem, "base_quantities": base_quantities, "gap_upper": gap_upper}
        others = {each: getattr(of, each) for each in ("FIXED", "read_weights", "sizes", "gap_exact")}
        return replace(system, enclosures=SimpleNamespace(**others, **known))

    def _once(self, key: tuple[Any, ...], arrays: Mapping[str, Array], make: Callable[[], Any], *alive: Any) -> Any:
        whole = (*key, *((name, v.dtype.str, v.shape, v.tobytes()) for name, v in sorted(arrays.items())))
        if whole in self._known:
            return self._known[whole][0]
        made = make()
        if self.learning:
            self._known[whole] = (made, *alive)  # kept alive, as the key names objects by their id
        return made


class Worker:
    """A process with directories of its own."""

    def __init__(self, runs: dict[str, Files], donors: tuple[Files, ...], seed: int) -> None:
        self._fuzzer, self._seed = Fuzzer(runs, donors), seed
        self._folder = tempfile.TemporaryDirectory()
        self._harness = Harness(Path(self._folder.name), runs)
        checker.self_test = functools.cache(checker.self_test)  # of the machine, not of the input
        memory = Remembered()
        memory.install()
        for name in runs:
            verdict = self._harness.check(Input(name, {}, "nothing", False))
            if verdict.outcome != "accept" or verdict.violation:
                raise RuntimeError(f"the good run of {name} is not accepted: {verdict}")
        memory.learning = False
        warnings.simplefilter("error", RuntimeWarning)  # numpy's
        signal.signal(signal.SIGALRM, _hang)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def count(self, chunk: range) -> Count:
        """Check the inputs of these numbers."""
        found = Count()
        for number in chunk:
            name = f"{self._seed}:{number}"
            made = self._fuzzer.input(name)
            try:
                signal.alarm(HANG)
                verdict = self._harness.check(made)
                signal.alarm(0)
            except Hang:
                found.violations.append(f"input {name}: {made.how}: no answer after {HANG} s")
                continue
            found.outcomes[verdict.outcome] += 1
            found.slowest = max(found.slowest, (verdict.seconds, f"input {name}: {made.how}"))
            if verdict.violation:
                found.violations.append(
                    f"input {name} of {made.run}: {made.how}: {verdict.outcome}: {verdict.violation}"
                )
        found.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return found


def _hang(signal_number: int, frame: FrameType | None) -> None:
    raise Hang


def good_runs() -> tuple[dict[str, Files], tuple[Files, ...]]:
    """A run of every system of which accepted inputs can be judged, and another of each to take pieces from."""
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Files] = {}
        donors: list[Files] = []
        for name in MEASURE:
            make = SYSTEMS[name]
            make(Path(folder) / name)
            make(Path(folder) / f"{name}-1", 1)
            runs[name] = files_of(Path(folder) / name)
            donors.append(files_of(Path(folder) / f"{name}-1"))
    return runs, tuple(donors)


_worker: list[Worker] = []


def _start(runs: dict[str, Files], donors: tuple[Files, ...], seed: int) -> None:
    _worker.append(Worker(runs, donors, seed))


def _count(chunk: range) -> Count:
    return _worker[0].count(chunk)


@contextmanager
def counted(processes: int, chunks: Iterable[range], *start: object) -> Iterator[Iterator[Count]]:
    """The counts of the chunks as they come, from this process or from several others."""
    if processes == 1:
        _start(*start)  # type: ignore[arg-type]
        yield map(_count, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(processes, _start, start) as pool:
        yield pool.imap_unordered(_count, chunks)


def main() -> int:
    """Run the program; 1 if there is a violation."""
    parser = argparse.ArgumentParser(description="Fuzz the checker.", epilog=__doc__.partition("\n")[2])
    parser.add_argument("--inputs", type=int, default=100_000, help="number of inputs (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all of them (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="processes (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs, donors = good_runs()
    end = options.first + options.inputs
    chunks = [range(i, min(i + CHUNK, end)) for i in range(options.first, end, CHUNK)]
    total, shown, begun = Count(), 0.0, time.monotonic()
    with counted(options.processes, chunks, runs, donors, options.seed) as counts:
        for count in counts:
            total.add(count)
            for violation in count.violations:
                print(violation, flush=True)
            if time.monotonic() - shown > 20.0:
                shown = time.monotonic()
                print(f"{total.outcomes.total()} inputs after {shown - begun:.0f} s: {total}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{total.outcomes.total()} inputs in {seconds:.0f} s: {total}; peak memory {total.peak} MiB of a process")
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
