"""Photographs as arrays that NumPy saved."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np

from .numpy_files import map_array, read_chosen
from .pictures import Picture, arranged, of_array


def read_npy(path: Path) -> Picture:
    """The photograph of an ``.npy`` file.

    Raises:
        DataError: damaged, or ``of_array`` refuses what it holds.
    """
    return of_array(map_array(path), str(path))


def read_npz(path: Path, name: str | None) -> Picture:
    """The photograph of an archive: the array of this name, or the only one.

    Raises:
        DataError: as ``read_chosen`` and ``of_array`` raise.
    """
    return of_array(read_chosen(path, name), str(path) if name is None else f"{path}:{name}")


def write_npy(picture: Picture) -> bytes:
    """The bytes of an ``.npy`` file with the axes that the picture was read with."""
    content = BytesIO()
    np.save(content, arranged(picture), allow_pickle=False)
    return content.getvalue()
