"""What a system of one's own is written with; its commands, with ``surefoot.extending.command``. See docs/extending.md."""

from .._core.plans import Plan
from .._core.registry import register
from .._core.system import Certifiable, Descendable, Engine, Iterate, Measured, Recordable, System
from .._core.words import Words

__all__ = [
    "Certifiable",
    "Descendable",
    "Engine",
    "Iterate",
    "Measured",
    "Plan",
    "Recordable",
    "System",
    "Words",
    "register",
]
