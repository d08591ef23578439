"""Hunt for mini-batch runs that their certificates exclude.

    python tests/stress/hunt_sgd.py --problems 200 [--processes 2]

Prints how many runs there were of each probability of failure, how many exceeded the bound or left the ball, and how near the
sure bounds came. The exit code is 1 if a sure bound was exceeded, or another by more runs than chance allows. Problem i is the
same in every hunt.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from hunted_sgd import Count, hunted


def main() -> int:
    """Run the program; 1 if there is a violation."""
    parser = argparse.ArgumentParser(description="Hunt for violations.", epilog=__doc__.partition("\n")[2])
    parser.add_argument("--problems", type=int, default=200, help="problems that are run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="processes (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    total, begun = Count(), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for count in pool.imap(hunted, itertools.count(options.first)):
            total += count
            done = total.problems.total()
            if count.problems and done % 50 == 0:
                print(f"{done} problems after {time.monotonic() - begun:.0f} s: {len(total.violations)} violations")
            if done >= options.problems:
                pool.terminate()
                break
    print(total)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
