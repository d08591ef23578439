"""What reports and screens say of learned inverses."""

from __future__ import annotations

from .._core.words import Words

WORDS = Words(
    instead=dict.fromkeys(
        ("descend", "trace", "certify_every"),
        "a learned inverse is not descended; net(A) inverts, net.fit(matrices) trains, sf.certify certifies",
    ),
)
