"""Random weights beside what the paper says of them with some probability, and beside what earlier work asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .result import Finding, Table

Draws = Mapping[tuple[float, int], Sequence[Mapping[str, float]]]


def lemmas_table(draws: Draws) -> Table:
    """The worst draw of each setting, in units of h^(1-2p), beside its bound."""
    columns = (
        "p",
        "width",
        "least alpha1 / h^(1-2p)",
        "Lemma F.5",
        "largest |W1 W2^T|_F / its bound",
        "least alpha1/alpha2",
        "(131)",
        "largest margin",
        "least |D(0)| / s+",
    )
    rows = tuple(
        (
            p,
            width,
            min(d["alpha1"] for d in of),
            of[0]["lemma"],
            max(d["product"] for d in of),
            min(d["ratio"] for d in of),
            min(d["theorem"] for d in of),
            max(d["margin"] for d in of),
            min(d["imbalance"] for d in of),
        )
        for (p, width), of in draws.items()
    )
    return Table("bounds in probability", columns, rows)


def lemmas_findings(draws: Draws) -> tuple[Finding, ...]:
    """In how many draws each bound holds."""
    every = [d for of in draws.values() for d in of]

    def share(held: Sequence[bool]) -> str:
        return f"holds in {sum(held)} of {len(held)} draws"

    lemma = [d["alpha1"] >= 1.0 for d in every]
    below = [d["alpha1"] >= d["lemma"] and d["product"] <= 1.0 for d in every]
    theorem = [d["ratio"] >= d["theorem"] for d in every]
    margins = [d["margin"] > 0.0 for d in every]
    least = min(d["imbalance"] for d in every)
    return (
        Finding(
            "alpha1 >= h^(1-2p) for h large enough (Lemmas 3.2 and F.1).",
            share(lemma),
            all(lemma),
            "How large the width must be is not said; 'large enough' is taken to include these.",
        ),
        Finding(
            "Both bounds of Lemma F.5.",
            share(below),
            all(below),
            "They are those of the extreme singular values of [W1; W2]. The B with log(2/delta)/2 comes from the tail of "
            "Lemma A.3, false as printed (docs/errata.md); sqrt(2 log(2/delta)) is proved, and larger for delta > 0.0007.",
        ),
        Finding(
            "(131): the bound of alpha1/alpha2 in the proof of Theorems 3.3 and F.1.",
            share(theorem),
            all(theorem),
            "Evaluated with its constants. It joins two events of probability 1 - delta, and claims 1 - delta for both.",
        ),
        Finding(
            "Arora et al. and Du et al. need a positive margin beta1 and an imbalance D(0) of about 0 (Tables 1 and 3).",
            f"margin positive in {sum(margins)} of {len(margins)} draws; |D(0)| at least {least:.2f} of s+",
            not any(margins) and least > 0.1,
            "Margin: sigma_min(W*) - sqrt(K/mu) |W(0) - W*|_F. Agreement means that such weights meet neither.",
        ),
    )
