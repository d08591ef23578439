"""Which files ``deblur`` reads and writes: found, and refused where they cannot be, before any work."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .._core.io import probe_writable
from .._data.errors import MissingSourceError
from .._data.picture_files import SUFFIXES, PictureFormat, format_of, located, writer

PNG = ".png"
BESIDE = "-before-after.png"
PAGE = ".html"
UNSAFE = re.compile(r"[^\w+-]+")
"""What the name of an array may hold and that of a file is not to."""


@dataclass(frozen=True)
class Job:
    """One photograph.

    Attributes:
        source: a path, or ``file.npz:NAME`` or ``file.fits:NAME``.
        out: the sharpened photograph, written last: where it is, the photo is done.
        kind: its format.
        paged: whether a page about it is written.
        done: whether it exists and is to be left as it is.
    """

    source: str
    out: Path
    kind: PictureFormat
    paged: bool = False
    done: bool = False

    @property
    def comparison(self) -> Path:
        """The picture before and after."""
        return self.out.with_name(f"{self.out.stem}{BESIDE}")

    @property
    def page(self) -> Path | None:
        """The page about it, if there is one."""
        return self.out.with_name(f"{self.out.stem}{PAGE}") if self.paged else None

    @property
    def files(self) -> tuple[Path, ...]:
        """All that is written."""
        return self.comparison, *([] if self.page is None else [self.page]), self.out


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        jobs: one or more, in the order of the command line; a folder's files in that of their names.
        folder: the directory that all are written into; ``None`` for a single photo with a name for what comes out.
    """

    jobs: tuple[Job, ...]
    folder: Path | None


def plan(photos: Sequence[str], kernel: str, out: str, *, paged: bool, skip_existing: bool) -> Plan:
    """Photos and what is written for them. A directory for it is made, and left empty.

    Args:
        photos: files and folders. Of a folder those files are taken whose suffix is that of a format, but neither the kernel nor
            pictures before and after.
        kernel: where it comes from.
        out: a file for a single photo, else a directory.
        paged: whether a page about each is written.
        skip_existing: whether what exists is left out; otherwise it is refused.

    Raises:
        ValueError: a photo is missing, a folder holds none, two would be written to one file, ``out`` has a suffix that nothing
            writes or no directory around it, or something exists.
        OSError: nothing can be written there.
    """
    sources = [source for photo in photos for source in _sources(photo, kernel)]
    target = Path(out).expanduser()
    several = len(photos) > 1 or Path(photos[0]).expanduser().is_dir()
    if several or target.is_dir() or out.endswith(os.sep):
        if target.is_symlink() or target.exists():
            if not target.is_dir():
                raise ValueError(f"--out is {out!r}, a file; for several photos it is a directory")
        elif several and format_of(target) is not None:
            raise ValueError(f"--out is {out!r}, a name for one file, but there are several photos; name a directory")
        jobs = [_job(source, target / _name(source), paged) for source in sources]
        folder: Path | None = target
    else:
        jobs, folder = [_job(sources[0], target, paged)], None
        if not target.parent.is_dir():
            raise ValueError(f"--out is {out!r}, but there is no directory {target.parent}; make it first")
    _require_distinct(jobs)
    if skip_existing:
        jobs = [replace(job, done=os.path.lexists(job.out)) for job in jobs]
    else:
        _require_new(jobs)
    if folder is not None:
        _make(folder)
    for job in jobs:
        if not job.done:
            probe_writable(job.comparison)
    return Plan(tuple(jobs), folder)


def _sources(photo: str, kernel: str) -> list[str]:
    """The photo, or those of a folder."""
    path = located(photo)[0]
    if not path.is_dir():
        if not path.exists():
            raise MissingSourceError(f"{path}: no such file; pass photos, or a folder of them")
        return [photo]
    blur = located(kernel)[0]
    found = [
        str(file)
        for file in sorted(path.iterdir())
        if file.suffix.lower() in SUFFIXES
        and file.is_file()
        and not file.name.startswith(".")
        and not (blur.exists() and file.samefile(blur))
        and not _compares(file)
    ]
    if not found:
        raise MissingSourceError(f"{path}: holds no photos; files in it that end in {', '.join(SUFFIXES)} would be")
    return found


def _compares(file: Path) -> bool:
    """Whether it is the picture before and after of another file beside it."""
    stem = file.name.removesuffix(BESIDE)
    return stem != file.name and any(file.with_name(f"{stem}{suffix}").exists() for suffix in SUFFIXES)


def _name(source: str) -> str:
    """Of the file that is written into a directory."""
    path, name = located(source)
    stem = path.stem if name is None else f"{path.stem}-{UNSAFE.sub('_', name)}"
    kind = format_of(path)
    if kind is None:
        return f"{path.name}{PNG}"
    if kind.write is None:
        return f"{stem}{kind.instead}"
    return f"{stem}{path.suffix}"


def _job(source: str, out: Path, paged: bool) -> Job:
    return Job(source, out, writer(out), paged)


def _require_distinct(jobs: Sequence[Job]) -> None:
    owners: dict[Path, Job] = {}
    for job in jobs:
        for file in job.files:
            other = owners.setdefault(file, job)
            if other is not job:
                raise ValueError(
                    f"{other.source} and {job.source} would both be written to {file}; rename one, or take two runs"
                )


def _require_new(jobs: Sequence[Job]) -> None:
    files = [file for job in jobs for file in job.files]
    present = [file for file in files if os.path.lexists(file)]
    if not present:
        return
    if len(jobs) == 1:
        raise ValueError(f"{present[0]} exists; choose another with --out")
    raise ValueError(
        f"{present[0]} exists ({len(present)} of {len(files)} files do); choose another directory with --out, or leave out "
        "what is done with --skip-existing"
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"--out cannot be made ({error.strerror}); choose another", str(folder)) from error
