"""All benchmarks, one after another: ``make bench``."""

from __future__ import annotations

import checker
import implicit
import learned_lasso
import linalg
import linear_resnet
import memory
import rows
import step_sizes
import stiefel
import two_layer_baselines
import two_layer_engines
import two_layer_rules


def main() -> None:
    """Print every table."""
    for module in (
        checker,
        two_layer_engines,
        two_layer_rules,
        two_layer_baselines,
        linear_resnet,
        implicit,
        step_sizes,
        learned_lasso,
        linalg,
        stiefel,
        memory,
        rows,
    ):
        module.main()


if __name__ == "__main__":
    main()
