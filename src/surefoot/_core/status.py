"""How a run can end."""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """How a run ended."""

    RUNNING = "running"
    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    SETTLED = "settled"
    STALLED = "stalled"
    DIVERGED = "diverged"
    COLLAPSED = "collapsed"
    ILL_POSED = "ill_posed"
    INTERRUPTED = "interrupted"

    @property
    def failed(self) -> bool:
        """Whether the last iterate is useless, so that the newest checkpoint is what a run keeps."""
        return self in (RunStatus.DIVERGED, RunStatus.COLLAPSED, RunStatus.ILL_POSED)

    @property
    def complete(self) -> bool:
        """Whether all that the run did is on record and its last iterate can be used; of other runs no audit holds."""
        return self is not RunStatus.RUNNING and not self.failed

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "running": "the run did not finish; resume it",
            "converged": "the gap reached the tolerance",
            "max_iterations": "as many iterations as were allowed are done; to go on, raise max_iterations or resume",
            "settled": "what the run makes is projected to change hardly any more, though its gap is above the tolerance",
            "stalled": "the gap is at the rounding level of float64, or no step of the rule lowers it, or the rule has taken its "
            "last step; a smaller tolerance is out of its reach",
            "diverged": "the gap grew without bound or became non-finite: the step is too large; use a certified rule",
            "collapsed": "every unit is 0 on every sample, so no gradient is left: use other weights if it was so at the start, "
            "a smaller step if not",
            "ill_posed": "gamma ||A|| reached 1, where no equilibrium need exist; use a smaller step, or the rule well-posed",
            "interrupted": "stopped on request; from its directory, if it has one, it can be resumed",
        }[self.value]
