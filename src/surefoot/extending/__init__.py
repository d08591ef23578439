"""What a system of one's own is written with. See docs/extending.md.

Its command is written with ``surefoot.extending.command`` and its part of reports with ``surefoot.extending.report``: those load
more, and only the program and reports need them. What proves a certificate is written with ``surefoot_check`` alone.
"""

from .._core.audit import Audit, Check, Rows, audited, constant_step, each, never_increases, noise
from .._core.certificate import Certificate, Condition, publish
from .._core.engine import Engine, Iterate, Weights, WeightsEngine, WeightsIterate
from .._core.losses import LinearMapLoss, Loss
from .._core.measuring import measured, stored
from .._core.plans import Plan
from .._core.problems import loss_of
from .._core.refusals import checkable
from .._core.samples import SampleLoss, sample_loss
from .._core.status import RunStatus
from .._core.steps import SHARED_RULES, StepRule
from .._core.system import (
    Certifiable,
    Descendable,
    Measured,
    Recordable,
    System,
    linear_map,
    map_resolution,
)
from .._core.validate import network_weight, real, unknown
from .._core.words import StepsTaken, Words

__all__ = [
    "SHARED_RULES",
    "Audit",
    "Certifiable",
    "Certificate",
    "Check",
    "Condition",
    "Descendable",
    "Engine",
    "Iterate",
    "LinearMapLoss",
    "Loss",
    "Measured",
    "Plan",
    "Recordable",
    "Rows",
    "RunStatus",
    "SampleLoss",
    "StepRule",
    "StepsTaken",
    "System",
    "Weights",
    "WeightsEngine",
    "WeightsIterate",
    "Words",
    "audited",
    "checkable",
    "constant_step",
    "each",
    "linear_map",
    "loss_of",
    "map_resolution",
    "measured",
    "network_weight",
    "never_increases",
    "noise",
    "publish",
    "real",
    "sample_loss",
    "stored",
    "unknown",
]
