"""The formulas of the theorems about mini-batches: what follows from base quantities."""

import math
from dataclasses import replace
from functools import cache

import pytest

from surefoot._core.minibatch import choose, schedule
from surefoot._core.schedule import gap_at, iterations_to
from surefoot_check.minibatch import Minibatch
from surefoot_check.rigor.balls import ball
from surefoot_check.statement import converted


class Toy(Minibatch):
    id = "toy/minibatch"
    statement = reference = "a residual whose Jacobian changes by at most the same on every ball"


THEOREM = Toy()
START = {"initial_gap": 0.5, "newton_step": 1.0, "sigma_min_J": 1.0}


@cache
def chosen(bend: float, samples: int = 8, batch: int = 2, delta: float = 0.01) -> dict[str, float]:
    """‖J‖ = σ = 1 and ω = 0.3 at the start, where a batch may be as large as the whole, Λ = ``bend``."""

    def on_ball(radius: float) -> dict[str, float]:
        moved = bend * radius
        return {
            "norm_J_ball": 1.0 + moved,
            "lipschitz_J": bend,
            "lipschitz_batch": bend,
            "norm_batch": 1.0 + moved,
            "second_moment": (math.sqrt(0.3) + moved) ** 2,
            "sigma": max(0.0, 1.0 - moved),
        }

    return choose(THEOREM, START, on_ball, batch, samples, delta, 1e-7)


@pytest.mark.parametrize("bend", [1e-4, 1e-2, 2e-2])
def test_both_theorems_are_chosen_and_their_schedules_follow_in_balls(bend: float) -> None:
    q = chosen(bend)
    assert THEOREM.stays_surely(q) == (bend > 1e-3)
    made = schedule(THEOREM, q)
    balls = {name: ball(value) for name, value in q.items()}
    assert all(condition.certain for condition in THEOREM.conditions(balls))
    assert all(obligation.certain for obligation in THEOREM.obligations(balls, converted(made, ball)))
    assert iterations_to(made, 1e-7) < math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 2.5},
        {"batch": 9.0},
        {"delta": 1.0},
        {"growth": 0.5},
        {"eta": 0.0},
        {"fit_ball": 0.5},
        {"inner_ball": 1.0},
        {"ball": 1.0},
    ],
)
def test_choices_out_of_range_are_no_longer_certain(change: dict[str, float]) -> None:
    q = chosen(1e-2)
    made = schedule(THEOREM, q)
    assert all(obligation.certain for obligation in THEOREM.obligations(q, made))
    assert change.keys() <= q.keys()
    assert [o for o in THEOREM.obligations({**q, **change}, made) if not o.certain]


@pytest.mark.parametrize("change", [{"epoch": 0.0}, {"stay_delta": 0.01}, {"fraction": 1.0}])
def test_at_some_choices_numbers_of_the_statement_do_not_exist(change: dict[str, float]) -> None:
    q = chosen(1e-2)
    assert change.keys() <= q.keys()
    with pytest.raises(ZeroDivisionError):
        list(THEOREM.obligations({**q, **change}, schedule(THEOREM, q)))


def test_far_from_a_fit_the_conditions_say_what_is_missing() -> None:
    far = [c.name for c in THEOREM.conditions(chosen(0.6)) if not c.certain]
    assert far == ["a fit is near: 2 Lambda d <= sigma_min(J)"]
    assert [c.name for c in THEOREM.conditions(chosen(0.2)) if not c.certain]


def test_an_epoch_must_start_where_one_before_ends() -> None:
    q = chosen(2e-2)
    made = schedule(THEOREM, q)
    assert len(made) > 2 and made[2].start == q["epoch"] > 1
    before = gap_at(made[1], made[2].start - 1) * (1.0 + 1e-9)
    shifted = [
        *made[:1],
        replace(made[1], count=made[2].start - 2),
        replace(made[2], start=made[2].start - 1, level=before, decrease=made[1].decrease, count=None),
    ]
    failed = [o.name for o in THEOREM.obligations(q, shifted) if not o.certain]
    assert failed == ["segment 2: starts with an epoch"]
