"""Files: written to a temporary name and renamed, read with clear errors."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


WATCHED = "watch.json"
"""What was seen of the training that led to the initial weights of a run."""
BEFORE_CONFIG = {
    *("checkpoints", "plots", "certificate.json", "initial.safetensors"),
    *("problem.safetensors", "problem.json", WATCHED),
}
"""What stands in a run directory before config.json."""
TEMPORARY = re.compile(r"\..+\.(json|jsonl|safetensors|png|html|txt)\.[a-z0-9_]{8}")
"""Names of files that ``write_atomic`` has not renamed yet. A killed process leaves one behind."""
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls them."""


class RunDirectoryError(ValueError):
    """A run directory that cannot be used: it exists already, is incomplete, damaged, or of another version."""


def write_atomic(path: Path, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file, in one piece or several, so that a reader sees the old content or the new, never a part.

    Raises:
        OSError: the write failed (disk full, no permission); the old file, if any, is untouched.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise OSError(
            error.errno,
            f"could not write {path.name} ({error.strerror}); free space or choose a writable directory: "
            "what was written before is kept",
            str(path),
        ) from error
    finally:  # after Ctrl-C too
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def probe_writable(path: Path) -> None:
    """Make sure that ``write_atomic`` can make its file beside ``path``, before long work: an empty one is made and removed.

    Raises:
        OSError: no such directory, a read-only one, no permission, or a name that is too long.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        os.unlink(temporary)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot be written ({error.strerror}); choose another name or directory", str(path)
        ) from error


def write_json(path: Path, record: Any) -> None:
    """Write JSON with sorted keys, atomically; null for what is not finite."""
    write_atomic(path, (json.dumps(plain(record), sort_keys=True, indent=1, allow_nan=False) + "\n").encode())


def plain(value: Any) -> Any:
    """Plain values as JSON has them: a number that is not finite becomes ``None``."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path) -> Any:
    """Read JSON; ``RunDirectoryError`` if it is missing, damaged or no regular file."""
    require_regular(path)
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, or a number of thousands of digits
        raise RunDirectoryError(f"{path} is damaged ({error}); restore it or run again") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, atomically; entries go from the tensors to the file without another copy of them all."""
    write_atomic(path, _safetensors(tensors))


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The file piece by piece: the header's length, the header, the entries. Wide dtypes come first, so that all are aligned.

    Why not the safetensors package: its ``save`` has the whole file in memory; its ``save_file`` opens the file itself, refuses
    tensors that share memory, and reports a full disk without the system's error. ``read_tensors`` reads with the package.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, object] = {}
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        entries = tensors[name].detach().cpu().contiguous()
        # the stride of a dimension of one entry can be anything, and a view as bytes needs 1
        yield entries.as_strided((entries.numel(),), (1,)).view(torch.uint8).numpy().data


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file; ``RunDirectoryError`` if it is missing, damaged or no regular file.

    The header is validated first, against the size of the file, so that a file that is none takes no memory.
    """
    require_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            # copied, as they lie unaligned in the file: a matrix product may round differently there than in torch's memory
            return {name: file.get_tensor(name).clone().to(device) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError) as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); restore it or run again") from error


@contextlib.contextmanager
def reading(path: str | Path, what: str) -> Iterator[dict[str, Tensor]]:
    """The tensors of a file that is to hold a ``what``, such as "step-size network", which the context makes of them.

    Raises:
        RunDirectoryError: as ``read_tensors``, or the context raises that something is missing or does not fit.
    """
    stored = read_tensors(Path(path))
    try:
        yield stored
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RunDirectoryError(f"{path} holds no {what} ({error}); pass a file that save wrote") from error


def require_regular(path: Path) -> None:
    """``RunDirectoryError`` where there is no file, or what would never end: a named pipe, a device."""
    if not path.is_file():
        if not path.exists():
            raise RunDirectoryError(f"{path} is missing; this is not a complete run directory")
        raise RunDirectoryError(f"{path} is not a regular file; restore it or run again")


class _Held(threading.local):
    """Device and inode of the directories that this thread has locked."""

    directories: frozenset[tuple[int, int]] = frozenset()


_held = _Held()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the context, no other process or thread writes a run into this directory; contexts of one thread may be nested.
    The operating system drops the lock of a process that dies; where it or the file system has no locks, nothing is locked.

    Raises:
        RunDirectoryError: it is locked already.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    held = _held.directories
    try:
        status = os.fstat(handle)
        own = (status.st_dev, status.st_ino)
        if own not in held:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunDirectoryError(
                    f"another process is writing a run into {path}; wait until it ends, or choose another directory"
                ) from error
            except OSError:
                pass
        _held.directories = held | {own}
        yield
    finally:
        _held.directories = held
        os.close(handle)


@contextlib.contextmanager
def run_directory(path: Path, resume: bool) -> Iterator[None]:
    """Within the context, the directory of a run exists, and no other process writes a run into it. What a killed process left
    unfinished there under temporary names is removed.

    Args:
        path: created if need be, unless ``resume``.
        resume: it has a run; otherwise it must be ``unused``.

    Raises:
        RunDirectoryError: it is in use by another run, is a file, is not empty, or has no run to resume.
        OSError: it cannot be created.
    """
    if resume and not path.is_dir():
        raise RunDirectoryError(f"{path} is not a directory; there is no run to resume")
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file; choose a directory")
    created = not path.exists()
    make_folder(path)
    with _kept_if_written(path) if created else contextlib.nullcontext(), locked(path):
        if resume and unused(path):
            raise RunDirectoryError(
                f"{path / 'config.json'} is missing; the run was cut off before its first step, or is none: start it again "
                "without resume"
            )
        if not resume:
            refuse_used(path, resumable=True)
        for folder in (path, path / "checkpoints", path / "plots"):
            for file in folder.glob(".*"):
                if TEMPORARY.fullmatch(file.name) and file.is_file():
                    with contextlib.suppress(OSError):
                        file.unlink()
        yield


@contextlib.contextmanager
def _kept_if_written(path: Path) -> Iterator[None]:
    """Afterwards, a directory that nothing was written into is removed."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()


def refuse_used(path: Path, resumable: bool = False) -> None:
    """Raise ``RunDirectoryError`` unless the directory is ``unused``; ``resumable`` says that what is in it can be resumed."""
    if not unused(path):
        resumed = ", go on with what is in it (resume=True, --resume)" if resumable else ""
        raise RunDirectoryError(
            f"{path} exists and is not an empty directory; choose another (directory=, --out){resumed}, or delete it first"
        )


def unused(path: Path) -> bool:
    """Whether a run may start there: nothing exists, or a directory that is empty or has a run that was cut off before its
    config.json was written, from which nothing can be resumed."""
    if not path.is_dir():
        return not path.exists()
    return all(
        TEMPORARY.fullmatch(file.name) or file.relative_to(path).as_posix() in BEFORE_CONFIG for file in path.rglob("*")
    )


def make_folder(path: Path) -> None:
    """Create a directory and its parents, unless it exists.

    Raises:
        OSError: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot create a run directory ({error.strerror}); choose a writable place", str(path)
        ) from error
