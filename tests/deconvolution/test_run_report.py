"""The part of a report that is about pictures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import surefoot as sf
from surefoot import deconvolution as dc
from surefoot._deconvolution.report import part
from surefoot._report import write
from surefoot._report.facts import Facts


@pytest.mark.parametrize("solver", [dc.LADMM(1.0), dc.TVADMM()], ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("several", [(), (2,)], ids=["one", "two"])
def test_observed_and_restored(solver, several: tuple[int, ...], tmp_path: Path) -> None:
    blur = dc.ValidBlur.observing(torch.full((3, 3), 1.0 / 9.0, dtype=torch.float64), (14, 14))
    picture = torch.rand(*several, 14, 14, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sparse = isinstance(solver, dc.LADMM)
    problem = (
        dc.DeconvolutionProblem(picture, blur, 0.05, "db2") if sparse else dc.TotalVariationProblem(picture, blur, 0.05)
    )
    sf.descend(solver, problem, directory=tmp_path, max_iterations=4, progress=False)
    page = write(tmp_path).read_text()
    shown = page[page.index('<h2 id="observed-and-restored"') :]
    observed, restored = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert observed != restored
    assert "Restored, after 4 iterations" in shown and "Duality gap" in shown
    assert ("the first of 2" in shown) is bool(several)


def test_a_run_without_its_arrays_has_no_pictures() -> None:
    blur = dc.PeriodicBlur(torch.full((3, 3), 1.0 / 9.0, dtype=torch.float64), (16, 16))
    picture = torch.rand(16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = dc.DeconvolutionProblem(picture, blur, 0.05, "db2")
    run = sf.descend(dc.LADMM(1.0), problem, max_iterations=2, progress=False)
    assert "<img" in part(Facts.of(run)).section
    assert part(Facts.of(dataclasses.replace(run, problem={}))).section == ""
