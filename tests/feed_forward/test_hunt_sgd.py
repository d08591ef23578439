"""The hunt for mini-batch runs that their certificates exclude, on a few problems; ``tests/stress/hunt_sgd.py`` runs many."""

from __future__ import annotations

from dataclasses import replace

import hunted_sgd
import pytest

from surefoot_experiments.sgd_runs import run


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_runs_stay_where_they_should(seed: int) -> None:
    count = hunted_sgd.hunted(seed)
    assert count.runs.total() == hunted_sgd.RUNS * count.problems.total() and not count.violations
    assert count.problems or seed


def test_runs_that_do_not_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that is a thousand times as far from its start, and whose gap is as much larger."""

    def wrong(*args: object, **kwargs: object) -> object:
        found = run(*args, **kwargs)  # type: ignore[arg-type]
        return replace(
            found, above=hunted_sgd.RUNS, sure_distance=1e3 * found.sure_distance, sure_gap=1e6 * found.sure_gap
        )

    monkeypatch.setattr(hunted_sgd, "run", wrong)
    assert len(hunted_sgd.hunted(4).violations) == 3
