"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# One thread: reductions keep one order of summation, so that a result repeats bit for bit on any machine.
torch.set_num_threads(1)

# The tests are no package: the modules that several of them share are found by name.
sys.path.append(str(Path(__file__).resolve().with_name("support")))

# Programs are laid out for no particular terminal; pytest-xdist tells its workers the width of the one it runs in.
os.environ.pop("COLUMNS", None)

# What starts the tests may ignore these (nohup, a shell's background); the programs under test would inherit that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and items live to the end: no collector looks for garbage while they are made, or among them afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk() -> Iterator[None]:
    """What is left after a power failure no test sees; those of when files are synchronised put a call of their own here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    """Start every test from the same global random state of torch."""
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    """A CPU generator with a fixed seed, for code that draws through an explicit generator."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of optional data sets beside the repository; where it is absent, the test is skipped."""
    if not SHARED_DATA.is_dir():
        pytest.skip("optional data sets are absent: ../shared/data beside the repository")
    return SHARED_DATA
