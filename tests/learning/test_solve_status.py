"""The status of a solver, of each problem and of all."""

from __future__ import annotations

from surefoot._learning.solve_status import SolveStatus, summary

SOLVED, ITERATIONS, STALLED = SolveStatus


def test_the_status_of_all() -> None:
    assert SolveStatus.of_all([SOLVED, SOLVED]) is SOLVED
    assert SolveStatus.of_all([SOLVED, STALLED]) is STALLED
    assert SolveStatus.of_all([STALLED, ITERATIONS, SOLVED]) is ITERATIONS
    assert all(len(status.text) > 20 for status in SolveStatus)


def test_the_summary_counts() -> None:
    assert summary([SOLVED, SOLVED]) == "solved"
    assert summary([STALLED, SOLVED, SOLVED]) == "2 solved, 1 stalled"
