"""``python -m surefoot``: the program, also for ``torchrun -m surefoot``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
