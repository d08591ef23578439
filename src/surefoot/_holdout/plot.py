"""The curve of a certificate."""

from __future__ import annotations

import io

from surefoot_check.holdout.record import Record

from .._core.charts import COLOURS, grid, style


def plot(record: Record) -> bytes:
    """The PNG of ``HoldoutCertificate.plot``."""
    figure, axes = grid(1, 1, panel=(7.0, 4.2))
    ax = axes[0][0]
    k = [0, *(point.iterations for point in record.curve), record.limit if record.failures else None]
    k = [value for value in k if value is not None]

    def steps(values: list[float], colour: str, label: str, line: str = "-") -> None:
        ends = [0.0, *values, *values[-1:]]
        ax.step(k, ends[: len(k)], line, where="post", color=colour, label=label)

    steps([p.problems / record.count for p in record.curve], COLOURS[0], "share of the held-out problems")
    confidence = f"confidence {record.confidence:g}"
    steps([p.pointwise for p in record.curve], COLOURS[1], f"coverage at least, {confidence} at one count", "--")
    steps([p.simultaneous for p in record.curve], COLOURS[2], f"the same at all counts at once, {confidence}", ":")
    ax.axhline(record.coverage, color="#999999", linewidth=0.8)
    if record.iterations is not None:
        ax.plot(
            [record.iterations], [record.coverage], "o", color=COLOURS[6], label=f"certified: {record.iterations:,}"
        )
    ax.set_xlabel("iterations")
    ax.set_ylabel("share of problems")
    ax.set_ylim(0.0, 1.02)
    style(ax, f"{record.solver} on {record.count:,} held-out problems: {record.status}")
    ax.legend(fontsize=8, loc="lower right")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
