"""What the five papers state and show, by the headings of the page: extracted from their texts, appendices included."""

from __future__ import annotations


def numbered(kind: str, numbers: str) -> list[str]:
    """``kind 1``, ``kind 2`` and so on, of numbers in words."""
    return [f"{kind} {number}" for number in numbers.split()]


ITEMS: dict[str, list[str]] = {
    "Two-layer linear networks": [
        *numbered("Theorem", "3.1 3.2 3.3 D.1 E.1 F.1"),
        *numbered("Proposition", "2.1 B.1"),
        *numbered("Lemma", "3.1 3.2 A.1 A.2 A.3 C.1 D.1 D.2 D.3 D.4 D.5 E.1 E.2 E.3 E.4 F.1 F.2 F.3 F.4 F.5"),
        *numbered("Figure", "1 2 3 4"),
        *numbered("Table", "1 2 3"),
        "Algorithm 1",
    ],
    "Deep linear ResNets": [
        *numbered("Theorem", "3.1 3.6 3.8"),
        "Proposition 3.3",
        *numbered("Corollary", "3.4 3.7 3.9"),
        *numbered("Lemma", "A.1 A.2 B.1 B.2 B.3"),
        "Figure 1",
        "Algorithm 1",
    ],
    "Infinite-depth ReLU networks": [
        *numbered("Theorem", "4.2 4.4"),
        *numbered("Lemma", "3.1 3.2 4.1 4.3 5.1"),
        *numbered("Figure", "1 2 3 4 5 6"),
        "Table 1",
    ],
    "Learned step sizes": [
        "Theorem 4.7",
        *numbered("Lemma", "4.2 4.3 4.5 5.1 5.2 5.3 5.4 A.3 A.4 A.7 A.9 A.10 A.12 A.14 A.15 A.16 A.18 A.19 A.20"),
        "Corollary A.17",
        *numbered("Figure", "1 2 3 4 5 6 7 8 9 10 11"),
        "Table 1",
    ],
    "Matrix inverse, SVD and deconvolution": [
        *numbered("Theorem", "1 2 3"),
        *numbered("Proposition", "1 2 3 4 5 6"),
        *numbered("Lemma", "1 2 3 4 5 6 7"),
        "Corollary 1",
        "Claim 1",
        *numbered("Algorithm", "1 2 3 4"),
        "Figure 1",
        *numbered("Table", "1 2 3 4"),
    ],
}
