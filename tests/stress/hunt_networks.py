"""Hunt for feed-forward networks that violate what their certificates state.

    python tests/stress/hunt_networks.py --networks 2000 [--windows]

Prints how many were certified, how many inequalities were looked at and how close the closest came, and every violation. The exit
code is 1 if there is one. Network i is the same in every hunt.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

import hunted_windows
from hunted import Count, hunted


def main() -> int:
    """Run the program; 1 if there is a violation."""
    parser = argparse.ArgumentParser(description="Hunt for violations.", epilog=__doc__.partition("\n")[2])
    parser.add_argument("--networks", type=int, default=2000, help="number of networks (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument(
        "--windows", action="store_true", help="networks with convolutions, pooling and residual blocks"
    )
    options = parser.parse_args()
    one = hunted_windows.hunted if options.windows else hunted
    torch.set_num_threads(1)
    total, begun = Count(), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for number, count in enumerate(
            pool.imap_unordered(one, range(options.first, options.first + options.networks)), 1
        ):
            total += count
            if number % 200 == 0:
                print(
                    f"{number} networks after {time.monotonic() - begun:.0f} s: {len(total.violations)} violations",
                    flush=True,
                )
    print(total)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
