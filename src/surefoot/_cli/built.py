"""What the options of a network are built into, and its evaluation on held-out rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .._core.losses import LinearMapLoss, Loss
from .._core.registry import system_of
from .rows import Table


@dataclass(frozen=True)
class Built:
    """Network and problem as built from options.

    Attributes:
        net: the network with its initial weights.
        loss: of the train rows.
        facts: what the certificate will speak of, in plain values.
        table: the rows.
        shown: what is printed of the facts.
        advice: which options to change where the theorem fails; empty for the certificate's own suggestion.
        faster: which options lower the guaranteed number of iterations, as the end of a sentence.
        keep: writes into the directory of the run what led to its initial weights, where there is something.
    """

    net: nn.Module
    loss: Loss
    facts: dict[str, Any]
    table: Table
    shown: Mapping[str, str]
    advice: str = ""
    faster: str = ""
    keep: Callable[[Path], object] | None = None

    def evaluate(self) -> dict[str, float]:
        """Quality of the network on the held-out rows, with that of a linear map's optimum; empty without such rows."""
        held_out = self.table.held_out
        if held_out is None:
            return {}
        X = held_out.X
        assert isinstance(X, Tensor)
        with torch.no_grad():
            outputs = {"": self.net(X).reshape(len(X), -1)}
            problem = system_of(self.net).problem(self.net, self.loss)
            if isinstance(problem, LinearMapLoss):  # what its network is trained to
                outputs["optimum_"] = X @ problem.optimum + problem.intercept(problem.optimum)
                if problem.has_intercept:
                    W = self.net(torch.eye(problem.shape[0], dtype=X.dtype, device=X.device))
                    outputs[""] = outputs[""] + problem.intercept(W)
        scores: dict[str, float] = {"test_rows": len(X)}
        for prefix, output in outputs.items():
            if self.table.classes is not None:
                assert held_out.labels is not None
                predicted = self.table.predicted(output)
                scores[f"{prefix}test_accuracy"] = float((predicted == held_out.labels).double().mean())
            else:
                assert held_out.Y is not None
                error = output - held_out.Y
                spread = held_out.Y - held_out.Y.mean(0)
                scores[f"{prefix}test_rmse"] = float((error**2).mean().sqrt())
                if float((spread**2).sum()) > 0.0:
                    scores[f"{prefix}test_r2"] = 1.0 - float((error**2).sum() / (spread**2).sum())
        return scores


class Question(ABC):
    """Options from which a network and its problem are built: what ``certify`` and ``train`` of a system share.

    Attributes:
        system: name of the system.
        theorem: name of the theorem; ``None`` for the system's default, as where there is no such option.
        batch: rows of a mini-batch; ``None`` for the full gradient, as where there is no such option.
    """

    system: ClassVar[str]
    theorem: str | None = None
    batch: int | None = None
    json: bool

    @abstractmethod
    def build(self) -> Built:
        """Load, scale, and set the initial weights.

        Raises:
            ValueError: data that cannot be used this way, or options that contradict each other.
            NoCertificate: weights that are certified from the start were asked for, and there are none.
        """


def at_least_one(option: str, value: int) -> None:
    """Raise ``ValueError``, with the option as the user types it, for a count below 1."""
    if value < 1:
        raise ValueError(f"{option} is {value}; it must be at least 1")


def check_seed(seed: int) -> None:
    """Raise ``ValueError`` for a seed that PyTorch does not take."""
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"--seed is {seed}; it must fit into 64 bits")
