"""kill -9 and other signals during training, at random and at chosen moments, for every system: does the resumed run differ?

    python tests/stress/kill_training.py --kills 8
    python tests/stress/kill_training.py --kills 3 --systems two-layer svd --seed 7
    python tests/stress/kill_training.py --short --kills 2

Each system is trained once without interruption, and once with a checkpoint before every step, which holds what any checkpoint
must hold. Then runs are killed one to three times each, resumed after each kill as a user would, and compared with those two:
every file, byte for byte, but for the elapsed times that ``trainings.UNREPEATABLE`` names. Prints a table; exit code 1 on any
difference, and where SIGTERM or SIGHUP does not end a training with exit code 143 or 129 and a hint how to go on.

Children are forked from a process that has imported everything, so that a kill falls into the training and not into imports.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from draws import normal
from trainings import TRAININGS, differences

import surefoot as sf
from surefoot import cli
from surefoot._cli import training
from surefoot._cli.commands import modules
from surefoot._core import checkpoints, trace
from surefoot._deconvolution.learned import training as deconvolution_training
from surefoot._report import plots  # noqa: F401 - for the children
from surefoot.deconvolution import LADMM, DeconvolutionProblem, PeriodicBlur
from surefoot_check import check

WARM = (
    "torch._dynamo",
    "flint",
    "numba",
    "pywt",
    "scipy.optimize",
    "sklearn.datasets",
    "matplotlib.figure",
    "rich.table",
)
"""What children would import one after the other; forked from a parent that has it, they need not. The command line alone needs
those after the fourth."""
MODULES = {name: import_module(f"{module.__name__}_run") for name, module in modules().items()}
"""What the commands do, imported for the children."""
LIMIT = 120.0
"""Seconds after which a child counts as hanging."""

Train = Callable[[Path, bool], int]
"""Trains in a directory, anew or resumed; the exit code."""


@dataclass(frozen=True)
class Case:
    """A training to be killed.

    Attributes:
        train: what runs in the child.
        certified: the directory below the run's that the checker must accept, if any.
    """

    train: Train
    certified: str | None = None


def command(system: str, *options: str, report: bool = False) -> Train:
    """``surefoot train SYSTEM``. What takes longest in a small run and only reads is left out, unless the report is asked for."""

    def train(directory: Path, resume: bool) -> int:
        if not report:
            training.write_report = lambda directory, data=None: Path(directory) / "report.html"
        MODULES["deconvolution"].compared = lambda *_, **__: [{"noise": 0.01, "start": 0.0}]
        settings = ["--resume"] if resume else list(options)
        return cli.main(["train", system, "--out", str(directory), "--quiet", *settings])

    return train


def refused(train: Callable[[Path, bool], object]) -> Train:
    """A function of the library, with the exit code that the command line would have."""

    def run(directory: Path, resume: bool) -> int:
        try:
            train(directory, resume)
        except sf.RunDirectoryError as error:
            print(f"refused: {error}", file=sys.stderr)
            return 2
        return 0

    return run


def train_sgd(directory: Path, resume: bool) -> None:
    """``sf.sgd``, which the command line does not have."""
    X, Y = normal(60, 4, seed=0), normal(60, 2, seed=1)
    net = sf.nn.LinearResNet.modified_identity(4, 2, 8, 3, 2.0)
    sf.sgd.descend(net, X, Y, 8, 1e-4, 400, seed=3, directory=directory, resume=resume)


def train_ladmm(directory: Path, resume: bool) -> None:
    """L-ADMM on a picture: ``descend`` of the deconvolution system."""
    blur = PeriodicBlur(torch.ones(3, 3, dtype=torch.float64) / 9.0, (24, 20))
    observed = blur.forward(normal(2, 1, 24, 20, seed=4)) + 0.01 * normal(2, 1, 24, 20, seed=5)
    problem = DeconvolutionProblem(observed, blur, 0.02, "db2")
    sf.descend(
        LADMM(0.5), problem, max_iterations=300, tolerance=0.0, directory=directory, resume=resume, progress=False
    )


CASES: dict[str, Case] = {
    "two-layer": Case(
        command(
            "two-layer",
            *("--data", "diabetes", "--width", "40", "--certify-every", "7", "--max-iterations", "260"),
            *("--tolerance", "0", "--seed", "1"),
            report=True,
        ),
        ".",
    ),
    "linear-resnet": Case(
        command(
            "linear-resnet",
            *("--data", "diabetes", "--depth", "4", "--max-iterations", "160", "--tolerance", "0"),
        ),
        ".",
    ),
    "sgd": Case(refused(train_sgd)),
    "implicit": Case(
        command(
            "implicit",
            *("--data", "digits", "--classes", "0,1", "--samples", "12", "--max-iterations", "120"),
            *("--tolerance", "0", "--certify-every", "20"),
        ),
        ".",
    ),
    "step-sizes": Case(
        command(
            "step-sizes", "--size", "6x8", "--problems", "4", "--iterations", "8", "--epochs", "40", "--range", "1,1.9"
        ),
        ".",
    ),
    "step-sizes adam": Case(
        command(
            "step-sizes",
            *("--problem", "lasso", "--optimizer", "adam", "--size", "6x8", "--problems", "4", "--iterations", "8"),
            *("--epochs", "60"),
        ),
        ".",
    ),
    "inverse": Case(command("inverse", "--size", "6x8", "--count", "10", "--epochs", "300"), "certificate"),
    "svd": Case(
        command(
            "svd",
            *("--size", "4x5", "--count", "40", "--layers", "2", "--epochs", "40", "--batch", "5", "--inverse", "2,2"),
        )
    ),
    "deconvolution": Case(
        command(
            "deconvolution",
            *("--crop", "38", "--layers", "2", "--inverse", "2,2", "--loss", "objective", "--batch", "2"),
            *("--epochs", "30"),
        )
    ),
    "ladmm": Case(refused(train_ladmm)),
}
SHORT = {
    name: Case(refused(train), "." if name in ("two-layer", "implicit", "solving") else None)
    for name, train in TRAININGS.items()
}
"""Trainings by the library, of a few steps each."""


# -- children ----------------------------------------------------------------------------------------------------------


def child(case: Case, directory: Path, resume: bool, log: Path, prepare: Callable[[], None] | None = None) -> int:
    """Fork a process that trains; its id."""
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        with log.open("ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if prepare is not None:
            prepare()
        code = case.train(directory, resume)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, seconds: float) -> int | None:
    """The exit code of a child (negative: the signal that killed it); ``None`` if it is still running after that time."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


def ended(process: int) -> int:
    """The exit code of a child that must end by itself."""
    code = wait(process, LIMIT)
    if code is None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise TimeoutError("a child did not end")
    return code


def die() -> None:
    """What ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


# -- moments -----------------------------------------------------------------------------------------------------------


def at_rename(number: int, before: bool) -> None:
    """Die at the n-th rename that makes a file final: before it, with the temporary file complete, or right after it."""
    replace, left = os.replace, [number]

    def replacing(*names: object, **options: object) -> None:
        left[0] -= 1
        if left[0] < 0 and before:
            die()
        replace(*names, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if left[0] < 0:
            die()

    os.replace = replacing  # pyright: ignore[reportAttributeAccessIssue]


def in_write(number: int) -> None:
    """Die in the n-th write, with the end of the file not on the disk."""
    fsync, left = os.fsync, [number]

    def syncing(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.truncate(handle, os.fstat(handle).st_size - 10)
            die()
        fsync(handle)

    os.fsync = syncing


def in_append(number: int) -> None:
    """Die in the n-th append to the trace, with the last line half written."""
    append, left = trace.append, [number]

    def appending(path: Path, rows: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            with path.open("a") as file:
                file.write(trace.encode(rows)[:-20])  # pyright: ignore[reportArgumentType]
            die()
        append(path, rows)  # pyright: ignore[reportArgumentType]

    trace.append = appending


def after_certificate() -> None:
    """Die between the certificate of a later phase and the checkpoint that follows it."""
    replace = os.replace

    def replacing(source: object, target: object, **options: object) -> None:
        replace(source, target, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if Path(str(target)).name.startswith("certificate-"):
            die()

    os.replace = replacing  # pyright: ignore[reportAttributeAccessIssue]


def always_due() -> None:
    """A checkpoint before every step."""
    checkpoints.Schedule.due = lambda self, iteration: True


@dataclass
class Measured:
    """What an uninterrupted run does."""

    seconds: float
    renames: int
    appends: int
    later_certificates: int


@dataclass(frozen=True)
class Moment:
    """When and how a run ends too early: by a signal after so many seconds, or by what ``prepare`` does to the child."""

    name: str
    seconds: float = LIMIT
    number: signal.Signals = signal.SIGKILL
    prepare: Callable[[], None] | None = None


def moments(measured: Measured, random_: random.Random) -> Iterator[Moment]:
    """Moments for ever, every other one random."""
    writes, appends = range(measured.renames), range(measured.appends)
    while True:
        chosen = [
            Moment("before rename", prepare=partial(at_rename, random_.choice(writes), True)),
            Moment("after rename", prepare=partial(at_rename, random_.choice(writes), False)),
            Moment("in write", prepare=partial(in_write, random_.choice(writes))),
        ]
        if appends:
            chosen.append(Moment("in append", prepare=partial(in_append, random_.choice(appends))))
        if measured.later_certificates:
            chosen.append(Moment("after certificate", prepare=after_certificate))
        chosen += [
            Moment(number.name, random_.uniform(0.0, measured.seconds), number)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        ]
        random_.shuffle(chosen)
        for moment in chosen:
            yield Moment("random", random_.uniform(0.0, measured.seconds))
            yield moment


def reached(directory: Path) -> str:
    """How far a run had come when it died: its newest checkpoint, or the phase before and after training."""
    names = {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.name[0] != "."}
    found = [int(Path(name).name[:9]) for name in names if "checkpoints/" in name]
    if any(Path(name).name in ("final.safetensors", "best.safetensors") for name in names):
        return "end"
    return f"{max(found)}" if found else "start"


def verdict(case: Case, directory: Path) -> str:
    """What the checker says."""
    return "" if case.certified is None else check(directory / case.certified).outcome.value


# -- the stress --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What happened to one system."""

    kills: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    restarts: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    checked: str = ""


def stress(case: Case, kills: int, folder: Path, random_: random.Random) -> Tally:
    """Kill trainings of one system so many times."""
    # all of one name: the report says it
    log, whole, dense = folder / "log.txt", folder / "whole" / "run", folder / "dense" / "run"
    counts = folder / "counts.json"
    tally = Tally()

    def counted() -> None:
        replace, append, numbers = os.replace, trace.append, [0, 0]

        def replacing(*names: object, **options: object) -> None:
            numbers[0] += 1
            replace(*names, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
            counts.write_text(json.dumps(numbers))

        def appending(path: Path, rows: object) -> None:
            numbers[1] += 1
            append(path, rows)  # pyright: ignore[reportArgumentType]

        os.replace, trace.append = replacing, appending  # pyright: ignore[reportAttributeAccessIssue]

    begin = time.monotonic()
    code = ended(child(case, whole, False, log, counted))
    if code:
        tally.wrong.append(f"the uninterrupted run ended with {code}")
        return tally
    seconds = time.monotonic() - begin
    renames, appends = json.loads(counts.read_text())
    measured = Measured(seconds, renames, appends, len([*whole.glob("certificate-*")]))
    if ended(child(case, dense, False, log, always_due)):
        tally.wrong.append("the run with all checkpoints failed")
    tally.wrong += [f"with all checkpoints: {what}" for what in differences(dense, whole, dense)]
    tally.checked = verdict(case, whole)
    plan = moments(measured, random_)
    while tally.kills.total() < kills and not tally.wrong:
        directory = folder / str(tally.runs) / "run"
        tally.runs += 1
        _one_run(case, directory, log, plan, min(random_.randint(1, 3), kills - tally.kills.total()), tally)
        tally.wrong += [f"{directory.parent.name}: {what}" for what in differences(directory, whole, dense)]
        if case.certified is not None and verdict(case, directory) != tally.checked:
            tally.wrong.append(
                f"{directory.parent.name}: the checker says {verdict(case, directory)}, not {tally.checked}"
            )
        if not tally.wrong:
            shutil.rmtree(directory)
    return tally


def _one_run(
    case: Case,
    directory: Path,
    log: Path,
    plan: Iterator[Moment],
    kills: int,
    tally: Tally,
) -> None:
    """Start a run, kill it up to so many times, and go on until it ends."""
    resume, code = False, 0
    for number in range(kills + 1):
        moment = next(plan) if number < kills else Moment("")
        said = log.stat().st_size
        process = child(case, directory, resume, log, moment.prepare)
        code = wait(process, moment.seconds)
        if code is None:
            os.kill(process, moment.number)
            code = ended(process)
        if code == 2 and resume:  # cut off before anything could be resumed: start again
            tally.restarts += 1
            code = ended(child(case, directory, False, log, moment.prepare))
        tally.resumes += resume
        if code in (-moment.number, 128 + moment.number):
            tally.kills[moment.name] += 1
            tally.hits[reached(directory)] += 1
            resume = directory.exists()
        elif code == 0:
            resume = True  # it was done before the moment came; resuming must change nothing
        else:
            tally.wrong.append(f"{directory.parent.name}: a child ended with {code}")
            return
        if code in (129, 143) and b"resume with: surefoot train" not in log.read_bytes()[said:]:
            tally.wrong.append(f"{directory.parent.name}: {moment.name} without a hint")
    if code:
        tally.wrong.append(f"{directory.parent.name}: did not end")


def table(tallies: dict[str, Tally]) -> str:
    """One row a system."""
    lines = [f"{'system':<16} {'kills':>5} {'resumes':>7} {'restarts':>8} {'equal':<5} {'checker':<7} where they hit"]
    for name, tally in tallies.items():
        hits = tally.hits
        numbers = sorted(int(where) for where in hits if where.isdigit())
        middle = sum(hits[str(number)] for number in numbers)
        places = [f"start {hits['start']}" if hits["start"] else ""]
        places += [f"checkpoints {numbers[0]}-{numbers[-1]}: {middle}" if numbers else ""]
        places += [f"end {hits['end']}" if hits["end"] else ""]
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(tally.kills.items()))
        lines.append(
            f"{name:<16} {tally.kills.total():>5} {tally.resumes:>7} {tally.restarts:>8} "
            f"{'no' if tally.wrong else 'yes':<5} {tally.checked:<7} {', '.join(filter(None, places))} ({kinds})"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the stress; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6, metavar="INT", help="for each system (default: 6)")
    parser.add_argument("--systems", nargs="+", choices=list(CASES), metavar="SYSTEM", help=f"of {', '.join(CASES)}")
    parser.add_argument("--short", action="store_true", help="trainings of a few steps, without the command line")
    parser.add_argument("--seed", type=int, default=0, metavar="INT", help="of the moments (default: 0)")
    given = parser.parse_args()
    cases = SHORT if given.short else CASES
    torch.set_num_threads(1)
    deconvolution_training.VALIDATION = 2
    for module in WARM[:4] if given.short else WARM:
        importlib.import_module(module)
    tallies: dict[str, Tally] = {}
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        TRAININGS["step-sizes"](folder / "warm")  # loads compiled functions, which takes longer than a short training
        for name in given.systems or cases:
            place = folder / name
            place.mkdir()
            begin = time.monotonic()
            tallies[name] = stress(cases[name], given.kills, place, random.Random(f"{given.seed} {name}"))
            print(f"{name}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
            for what in tallies[name].wrong:
                print(f"  {what}", file=sys.stderr)
            if tallies[name].wrong:
                print(place.joinpath("log.txt").read_text(errors="replace")[-3000:], file=sys.stderr)
    print(table(tallies))
    return int(any(tally.wrong for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
