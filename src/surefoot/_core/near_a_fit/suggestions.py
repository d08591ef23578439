"""What to do where an exact fit nearby, or descent to it, is not guaranteed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from surefoot_check.near_a_fit.exact_fit import ExactFit
from surefoot_check.statement import Theorem

from ..evaluation import evaluate
from ..system import Measured

FINISH = 'sf.descend(net, loss, steps="gauss-newton") is a finish of a few steps'
"""What helps where a residual is too large."""


def too_far(failed: Sequence[str]) -> bool:
    """Whether the residual, or the Newton step, is too large for any ball; one without a kink would not do, either."""
    return any(name.startswith(("the residual is small", "the Newton step is small")) for name in failed)


def nearer(theorem: Theorem, q: Mapping[str, float]) -> str:
    """How small the residual, or the Newton step, has to become."""
    what, now, needed = "residual", q["r0"], q["sigma_min_J"] ** 2
    if isinstance(theorem, ExactFit):
        what, now, needed = "Newton step", q["newton_step"], q["sigma_min_J"]
    enough = min(needed / (2.0 * q["lipschitz_J"]), now)
    return (
        f"finish, or train on with any optimiser, until the norm of the {what} is about {enough:.3g} (now {now:.3g}), and "
        f"certify again; {FINISH}"
    )


def past_the_kink(where: str, margin: float) -> str:
    """How small the ball has to become.

    Args:
        where: the pre-activation that is nearest to a kink.
        margin: how often its change on the ball fits into its distance to the kink.
    """
    return (
        f"finish, or train on: nearest to a kink is {where}, whose distance to it is {margin:.3g} of what may be passed in the "
        f"ball; a residual smaller by that factor will do where the weights are now, and training may move others there; {FINISH}"
    )


def near_already(exact_fit: ExactFit, theorem: Theorem, there: Callable[[Theorem], Measured]) -> str:
    """To be added where descent to a fit is not guaranteed, and one is near.

    Args:
        exact_fit: the theorem on the existence of one.
        theorem: that failed.
        there: what a theorem is evaluated at, at the same weights.
    """
    if theorem is exact_fit or not _holds(exact_fit, there(exact_fit)):
        return ""
    return (
        f"; an exact fit is near already, to which Newton's steps lead: sf.certify(net, loss, {exact_fit.id!r}) holds"
    )


def _holds(theorem: ExactFit, there: Measured) -> bool:
    if not {"newton_step", "lipschitz_J"} <= there.published.keys():
        return False
    return all(c.certain for c in evaluate(theorem, {**there.published, **there.choices[0], **there.sizes})[1])
