"""The runs of which reports are read, each made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import surefoot as sf
from surefoot import _report


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], sf.Run]], tuple[sf.Run, Path, str]]:
    """Each run once: the run, its directory, the HTML of its report."""
    made: dict[str, tuple[sf.Run, Path, str]] = {}

    def report(make: Callable[[Path], sf.Run]) -> tuple[sf.Run, Path, str]:
        if make.__name__ not in made:
            directory = tmp_path_factory.mktemp("runs") / make.__name__
            run = make(directory)
            made[make.__name__] = (run, directory, _report.write(directory).read_text())
        return made[make.__name__]

    return report
