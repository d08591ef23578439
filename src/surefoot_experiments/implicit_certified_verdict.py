"""What the theorems claim of instances, and what the draws say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .implicit_certified_runs import GD, RATIO, SPECTRAL, Draw, Size
from .result import Finding, Table
from .summaries import median


def certificate_findings(rows: Mapping[Size, Sequence[Draw]]) -> tuple[Finding, ...]:
    """The three theorems beside each other, and beside the runs."""
    run = [draw for draws in rows.values() for draw in draws if draw.executed]
    within = [draw for draw in run if draw.needed is not None]
    violations = sum(draw.violations for draw in run)
    excess = [(draw.counts[SPECTRAL.id] or 0.0) / draw.needed for draw in within if draw.needed]
    scales = {size: median(draw.scales[GD.id] for draw in draws) for size, draws in rows.items()}
    held = {size: scale for size, scale in scales.items() if scale is not None}
    counts: list[str] = []
    for size in held:
        paper, ours = (median(draw.counts[name] for draw in rows[size]) for name in (GD.id, SPECTRAL.id))
        if paper is not None and ours is not None:
            counts.append(f"N = {size[0]}, m = {size[1]}: {paper:.1e}, {paper / ours:.0e} times implicit/spectral's")
    return (
        Finding(
            "The conditions (17) to (19) can be satisfied by a large beta (section 7).",
            f"for {len(held)} of {len(rows)} sizes"
            + (", with beta " + ", ".join(f"{scale:.0f}" for scale in held.values()) if held else ""),
            len(held) == len(rows),
            "Agreement means a finite median at every size. sigma_min(Z) must be positive, which takes a width of about 2 N on "
            "images: with m = N dead units leave sigma_min(Z) = 0, and then no beta helps.",
        ),
        Finding(
            "(Not in the paper: how many iterations Theorem 4.4 guarantees.)",
            "; ".join(counts) or "none",
            None,
            "C1, C2 and C3 are chosen for the largest step that the theorem allows. The step is limited by the norms of all "
            "weights, the rate by the smallest eigenvalue of Z Zᵀ; the count hardly depends on beta.",
        ),
        Finding(
            "(Not in the paper: certified runs keep their guarantee.)",
            f"{len(within)} of {len(run)} runs reach {RATIO:g} within the guaranteed iterations; {violations} audit violations"
            + (f"; guaranteed over needed {min(excess):.3f} to {max(excess):.3f}" if excess else ""),
            len(within) == len(run) and violations == 0 if run else None,
            "Every inequality of the certificate is checked at every step of the runs.",
        ),
    )


def tradeoff_findings(table: Table, limit: float) -> tuple[Finding, ...]:
    """What scale costs in iterations and in feature movement."""
    records = table.records()
    certified = [r for r in records if r["certified"]]
    below = [r for r in records if not r["certified"] and r["feature movement"] is not None]
    least = min(certified, key=lambda r: float(r["beta"] or 0))
    moving = [r for r in certified if r["feature movement"] is not None]
    finished = [r for r in certified if r["needed"] is not None]  # an interrupted run shows nothing
    within = all(float(r["needed"] or 0) <= float(r["guaranteed"] or 0) for r in finished)
    largest = max((float(r["feature movement"] or 0) for r in moving), default=0.0)
    smallest = min((float(r["feature movement"] or 0) for r in moving), default=0.0)
    free = max(below, key=lambda r: float(r["feature movement"] or 0), default=None)
    return (
        Finding(
            "(Not in the paper: what the least certified beta costs.)",
            f"beta = {float(least['beta'] or 0):.3g}: guaranteed {float(least['guaranteed'] or 0):.0f} iterations, needed "
            f"{float(least['needed'] or 0):.0f}; an infinite beta guarantees {limit:.0f}",
            None,
            "Near the least beta the perturbation allowed for takes up part of the rate, and only a smaller step may be "
            "certified; about twice that beta suffices for the count of the frozen features.",
        ),
        Finding(
            "(Not in the paper: certified runs keep their guarantee.)",
            f"{len(finished)} certified scales run to the end, all within the guaranteed iterations"
            if within
            else "a certified run needed more iterations than guaranteed",
            within,
            "Needed at most guaranteed, at every certified beta.",
        ),
        Finding(
            "(Not in the paper: how far the features move.)",
            f"relative movement {smallest:.1e} to {largest:.1e} where certified"
            + (
                f"; up to {float(free['feature movement'] or 0):.1e} below (beta = {float(free['beta'] or 0):.3g}, where the run "
                f"needs {float(free['needed'] or 0):.0f} iterations)"
                if free is not None
                else ""
            ),
            None,
            "A certificate proves the convergence of what is in effect a linear readout of random equilibrium features. Movement "
            "falls like 1/beta^4; where features are learnt, nothing is certified from the start.",
        ),
    )
