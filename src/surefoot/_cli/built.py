"""What the options of a network are built into, and its evaluation on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
