"""Advice in the terms of Python, said as options of the command line: for its screen, its errors, and reports of its runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

ARGUMENTS = (
    *("theorem", "steps", "certify_every", "engine", "l2", "weight_decay", "width", "gamma"),
    *("target", "separator", "decimal", "categories", "missing"),
)
"""Arguments of functions whose name and value are those of an option."""
GIVEN = re.compile(rf"\b({'|'.join(ARGUMENTS)})=('[^']*'|\"[^\"]*\"|[0-9][^\s;,)]*)")
REFUSED = re.compile(
    rf"^({'|'.join(ARGUMENTS)}|std|scale|moved|depth|delta|batch|rcond|alpha|interval) is (?=[-'\"0-9(])"
)
LEFT_OUT = re.compile(rf"(?:pass )?\b({'|'.join(ARGUMENTS)})=None")
PHRASES = {
    r"directory=, --out": "--out",
    r"resume=True, --resume": "--resume",
    r"\braise max_iterations or resume\b": "--resume with more --max-iterations",
    r" \(--[a-z-]+ on the command line\)": "",
    r"\bsf\.certify\(net, loss, '([a-z/-]+)'\)": r"--theorem \1",
    r'\bsf\.descend\(net, loss, steps="([a-z-]+)"\)': r"--finish \1 of `surefoot train`",
    r"\bsf\.newton\(net, loss\)": "--finish newton of `surefoot train`",
    r"\bcertify again at a later iterate \(certify_every\)": "certify again (--certify-every of `surefoot train`)",
    r"\buse (?:the theorem )?([a-z-]+/[a-z-]+)(?=[,; ]|$)": r"use --theorem \1",
    r"\b(l2|weight_decay) > 0": r"\1 above 0",
    r"\bstep=([0-9.e+-]+)": r"a step of \1",
    r"\buse (?:a )?width (?:>=|of at least) ([0-9]+)": r"use --width \1 or more",
    r"\buse a larger width": "use a larger --width",
    r"\b((?:standardise or )?whiten) the inputs": r"\1 the inputs (--inputs)",
}
"""What several systems say, as patterns, and how it is said of options."""


def in_options(text: str, own: Mapping[str, str] | None = None) -> str:
    """A text that speaks of arguments and functions, in terms of options.

    Args:
        text: advice, or an error.
        own: patterns of a system's own phrases, with what stands for each.
    """
    for pattern, said in {**(own or {}), **PHRASES}.items():
        text = re.sub(pattern, said, text)
    text = REFUSED.sub(lambda found: f"{_option(found[1])} is ", text)
    text = LEFT_OUT.sub(lambda found: f"leave out {_option(found[1])}", text)
    text = GIVEN.sub(lambda found: f"{_option(found[1])} {found[2].strip(_QUOTES)}", text)
    return re.sub(r"\b(l2|weight_decay) above 0", lambda found: f"{_option(found[1])} above 0", text)


_QUOTES = "'\""


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
