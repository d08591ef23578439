"""The plots of width and imbalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from surefoot._core import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_figure3(
    kappas: dict[tuple[float, int], list[float]],
    ratios: dict[tuple[float, int], list[float]],
    exponents: list[float],
    widths: list[int],
) -> Figure:
    """κ(T₀) and α₁/α₂ by width, a line for each exponent."""
    figure, axes = charts.grid(1, 2, panel=(4.6, 3.4))
    for index, p in enumerate(exponents):
        for ax, values in zip(axes[0], (kappas, ratios), strict=True):
            data = torch.tensor([values[p, h] for h in widths], dtype=torch.float64)
            centre, spread = data.mean(1), data.std(1, correction=0)
            ax.plot(
                widths,
                centre.tolist(),
                color=charts.COLOURS[index],
                label=f"p = {p:g}",
                marker="osv^D"[index % 5],
                markersize=9 - 2 * index,
                linewidth=3.0 - 0.8 * index,
            )
            ax.fill_between(
                widths,
                (centre - spread).tolist(),
                (centre + spread).tolist(),
                color=charts.COLOURS[index],
                alpha=0.15,
                linewidth=0,
            )
    for ax, title in zip(axes[0], ("κ(T₀): the same for every p", "α₁/α₂"), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(widths, [str(h) for h in widths])
        ax.minorticks_off()
        low, high = ax.get_ylim()
        candidates = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.6, 2.0, 3.0)
        ticks = [t for t in candidates if low < t < high]
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_xlabel("width h")
        charts.style(ax, title)
    return charts.finish(figure, axes, "Conditioning of the initial weights N(0, h^(-2p))", "")


def draw_figure4(
    gaps: dict[tuple[float, int], dict[str, list[list[float]]]], variances: list[float], widths: list[int]
) -> Figure:
    """Gaps by iteration, a panel for each variance."""
    figure, axes = charts.grid(len(variances), len(widths), panel=(3.1, 2.7))
    for line, variance in zip(axes, variances, strict=True):
        for ax, width in zip(line, widths, strict=True):
            curves = [
                charts.Curve(name, colour, runs)
                for colour, (name, runs) in zip(
                    (charts.COLOURS[1], charts.COLOURS[0], charts.COLOURS[2], charts.COLOURS[6]),
                    gaps[variance, width].items(),
                    strict=True,
                )
            ]
            charts.draw(ax, curves, title=f"h = {width}, noise variance {variance:g}")
    return charts.finish(figure, axes, "Overparametrised training beside plain gradient descent", "gap L(t)")
