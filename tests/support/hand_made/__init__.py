"""Hand-made changes of run directories, which ``every_system`` cannot make because they know what the arrays of a system mean.

One module a system: ``RUNS``, which write directories that the checker accepts, and ``CASES``, changes of a run by name;
all hashes are recomputed, so that only the mathematics can tell. Those of two-layer networks are of the runs
that ``tests/check/conftest.py`` writes.
"""

from types import ModuleType

from . import deconvolution, feed_forward, implicit, inverse, linear_resnet, step_sizes

CORPORA: dict[str, ModuleType] = {
    "linear-resnet": linear_resnet,
    "feed-forward": feed_forward,
    "implicit": implicit,
    "step-sizes": step_sizes,
    "inverse": inverse,
    "deconvolution": deconvolution,
}
