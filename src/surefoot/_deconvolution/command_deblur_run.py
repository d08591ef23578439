"""What ``deblur`` does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surefoot_check.text import visible

from .._cli.errors import Exit, message_of
from .._cli.screen import Screen, count, number, print_json
from .._cli.values import at_least_one
from .._core.io import write_atomic
from .._core.status import RunStatus
from .._data.kernel_files import read_kernel
from .._data.picture_files import read_photo, require_room
from .._data.pictures import Picture, write_png
from .command_deblur import Deblur
from .command_deblur_files import Job, Plan, plan
from .command_deblur_page import page
from .command_deblur_words import outcome, record, show
from .excerpt import Excerpt
from .learned.network import LearnedDeconvolution
from .photo.deblur import Deblurred, deblur
from .photo.kernel_makers import kernel_by_formula
from .photo.priors import AUTOMATIC, POWER

BUNDLED = "bundled"
"""In the place of a file of weights."""
WITH_POWER = "hyper-laplacian"
"""The prior that --power chooses."""


@dataclass(frozen=True)
class _Done:
    """One photo of the command: what became of it.

    Attributes:
        job: which.
        values: plain values for programs.
        deblurred: ``None`` where it was left out or failed.
    """

    job: Job
    values: dict[str, Any]
    deblurred: Deblurred | None = None

    @property
    def failed(self) -> bool:
        """Whether nothing was written that should have been."""
        return self.values["error"] is not None


def run_deblur(options: Deblur) -> int:
    """``surefoot deblur``."""
    _check(options)
    kernel = kernel_by_formula(options.kernel)
    if kernel is None:
        kernel = torch.from_numpy(read_kernel(options.kernel))
    if options.turn_kernel:
        kernel = kernel.flip(-2, -1)
    net = None if options.weights is None else _network(options.weights)
    planned = plan(options.photos, options.kernel, options.out, paged=options.page, skip_existing=options.skip_existing)
    if planned.folder is None:
        return _single(options, planned.jobs[0], kernel, net)
    return _several(options, planned, kernel, net)


def _network(weights: str) -> LearnedDeconvolution:
    if weights == BUNDLED:
        return LearnedDeconvolution.bundled()
    return LearnedDeconvolution.load(Path(weights).expanduser())


def _check(options: Deblur) -> None:
    """Raise ``ValueError`` for options out of range, before any file is read."""
    if not options.photos:
        raise ValueError("there is no photo; name one or more files or folders before the options")
    if options.iterations is not None:
        at_least_one("--iterations", options.iterations)
        if options.prior in (AUTOMATIC, WITH_POWER):
            raise ValueError("--iterations goes with --prior tv or wavelet; leave it out")
    at_least_one("--tile", options.tile)
    if options.noise is not None and not 0.0 < options.noise < 1.0:
        raise ValueError(f"--noise is {options.noise:g}; it must be above 0 and below 1, for example 0.01 for 1 %")
    if options.white is not None and not 0.0 < options.white < float("inf"):
        raise ValueError(f"--white is {options.white:g}; it must be above 0, such as 4095 for 12 bits")
    if options.power is not None:
        if not 0.5 <= options.power <= 1.0:
            raise ValueError(f"--power is {options.power:g}; it must be from 0.5 to 1, such as 0.8")
        if options.prior not in (AUTOMATIC, WITH_POWER):
            raise ValueError(f"--power goes with --prior {WITH_POWER}; leave it out")


def _single(options: Deblur, job: Job, kernel: Tensor, net: LearnedDeconvolution | None) -> int:
    """One photo, described at length."""
    screen = Screen(silent=options.json or options.quiet)
    if job.done:
        done = _Done(job, _short_record(job, skipped=True))
    else:
        with _progress(_live(options), "tiles") as advance:
            done = _restored(options, job, kernel, net, advance)
    found = done.deblurred
    if found is not None:
        show(screen, done.values, found)
    else:
        screen.say(f"{job.out} exists, so nothing is done (--skip-existing)")
    if options.json:
        print_json(done.values)
    elif options.quiet:
        print(_line(done))
    if done.failed:
        print("surefoot: nothing finite came out, so nothing was written", file=sys.stderr)
    return Exit.FAILED if done.failed else Exit.YES


def _several(options: Deblur, planned: Plan, kernel: Tensor, net: LearnedDeconvolution | None) -> int:
    """Photos one after the other, a line for each; what fails is said and does not stop the others."""
    screen = Screen(silent=options.json or options.quiet)
    jobs, done = planned.jobs, list[_Done]()
    try:
        with _progress(_live(options), "photos", len(jobs)) as advance:
            for index, job in enumerate(jobs):
                done.append(_attempted(options, job, kernel, net, _part_of(advance, index, len(jobs))))
                if options.quiet and not options.json:
                    print(_line(done[-1]), flush=True)
    except KeyboardInterrupt:
        print(f"surefoot: {_finished(done, len(jobs))}; --skip-existing goes on with the others", file=sys.stderr)
        raise
    finally:
        if planned.folder is not None:
            with contextlib.suppress(OSError):  # where nothing was written into a new directory
                planned.folder.rmdir()
    _summary(screen, planned, done)
    if options.json:
        print_json([entry.values for entry in done])
    failed = [entry for entry in done if entry.failed]
    for entry in failed:
        print(f"surefoot: {_failure(entry)}", file=sys.stderr)
    if failed:
        print(f"surefoot: {len(failed)} of {len(jobs)} photos failed", file=sys.stderr)
    return Exit.NO if failed else Exit.YES


def _attempted(options: Deblur, job: Job, kernel: Tensor, net: LearnedDeconvolution | None, advance: _Advance) -> _Done:
    """A photo of several, with an error in place of an exception."""
    if job.done:
        return _Done(job, _short_record(job, skipped=True))
    try:
        return _restored(options, job, kernel, net, advance)
    except (ValueError, TypeError, OSError, MemoryError) as error:
        return _Done(job, _short_record(job, error=message_of(error)))


def _restored(options: Deblur, job: Job, kernel: Tensor, net: LearnedDeconvolution | None, advance: _Advance) -> _Done:
    """A photo, read, sharpened and written."""
    picture = read_photo(job.source)
    require_room(job.kind, picture, job.out)
    found = deblur(
        picture.pixels,
        kernel,
        options.noise,
        prior=options.prior if options.power is None else WITH_POWER,
        power=POWER if options.power is None else options.power,
        net=net,
        iterations=options.iterations,
        gap=options.gap,
        gamma=options.gamma,
        white="auto" if options.white is None else options.white,
        tile=options.tile,
        progress=advance,
    )
    values = record(job, picture, options.kernel, kernel, found)
    if found.status is not RunStatus.DIVERGED:
        for path, content in _contents(options, job, picture, found):
            write_atomic(path, content)
    return _Done(job, values, found)


def _contents(options: Deblur, job: Job, picture: Picture, found: Deblurred) -> Iterator[tuple[Path, bytes]]:
    """What is written for a photo, each with its place; the photo itself comes last, as the sign that all is there."""
    after = replace(picture, pixels=found.form.samples(found.image))
    excerpt = Excerpt.of(picture, after, found.form.white)
    yield job.comparison, write_png(excerpt.beside())
    if job.page is not None:
        yield job.page, page(job.source, found, excerpt).encode()
    assert job.kind.write is not None
    history = f"surefoot deblur: prior {found.prior}, noise {number(found.noise, 3)} of {number(found.form.white, 6)}"
    yield job.out, job.kind.write(after, [history, f"kernel {visible(options.kernel, 1000)}"])


_Advance = Callable[[int, int], None] | None
"""Called with the parts done and their number."""


def _live(options: Deblur) -> bool:
    return not options.quiet and not options.json and sys.stderr.isatty()


@contextlib.contextmanager
def _progress(shown: bool, what: str, total: int | None = None) -> Iterator[Callable[[float, float], None] | None]:
    """A progress line over tiles, or over photos."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=10) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _part_of(advance: Callable[[float, float], None] | None, index: int, photos: int) -> _Advance:
    """The tiles of one photo as parts of all."""
    return None if advance is None else lambda done, total: advance(index + done / total, photos)


def _short_record(job: Job, skipped: bool = False, error: str | None = None) -> dict[str, Any]:
    """Of a photo that was left out or failed."""
    return {
        "photo": {"file": job.source},
        "out": str(job.out) if skipped else None,
        "skipped": skipped,
        "error": error,
    }


def _line(done: _Done) -> str:
    """What ``--quiet`` prints of a photo."""
    if done.deblurred is not None:
        return f"{visible(str(done.job.out), 1000)}: {outcome(done.deblurred)}"
    return _failure(done) if done.failed else f"{visible(done.job.source, 1000)}: exists, skipped"


def _failure(done: _Done) -> str:
    """Which photo failed, and why; most errors of files name them."""
    name, error = visible(done.job.source, 1000), str(done.values["error"])
    return error if name in error else f"{name}: {error}"


def _finished(done: Sequence[_Done], total: int) -> str:
    written = [entry for entry in done if not entry.failed]
    last = f", the last {visible(str(written[-1].job.out), 1000)}" if written else ""
    return f"{len(written)} of {total} photos done{last}"


def _summary(screen: Screen, planned: Plan, done: Sequence[_Done]) -> None:
    """A table of all photos."""
    written = sum(entry.deblurred is not None and not entry.failed for entry in done)
    screen.heading("Photos", f"{count(written)} of {count(len(done))} written into {planned.folder}")
    rows = []
    for entry in done:
        found = entry.deblurred
        if found is None or entry.failed:
            rows.append(("failed" if entry.failed else "skipped", entry.job.source, "", "", "", "", ""))
            continue
        gap = "" if found.gap is None else number(found.gap, 2, "up")
        noise = number(found.noise, 2) + (" (est.)" if found.estimated else "")
        rows.append(("done", entry.job.source, found.light, noise, found.prior, gap, f"{found.seconds:.1f}"))
    screen.table(("", "photo", "light", "noise", "prior", "duality gap", "seconds"), rows, numeric=(5, 6))
    notices = [(entry.job.source, notice) for entry in done if entry.deblurred for notice in entry.deblurred.notices]
    for notice in dict.fromkeys(notice for _, notice in notices):
        files = [source for source, said in notices if said == notice]
        whose = files[0] if len(files) == 1 else f"{len(files)} photos"
        screen.say(f"  note ({whose}): {notice}", style="yellow")
