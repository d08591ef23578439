"""What the commands ``certify`` and ``train`` of a system are written with; only the program imports it, and it loads tyro.

The module that ``System.command`` names has a dataclass ``Certify``, a dataclass ``Train``, or both: their fields are the options
and their docstrings the help texts.
"""

from .._cli.built import Built
from .._cli.errors import Exit, NoCertificate
from .._cli.forms import Certifying, Question, Training
from .._cli.options import Flag, Json, KeepProblem, Rows, Runnable, Source, TrainOptions, certify_exits, train_exits
from .._cli.rows import Table, load, rows_of, table_facts
from .._cli.screen import Screen, count, number, print_json
from .._cli.training import run_certify, run_train
from .._cli.values import at_least_one, check_seed

__all__ = [
    "Built",
    "Certifying",
    "Exit",
    "Flag",
    "Json",
    "KeepProblem",
    "NoCertificate",
    "Question",
    "Rows",
    "Runnable",
    "Screen",
    "Source",
    "Table",
    "TrainOptions",
    "Training",
    "at_least_one",
    "certify_exits",
    "check_seed",
    "count",
    "load",
    "number",
    "print_json",
    "rows_of",
    "run_certify",
    "run_train",
    "table_facts",
    "train_exits",
]
