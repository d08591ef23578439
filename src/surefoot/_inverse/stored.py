"""Directories with the certificate of a learned inverse."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from .._core.certificate import Certificate
from .._core.io import run_directory
from .._core.registry import system_of
from .._core.run import write_start
from .._core.validate import folder

FORMAT = "surefoot-inverse/1"
"""What config.json of a directory with a certificate of an inverse says."""


def save_certificate(
    net: nn.Module, directory: str | Path, interval: tuple[float, float] | None, theorem: str | None
) -> Certificate:
    """See ``LearnedInverse.save_certificate``."""
    system = system_of(net)
    loss = system.problem(net, interval)
    certificate = system.certify(net, loss, system.theorem(theorem).id)
    if not certificate.holds:
        failed = "; ".join(str(condition) for condition in certificate.conditions if not condition.holds)
        raise ValueError(f"there is nothing to certify: {failed}. {certificate.suggestion}")
    path = folder("directory", directory)
    with run_directory(path, resume=False):
        write_start(path, certificate, loss.arrays(), system.reduced(net, loss), {"format": FORMAT})
    return certificate
