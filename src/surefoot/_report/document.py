"""The frame of a page: head, style, script, title, contents, foot."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from html import unescape
from pathlib import Path

from .markup import Markup, text
from .style import CSS

EXACT = "Numbers are rounded for reading, those that are guaranteed to the safe side; {} holds them exactly."
"""The last sentence of a foot, about the file that the page was made of."""


def document(title: str, parts: Iterable[str], foot: str, style: str = "") -> str:
    """One HTML document that needs nothing else, and is forbidden to fetch anything.

    Args:
        title: of the page and its only h1.
        parts: markup, empty where there is nothing to say; headings h2 with an id, as ``section`` makes them, are the contents.
        foot: text or markup.
        style: rules of this page beside those of all.
    """
    said, body = text(title), "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{said}</title>\n<style>{CSS}{style}</style>\n<script>{script()}</script>\n</head>\n<body>\n"
        f'<a class="skip" href="#main">Skip to the content</a>\n<header class="top"><h1>{said}</h1></header>\n'
        f'{_contents(body)}<main id="main" tabindex="-1">\n{body}\n</main>\n'
        f"<footer>{text(foot)}</footer>\n</body>\n</html>\n"
    )


@cache
def script() -> str:
    """What makes the page zoom, filter and sort; without it everything can be read."""
    return "\n" + Path(__file__).with_name("page.js").read_text(encoding="utf-8")


@cache
def policy() -> str:
    """What the page may do: show what is in it, and run its one script."""
    known = b64encode(sha256(script().encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{known}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _contents(body: str) -> str:
    """Links to the sections, where there are enough of them."""
    found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body)
    if len(found) < 4:
        return ""
    links = "".join(f'<li><a href="#{name}">{text(_plain(title))}</a></li>' for name, title in found)
    return f'<nav class="contents" aria-label="Contents"><details><summary>Contents</summary><ol>{links}</ol></details></nav>\n'


def _plain(markup: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", markup))


def foot(version: str, *sentences: str, exact: str = "certificate.json") -> Markup:
    """The foot of a report: the version, what its numbers are, and the file that has them exactly."""
    last = EXACT.format(f"<code>{text(exact)}</code>")
    return Markup(" ".join([f"surefoot {text(version)}.", *map(text, sentences), last]))
