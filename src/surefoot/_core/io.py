"""Files: written to a temporary name and renamed, read with clear errors."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


SGD_FORMAT = "surefoot-sgd/1"
"""What config.json of a run of ``sf.sgd`` says; that of ``descend`` is in ``run``."""
BEFORE_CONFIG = {"checkpoints", "plots", "certificate.json", "problem.safetensors", "initial.safetensors"}
"""What a run writes before config.json."""


class RunDirectoryError(ValueError):
    """A run directory that cannot be used: it exists already, is incomplete, damaged, or of another version."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        OSError: the write failed (disk full, no permission); the old file, if any, is untouched.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
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


def write_json(path: Path, record: Any) -> None:
    """Write JSON with sorted keys, atomically."""
    write_atomic(path, (json.dumps(record, sort_keys=True, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON; ``RunDirectoryError`` if it is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing; this is not a complete run directory") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); restore it or run again") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, atomically; tensors are stored contiguous and on the CPU."""
    stored = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_atomic(path, save_tensors(stored))


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file; ``RunDirectoryError`` if it is missing or damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{path} is missing; this is not a complete run directory") from error
    try:
        tensors = load_tensors(content)
    except (SafetensorError, ValueError) as error:
        raise RunDirectoryError(f"{path} is damaged ({error}); restore it or run again") from error
    # copied, as they lie unaligned in the file's bytes: a matrix product may round differently there than in torch's memory
    return {name: tensor.clone().to(device) for name, tensor in tensors.items()}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Within the context, no other process or thread writes a run into this directory. The operating system drops the lock of
    a process that dies; where it or the file system has no locks, nothing is locked.

    Raises:
        RunDirectoryError: it is locked already.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunDirectoryError(
                f"another process is writing a run into {path}; wait until it ends, or choose another directory"
            ) from error
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


def make_directory(path: Path) -> None:
    """Create a run directory (and its parents); one whose run was cut off before its config.json was written counts as empty.

    Raises:
        RunDirectoryError: it exists and is not empty, or is a file.
        OSError: it cannot be created or written to.
    """
    started = path.is_dir() and {file.relative_to(path).as_posix() for file in path.rglob("*")} - BEFORE_CONFIG
    if started:
        raise RunDirectoryError(
            f"directory {path} exists and is not empty; choose another, or resume the run in it (resume=True, --resume)"
        )
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"{path} is a file; choose a directory")
    try:
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        (path / "plots").mkdir(exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot create a run directory ({error.strerror}); choose a writable place", str(path)
        ) from error
